#!/usr/bin/env python3
"""Reads the library's headers and says where they break the house rules.

    check.py RULE [ROOT]    RULE: includes | opening | mirror | links | width;  ROOT: the repository (default: this one)

The floors that `includes` goes by are those of the tables in docs/architecture.md: a folder includes itself and what is
on lower floors, or only what its row says that it `knows only`. Page and tree have to name the same folders.

Prints `file:line: what is wrong` for each violation; exit status 1 if there is any, 2 if it was called wrongly or found
no headers at all.
"""
import re
import sys
from pathlib import Path

# Folders whose own work is to meet someone else's headers.
FREE_TO_INCLUDE_OTHERS = {"bridges", "tools"}
KNOWS_THE_SIM = "testing"  # the one way from the library to the simulated runtime
COLUMNS = 120  # of pages; clang-format has its own for code
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


class Floor:
    """A row of the page: `| 3 | `pool/heap` | its blocks; knows only `support` |`."""

    def __init__(self, line, number, folder, words):
        self.line, self.number, self.folder = line, int(number), folder
        only = re.search(r"knows only ((?:`[^`]+`(?:, | and )?)+)", words)
        self.only = re.findall(r"`([^`]+)`", only.group(1)) if only else None

    def may_include(self, other):
        if self.folder == other.folder or other.folder == "version.hpp":
            return True
        if self.only is not None:
            return other.folder in self.only
        same_room = self.folder.split("/")[0] == other.folder.split("/")[0] != "sim"
        return other.number < self.number or (other.number == self.number and same_room)


def floors(root):
    page = root / "docs" / "architecture.md"
    found = {}
    for line, text in enumerate(page.read_text().splitlines() if page.exists() else [], 1):
        row = re.match(r"\| (\d+) \| `([^`]+)` \| (.*)\|$", text)
        if row:
            found[row.group(2)] = Floor(line, *row.groups())
    return found


def room(path, known):
    """The row of the page that a header stands in: its folder's, or its own where it is an umbrella of all."""
    if path in known:
        return path
    return path.rsplit("/", 1)[0] if "/" in path else path[: -len(".hpp")]


def includes(root):
    known, used = floors(root), set()
    library = [(p, str(p.relative_to(root / "include" / "weir"))) for p in headers(root)]
    sim = [(p, str(p.relative_to(root))) for p in sorted((root / "sim").rglob("*")) if p.suffix in (".hpp", ".cpp")]
    for path, name in library + sim:
        own = room(name, known)
        used.add(own)
        if own not in known and own != "sim":
            yield path, 1, f"'{own}' has no place on docs/architecture.md"
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            wrong = match and judge(known, own, *match.groups())
            if wrong:
                yield path, number, wrong
    for floor in known.values():
        if floor.folder not in used:
            yield root / "docs" / "architecture.md", floor.line, f"there is no '{floor.folder}'"


def judge(known, own, bracket, included):
    in_sim = own == "sim" or own.startswith("sim/")
    if bracket == '"':
        return judge_quoted(known, own, included)
    if included.startswith("weir/"):
        target = room(included[len("weir/"):], known)
        if target == "sim":
            return None if in_sim or own == KNOWS_THE_SIM else f"<{included}>: the library must not know the simulated runtime"
        if in_sim:
            above = f"<{included}>: the simulated runtime includes nothing of the library above it"
            return None if target == "version.hpp" else above
        return judge_floors(known, own, target, included)
    if in_sim:
        return None
    if own == "weir.hpp":
        return f"<{included}>: the umbrella includes weir's headers only"
    if STD_HEADER.match(included) or own in FREE_TO_INCLUDE_OTHERS:
        return None
    if CUDA_HEADER.match(included):
        return None if known[own].may_include(known["cuda"]) else f"<{included}>: {own} knows nothing of CUDA"
    return f"<{included}>: only bridges and tools include headers of others"


def judge_quoted(known, own, included):
    """The simulated runtime's sources name their own headers so, as "folder/name.hpp"."""
    if not own.startswith("sim/"):
        return f'"{included}": library headers are included as <weir/...>'
    if "/" not in included:  # one source compiled twice, in two ways
        return None if included.endswith(".cpp") else f'"{included}": headers here are included as "folder/name.hpp"'
    return judge_floors(known, own, "sim/" + included.split("/")[0], included)


def judge_floors(known, own, target, included):
    if target not in known:
        return f"{included}: '{target}' has no place on docs/architecture.md"
    if known[own].may_include(known[target]):
        return None
    return f"{included}: {own} ({known[own].number}) may not include {target} ({known[target].number})"


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
    """What pages link to inside the repository is there."""
    for path, number, line in prose(root):  # not code, where a lambda looks like a link
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", line):
            if "://" not in target and not (path.parent / target).exists():
                yield path, number, f"the link to {target} leads nowhere"


def width(root):
    """Pages wrap at 120 columns, rows of tables too; an address counts for nothing, since it cannot be broken."""
    for path, number, line in prose(root):
        columns = len(re.sub(r"\w+://[^\s)>]+", "", line))
        if columns > COLUMNS:
            yield path, number, f"{columns} columns; break the line, or shorten the row, at {COLUMNS}"


def prose(root):
    """The lines of all pages, but those of fenced code, which are as a program prints or a compiler reads them."""
    for path in [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]:
        code = False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            fence = line.startswith("```")
            code ^= fence
            if not code and not fence:
                yield path, number, line


RULES = {rule.__name__: rule for rule in (includes, opening, mirror, links, width)}


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
