#!/usr/bin/env python3
"""Shows that each oracle is alive and needed: with all of them four bugs are caught, without any one of them one is not.

    oracles.py
    --compiler clang++     --include FOLDER

The oracles: the clocks of `sim::check_order`, the contents of blocks, the address sanitizer on the simulated runtime's
memory, and the thread sanitizer, to which its streams are threads. That one needs a program of its own.
"""
import argparse
import concurrent.futures
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bugs import BUGS, LIMIT, POOL_MEMORY, SEGMENTS, Bug
from run import Bench, Stale

ORACLES = ["clock", "contents", "address", "streams"]
ADDRESS, THREAD = ("address,undefined", False), ("thread", False)
# The oracle that alone sees it, and the bug.
ONLY = [
    # cudaFree waits for the device, so that nothing is overwritten: but nobody promises that.
    ("clock", Bug(0, "segments go back at the end without waiting",
                  [(POOL_MEMORY, "    synchronize();\n    tenant_.stop_giving();", "    tenant_.stop_giving();"),
                   (SEGMENTS, "bool const stays = heap.is_pending(s.first);", "bool const stays = false;")], "mutants/oracles")),
    # All in order, in one stream, in live memory of one segment.
    ("contents", Bug(0, "a limit asks for half of what it was asked for",
                     [(LIMIT, "    void* const p = this->pass(stream, bytes, alignment, [&] { credit(charge); });",
                       "    void* const p = this->pass(stream, bytes / 2, alignment, [&] { credit(charge); });"),
                      (LIMIT, "    this->give(stream, p, bytes, alignment, others);\n"
                       "    if (detail::last_call.what != detail::call_note::plain) [[unlikely]]",
                       "    this->give(stream, p, bytes / 2, alignment, others);\n"
                       "    if (detail::last_call.what != detail::call_note::plain) [[unlikely]]")],
                     "mutants/oracles")),
    # Read by work that the simulated runtime does not know, and compared with nothing.
    ("address", Bug(0, "a source takes no room for a large alignment",
                    [("sources/shifted_blocks.hpp", "take(padded_or_zero(bytes, alignment));", "take(bytes);")],
                    "mutants/oracles")),
    # In live memory that only host functions use, whose order comes out right.
    ("streams", Bug(0, BUGS[0].what, BUGS[0].edits, "mutants/oracles")),
]
NO_BUG = Bug(0, "no bug", [], "mutants/oracles")


def fails(program, oracles):
    off = "" if "address" in oracles else ":poison_heap=0:allow_user_poisoning=0"
    environment = dict(os.environ, ASAN_OPTIONS="detect_leaks=0" + off)
    return subprocess.run([str(program), *oracles], env=environment, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, timeout=120).returncode != 0


def caught(programs, bug, oracles):
    if "streams" in oracles and fails(programs[bug.what, THREAD], []):
        return True
    return fails(programs[bug.what, ADDRESS], [o for o in oracles if o != "streams"])


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--compiler", default="clang++")
    arguments.add_argument("--include", action="append", default=[])
    options = arguments.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder)
        bench.prepare({ADDRESS, THREAD}, 2)
        programs = {}

        def build(bug, kind):
            name = Path(folder) / f"{bug.what.replace(' ', '_')}.{kind[0]}"
            bench.build([bug], bug.test, name, *kind)
            programs[bug.what, kind] = name

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            builds = [pool.submit(build, bug, kind) for bug in [NO_BUG, *(bug for _, bug in ONLY)] for kind in (ADDRESS, THREAD)]
        try:
            for each in builds:
                each.result()
        except Stale as why:
            print(f"STALE    {why}")
            return 1
        if caught(programs, NO_BUG, ORACLES):
            print("FAILS    without a bug, with all oracles")
            wrong += 1
        for alone, bug in ONLY:
            seen_by = [o for o in ORACLES if caught(programs, bug, [o])]
            without = caught(programs, bug, [o for o in ORACLES if o != alone])
            good = caught(programs, bug, ORACLES) and seen_by == [alone] and not without
            print(f"{'as it should be' if good else 'WRONG'}: {bug.what}: seen by {', '.join(seen_by) or 'none'}")
            wrong += not good
    print(f"{wrong} wrong" if wrong else f"each of {len(ORACLES)} oracles has a bug that only it sees")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
