#!/usr/bin/env python3
"""Reads the library's headers and says where they break the house rules.

    check.py RULE [ROOT]    RULE: includes | opening | mirror | links;  ROOT: the repository (default: this one)

Prints `file:line: what is wrong` for each violation; exit status 1 if there is any, 2 if it was called wrongly or found
no headers at all.
"""
import re
import sys
from pathlib import Path

# A header may include folders with the same number or a lower one; of those at 0, blocks include blocks only.
LEVEL = {"version": -1, "blocks": 0, "cuda": 0, "core": 1, "sources": 2, "adaptors": 3, "bridges": 4, "tools": 5}
MADE_FOR_THE_SIM = {"adaptors/checked.hpp"}  # the one way from the library to the simulated runtime
# The same inside sim/, whose headers nobody else includes.
SIM_LEVEL = {"model": 0, "checker": 1, "memory": 2, "scheduler": 3, "control": 4, "api": 5}
UMBRELLA_LEVEL = 6  # weir.hpp includes everything

# Folders whose own work is to meet someone else's headers.
FREE_TO_INCLUDE_OTHERS = {"bridges", "tools"}
CUDA_HEADER = re.compile(r"cuda(_runtime(_api)?|_profiler_api)?\.h$|driver_types\.h$|vector_types\.h$|host_defines\.h$")
STD_HEADER = re.compile(r"[a-z_]+$|(sys/\w+|pthread|unistd|sched|time|dlfcn|execinfo|stdint|fcntl|cxxabi|ucontext)(\.h)?$")  # and POSIX
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')


def headers(root):
    found = sorted((root / "include" / "weir").rglob("*.hpp"))
    if not found:
        print(f"no headers under {root / 'include' / 'weir'}")
        sys.exit(2)
    return found


def sim_headers(root):
    return sorted((root / "sim").rglob("*.hpp"))


def place(root, path):
    """The folder of a header, and whether it is an umbrella (include/weir/NAME.hpp)."""
    parts = path.relative_to(root / "include" / "weir").parts
    return (parts[0], False) if len(parts) > 1 else (parts[0][: -len(".hpp")], True)


def level(folder):
    return UMBRELLA_LEVEL if folder == "weir" else LEVEL.get(folder)


def includes(root):
    for path in headers(root):
        folder, umbrella = place(root, path)
        if folder != "sim" and level(folder) is None:
            yield path, 1, f"folder or umbrella '{folder}' has no place in the order; add it to {Path(__file__).name}"
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if match:
                wrong = judge(str(path.relative_to(root / "include" / "weir")), folder, umbrella, *match.groups())
                if wrong:
                    yield path, number, wrong
    yield from includes_of_sim(root)


def includes_of_sim(root):
    """The simulated runtime's sources include its own headers, downwards, and those of its public face."""
    for path in sorted(p for p in (root / "sim").rglob("*") if p.suffix in (".hpp", ".cpp")):
        folder = path.parent.name
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            wrong = match and judge_in_sim(folder, *match.groups())
            if wrong:
                yield path, number, wrong


def judge_in_sim(folder, bracket, included):
    if folder not in SIM_LEVEL:
        return f"folder '{folder}' of the simulated runtime has no place in the order; add it to {Path(__file__).name}"
    if bracket == "<":
        if included.startswith("weir/") and not included.startswith("weir/sim/"):
            return f"<{included}>: the simulated runtime includes nothing of the library above it"
        return None
    if "/" not in included:  # one source compiled twice, in two ways
        return None if included.endswith(".cpp") else f'"{included}": headers here are included as "folder/name.hpp"'
    target = included.split("/")[0]
    if target not in SIM_LEVEL:
        return f'"{included}": folder \'{target}\' has no place in the order'
    if SIM_LEVEL[target] > SIM_LEVEL[folder]:
        return f'"{included}": sim/{folder} ({SIM_LEVEL[folder]}) may not include {target} ({SIM_LEVEL[target]})'
    return None


def judge(path_in_library, folder, umbrella, bracket, included):
    if included.startswith("weir/"):
        if bracket == '"':
            return f'"{included}": library headers are included as <{included}>'
        rest = included[len("weir/"):]
        target = rest.split("/")[0] if "/" in rest else rest[: -len(".hpp")]
        if folder == "sim":
            above = f"<{included}>: the simulated runtime includes nothing of the library above it"
            return None if target in ("sim", "version") else above
        if target == "sim" and path_in_library in MADE_FOR_THE_SIM:
            return None
        if target == "sim" or rest in MADE_FOR_THE_SIM:
            return f"<{included}>: the library must not know the simulated runtime"
        if level(target) is None:
            return f"<{included}>: '{target}' has no place in the order"
        if level(target) > level(folder) or (folder == "blocks" and target not in ("blocks", "version")):
            return f"<{included}>: {folder} ({level(folder)}) may not include {target} ({level(target)})"
        return None
    if bracket == '"':
        return f'"{included}": library headers are included as <weir/...>'
    if umbrella and folder == "weir":
        return f"<{included}>: the umbrella includes weir's headers only"
    if STD_HEADER.match(included) or folder in FREE_TO_INCLUDE_OTHERS:
        return None
    if CUDA_HEADER.match(included):
        return f"<{included}>: blocks know the standard library only" if folder == "blocks" else None
    return f"<{included}>: only bridges and tools include headers of others"


def opening(root):
    """The first line guards, the second says what the header is."""
    for path in headers(root) + sim_headers(root):
        lines = path.read_text().splitlines() + ["", ""]
        if lines[0] != "#pragma once":
            yield path, 1, "the first line must be `#pragma once`"
        elif not lines[1].startswith("// "):
            yield path, 2, "the second line must be a comment that says what this header is"


def mirror(root):
    """A header of the library has a test at its own path."""
    for path in headers(root):
        relative = path.relative_to(root / "include" / "weir")
        if len(relative.parts) < 2 or relative.parts[0] == "sim":
            continue
        if not any((root / "test" / relative).with_suffix(ending).exists() for ending in (".cpp", ".cu")):
            yield path, 1, f"no test/{relative.with_suffix('.cpp')}"


def links(root):
    """What README and docs link to inside the repository is there."""
    for path in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        code = False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code ^= line.startswith("```")  # a lambda looks like a link
            for target in [] if code else re.findall(r"\]\(([^)#\s]+)[^)]*\)", line):
                if "://" not in target and not (path.parent / target).exists():
                    yield path, number, f"the link to {target} leads nowhere"


RULES = {rule.__name__: rule for rule in (includes, opening, mirror, links)}


def main(arguments):
    if not arguments or arguments[0] not in RULES or len(arguments) > 2:
        print(__doc__)
        return 2
    root = Path(arguments[1] if len(arguments) > 1 else Path(__file__).parents[2]).resolve()
    violations = list(RULES[arguments[0]](root))
    for path, line, what in violations:
        print(f"{path.relative_to(root)}:{line}: {what}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
