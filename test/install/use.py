#!/usr/bin/env python3
"""Builds and runs the README's example in a project of its own that uses weir.

    use.py find_package|add_subdirectory CMAKE WEIR_SOURCE WEIR_BUILD FOLDER [CMAKE_ARGUMENT...]

find_package: weir is installed from WEIR_BUILD into FOLDER/prefix, and the project is the README's CMake block as it
stands. add_subdirectory: weir is fetched with FetchContent from WEIR_SOURCE, inside a subdirectory of the project.
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


def block(language):
    return re.search(rf"^```{language}\n(.*?)^```$", readme, re.M | re.S).group(1)


def headers(root):
    return sorted(p.relative_to(root) for p in (root / "include").rglob("*") if p.suffix in (".hpp", ".inl"))


def run(*command, **options):
    print("+", *command, flush=True)
    subprocess.run(command, check=True, **options)


lists = "cmake_minimum_required(VERSION 3.25)\nproject(user LANGUAGES CXX)\n"
if way == "find_package":
    run(cmake, "--install", build, "--prefix", folder / "prefix", stdout=subprocess.DEVNULL)
    arguments.append(f"-DCMAKE_PREFIX_PATH={folder / 'prefix'}")
    lists += block("cmake")
    installed = headers(folder / "prefix")
    assert installed == headers(source), f"the headers installed are not those in the tree: {installed}"
else:
    (folder / "project" / "third_party").mkdir()
    (folder / "project" / "third_party" / "CMakeLists.txt").write_text(
        f'include(FetchContent)\nFetchContent_Declare(weir SOURCE_DIR "{source}")\nFetchContent_MakeAvailable(weir)\n')
    lists += "add_subdirectory(third_party)\n" + block("cmake").replace("find_package(weir REQUIRED)", "")
(folder / "project" / "CMakeLists.txt").write_text(lists)
(folder / "project" / "app.cpp").write_text(block("cpp"))

run(cmake, "-S", folder / "project", "-B", folder / "build", *arguments)
run(cmake, "--build", folder / "build")
if way == "add_subdirectory":
    programs = [p.name for p in (folder / "build").rglob("*") if p.is_file() and p.stat().st_mode & 0o111 and "CMakeFiles" not in p.parts]
    assert programs == ["app"], f"a user of weir builds none of its tests and examples: {programs}"
run(folder / "build" / "app", cwd=folder)
