#!/usr/bin/env python3
"""What including a header costs: `g++ -fsyntax-only`, best of five, in seconds, as JSON.

    include_cost.py INCLUDE_DIR... [-- EXTRA_HEADER...]
"""
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

HEADERS = ["cuda_runtime_api.h", "weir/adaptors/pool.hpp", "weir/weir.hpp"]


def seconds_of_cpu(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(arguments):
    folders = arguments[: arguments.index("--")] if "--" in arguments else arguments
    extra = arguments[arguments.index("--") + 1 :] if "--" in arguments else []
    costs = {}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "one.cpp"
        flags = ["g++", "-std=c++20", "-O2", "-fsyntax-only"]
        for include in folders:
            if include in ("", "/usr/include"):
                continue
            flags += ["-I" if "weir" in include or include.endswith("/include") else "-isystem", include]
        for header in HEADERS + extra:
            source.write_text(f"#include <{header}>\n")
            try:
                costs[header] = min(seconds_of_cpu(flags + [str(source)]) for _ in range(5))
            except subprocess.CalledProcessError as failure:
                costs[header] = None
                print(f"{header}: {failure.stderr.decode().splitlines()[0]}", file=sys.stderr)
    print(json.dumps(costs, indent=2))


main(sys.argv[1:])
