#!/usr/bin/env python3
"""Builds and runs the README's example in a project of its own that uses weir.

    use.py find_package|add_subdirectory CMAKE WEIR_SOURCE WEIR_BUILD FOLDER [CMAKE_ARGUMENT...]

find_package: weir is installed from WEIR_BUILD into FOLDER/prefix, and the project is the README's block of CMake that
has find_package, as it stands. add_subdirectory: it is the README's block with FetchContent, in a subdirectory of the
project, and from WEIR_SOURCE instead of an address.
"""
import re
import shutil
import subprocess
import sys
from pathlib import Path

way, cmake, source, build, folder, *arguments = sys.argv[1:]
source, folder = Path(source), Path(folder)
shutil.rmtree(folder, ignore_errors=True)
(folder / "project").mkdir(parents=True)

readme = (source / "README.md").read_text()


def block(language, words=""):
    """The first block of that language in the README that has these words."""
    return next(text for text in re.findall(rf"^```{language}\n(.*?)^```$", readme, re.M | re.S) if words in text)


def headers(root):
    return sorted(p.relative_to(root) for p in (root / "include").rglob("*.hpp"))


def run(*command, **options):
    print("+", *command, flush=True)
    subprocess.run(command, check=True, **options)


use = block("cmake", "find_package")
lists = "cmake_minimum_required(VERSION 3.25)\nproject(user LANGUAGES CXX)\n"
if way == "find_package":
    run(cmake, "--install", build, "--prefix", folder / "prefix", stdout=subprocess.DEVNULL)
    arguments.append(f"-DCMAKE_PREFIX_PATH={folder / 'prefix'}")
    lists += use
    installed = headers(folder / "prefix")
    assert installed == headers(source), f"the headers installed are not those in the tree: {installed}"
else:
    (folder / "project" / "third_party").mkdir()
    fetch, replaced = re.subn(r"GIT_REPOSITORY \S+\s+GIT_TAG v[0-9.]+", f'SOURCE_DIR "{source}"', block("cmake", "FetchContent"))
    assert replaced == 1, "the README fetches weir by GIT_REPOSITORY and GIT_TAG v..."
    (folder / "project" / "third_party" / "CMakeLists.txt").write_text(fetch)
    # Its warnings are its own: more of them than weir's builds have, and they stop the build.
    lists += "add_compile_options(-Wall -Wextra -Wsign-conversion -Wuseless-cast -Wnon-virtual-dtor -Werror)\n"
    lists += "add_subdirectory(third_party)\n" + use.replace("find_package(weir REQUIRED)", "")
(folder / "project" / "CMakeLists.txt").write_text(lists)
(folder / "project" / "app.cpp").write_text(block("cpp"))

if way == "find_package":
    (folder / "components").mkdir()

    def ask_for(components):
        """What CMake says to a project that asks for these components of weir."""
        asks = f"cmake_minimum_required(VERSION 3.25)\nproject(asks LANGUAGES CXX)\nfind_package(weir {components})\nmessage(STATUS weir=${{weir_FOUND}})\n"
        (folder / "components" / "CMakeLists.txt").write_text(asks)
        command = [cmake, "--fresh", "-S", folder / "components", "-B", folder / "components_build", *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, " ".join(done.stdout.split())

    for components, fails, words in [
        ("REQUIRED COMPONENTS sim tensor", True, "weir has no component 'sim', since it has none"),
        ("COMPONENTS tensor", False, "weir=0"),
        ("REQUIRED OPTIONAL_COMPONENTS tensor", False, "weir=1"),
    ]:
        status, said = ask_for(components)
        assert (status != 0) == fails and words in said, f"find_package(weir {components}): {status}: {said}"

run(cmake, "-S", folder / "project", "-B", folder / "build", *arguments)
run(cmake, "--build", folder / "build")
if way == "add_subdirectory":
    programs = [p.name for p in (folder / "build").rglob("*") if p.is_file() and p.stat().st_mode & 0o111 and "CMakeFiles" not in p.parts]
    assert programs == ["app"], f"a user of weir builds none of its tests and examples: {programs}"
    chosen = re.search("^CMAKE_BUILD_TYPE:.*=(.*)$", (folder / "build" / "CMakeCache.txt").read_text(), re.M)
    assert not chosen or not chosen.group(1), f"weir chose a build type for its user: {chosen.group(0)}"
run(folder / "build" / "app", cwd=folder)
