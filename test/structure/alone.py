#!/usr/bin/env python3
"""Compiles tests and examples one by one, so that each includes what it uses, also where builds put several together.

    alone.py COMPILER ROOT SOURCES INCLUDE_DIR...    ROOT: the repository; SOURCES: a file with paths below ROOT, one a
                                                     line; INCLUDE_DIR: of CUDA and doctest
"""
import concurrent.futures
import subprocess
import sys
import tempfile
from pathlib import Path

# Tests have these from a build with WEIR_PRECOMPILED_HEADERS too. Nobody gives them to an example.
OTHERS = ["doctest/doctest.h", "algorithm", "array", "functional", "map", "memory", "mutex", "optional", "span", "string",
          "thread", "vector"]


def main(compiler, root, sources, folders):
    flags = ["-std=c++20", f"-I{root / 'test'}", f"-I{root / 'include'}", *(f"-isystem{folder}" for folder in folders)]
    with tempfile.TemporaryDirectory() as place:
        others = Path(place) / "others.hpp"
        others.write_text("".join(f"#include <{header}>\n" for header in OTHERS))
        subprocess.run([compiler, *flags, "-xc++-header", others, "-o", f"{others}.gch"], check=True)

        def errors(source):
            more = ["-include", others] if source.startswith("test/") else []
            done = subprocess.run([compiler, *flags, *more, "-fsyntax-only", root / source],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            return done.stdout if done.returncode != 0 else ""

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            wrong = [said for said in pool.map(errors, sources) if said]
    print(*wrong, f"{len(sources)} files, {len(wrong)} do not compile alone", sep="\n")
    return 1 if wrong or not sources else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]).read_text().split(), sys.argv[4:]))
