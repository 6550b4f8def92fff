#!/usr/bin/env python3
"""Writes the C++ programs in pages (fenced `cpp` blocks with a main function) to files, one each.

    extract.py OUTPUT_FOLDER PAGE...

The files are named by page and place: README.1.cpp, simulated runtime.1.cpp ... Each ends with the `return 0;` that main
may leave out, and no function in a namespace. Exit status 1 if the first page has none.
"""
import re
import sys
from pathlib import Path

folder, *pages = map(Path, sys.argv[1:])
programs = {}
for page in pages:
    blocks = re.findall(r"^```cpp\n(.*?)^```$", page.read_text(), re.M | re.S)
    blocks = [block for block in blocks if "int main(" in block]
    blocks = [re.sub(r"^\}\n\Z", "  return 0;\n}\n", block, flags=re.M) for block in blocks]
    programs |= {f"{page.stem}.{number}.cpp": block for number, block in enumerate(blocks, 1)}
for old in folder.glob("*.cpp"):
    if old.name not in programs:
        old.unlink()
for name, block in programs.items():
    file = folder / name
    if not file.exists() or file.read_text() != block:  # an untouched file is not built again
        file.write_text(block)
sys.exit(0 if pages[0].stem + ".1.cpp" in programs else 1)
