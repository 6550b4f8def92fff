#!/usr/bin/env python3
"""Compiles every public header of the library as C++17: the first error, and the only one before the compiler stops,
must say that weir needs C++20. Without exceptions and with an older CUDA, where they all stop at the same place, one of
them says so.

    cxx17.py COMPILER ROOT INCLUDE_DIR...    ROOT: the repository; INCLUDE_DIR: of the CUDA Toolkit
"""
import subprocess
import sys
import tempfile
from pathlib import Path

NEEDS_CXX20 = "weir needs C++20: compile with -std=c++20"
NEEDS_EXCEPTIONS = "weir needs exceptions: compile without -fno-exceptions"
NEEDS_CUDA = "weir needs CUDA 12.2 or newer"
OLD_CUDA = "#include_next <cuda_runtime_api.h>\n#undef CUDART_VERSION\n#define CUDART_VERSION 11080\n"
SIM_PUBLIC = {"sim.hpp", "order.hpp"}  # the other headers of the simulated runtime are its own


def public_headers(include):
    for path in sorted((include / "weir").rglob("*.hpp")):
        if path.parent.name != "sim" or path.name in SIM_PUBLIC:
            yield str(path.relative_to(include))


def errors(compiler, flags, header):
    with tempfile.NamedTemporaryFile("w", suffix=".cpp") as source:
        source.write(f"#include <{header}>\n")
        source.flush()
        done = subprocess.run([compiler, "-fsyntax-only", *flags, source.name],
                              capture_output=True, text=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"})
    return [line for line in done.stderr.splitlines() if " error: " in line]


def main(compiler, root, folders):
    include = Path(root) / "include"
    headers = list(public_headers(include))
    flags = ["-I", str(include)] + [flag for folder in folders for flag in ("-isystem", folder)]
    wrong = 0
    asked = [(header, ["-std=c++17"], NEEDS_CXX20) for header in headers]
    asked.append(("weir/weir.hpp", ["-std=c++20", "-fno-exceptions"], NEEDS_EXCEPTIONS))
    with tempfile.TemporaryDirectory() as older:
        (Path(older) / "cuda_runtime_api.h").write_text(OLD_CUDA)
        asked.append(("weir/weir.hpp", ["-std=c++20", "-I", older], NEEDS_CUDA))
        said_of = [errors(compiler, flags + way, header) for header, way, _ in asked]
    for (header, way, says), said in zip(asked, said_of):
        if len(said) != 2 or says not in said[0] or "fatal" not in said[1]:
            wrong += 1
            print(f"{header}: expected one error with `{says}` and a stop, got {len(said)}:", *said[:3], sep="\n  ")
    print(f"{len(headers)} headers, {wrong} wrong")
    return 1 if wrong or len(headers) < 10 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
