#!/usr/bin/env python3
"""Compares the table of known bugs in docs/reliability.md with bugs.py.

    page.py            exit status 1, and the rows that differ, if they are not the same
    page.py --write    writes the table from bugs.py; figures of `run.py --random` stay with the bugs of the same words
    --page FILE        another page
"""
import argparse
import difflib
import sys
from pathlib import Path

sys.dont_write_bytecode = True
from bugs import BUGS  # noqa: E402

PAGE = Path(__file__).resolve().parents[2] / "docs/reliability.md"
HEAD = ["| kind | bug | caught by | after |", "|---|---|---|---:|"]


def row(bug, after):
    caught_by = f"`{bug.test}`" + (f", {bug.sanitizer} sanitizer" if bug.sanitizer else "")
    return f"| {bug.number or ''} | {bug.what} | {caught_by} | {after} |"


def figures(rows):
    """{a bug's words: after how many operations the random programs found it}, as the page has it."""
    cells = [[cell.strip() for cell in line.split("|")] for line in rows]
    return {c[2]: c[4] for c in cells if len(c) == 6 and c[4]}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--write", action="store_true")
    arguments.add_argument("--page", type=Path, default=PAGE)
    options = arguments.parse_args()
    lines = options.page.read_text().split("\n")
    if HEAD[0] not in lines:
        sys.exit(f"{options.page.name} has no table that begins with {HEAD[0]!r}")
    first = lines.index(HEAD[0])
    end = next((i for i in range(first, len(lines)) if not lines[i].startswith("|")), len(lines))
    known = figures(lines[first + 2:end])
    table = HEAD + [row(bug, known.get(bug.what, "")) for bug in BUGS]
    if options.write:
        options.page.write_text("\n".join(lines[:first] + table + lines[end:]))
        return 0
    differences = list(difflib.unified_diff(lines[first:end], table, options.page.name, "bugs.py", lineterm="", n=0))
    if differences:
        print(*differences, "write the page's table anew: test/mutants/page.py --write", sep="\n")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
