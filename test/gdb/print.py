#!/usr/bin/env python3
"""Runs gdb with weir's pretty-printers on a program that stops with stacks in it, and compares what `print` shows.

    print.py PRINTERS PROGRAM      exit status 77, with the reason, where there is no gdb or it may not trace programs
"""
import re
import shutil
import subprocess
import sys
from pathlib import Path

SHOWN = {
    "memory": r"""weir: limit > statistics > pool > async
  limit +32.00 MiB, 4.00 MiB charged, 28.00 MiB left; peak 4.00 MiB, 0 refused
  statistics +4.00 MiB requested in 1 live allocations; peak 4.00 MiB, 0 failures
  pool +64.00 MiB reserved = 4.00 MiB allocated \(4.00 MiB requested\) \+ 60.00 MiB free, pending or captured; 0 refused
  async +device 0""",
    "arenas": r"""weir: arena > device
  arena +1 arenas: [0-9.]+ MiB reserved = 3.00 KiB allocated \(2.93 KiB requested\) \+ [0-9.]+ MiB free, .*; 0 refused
  device +device 0""",
    "blocks": r"""weir: fixed_size > host
  fixed_size blocks of 4.00 KiB; [0-9.]+ MiB reserved = 4.00 KiB allocated \(100 B requested\) \+ .*; 0 refused""",
    "bins": r"""weir: binning > pool > host
  binning +3 bins for up to 1.00 KiB
  pool +0 B reserved = 0 B allocated \(0 B requested\) \+ 0 B free, pending or captured; 0 refused""",
    "own": r"""weir: statistics > plain_resource > limit > host
  statistics +0 B requested in 0 live allocations; peak 0 B, 0 failures
  limit +1.00 MiB, 0 B charged, 1.00 MiB left; peak 0 B, 0 refused""",
    "guarded": r"""weir: tracking > scrub > aligned > on_failure > wait_for_memory > device
  tracking +4.88 KiB requested in 1 live allocations; peak 4.88 KiB, 0 failures
  device +device 0""",
    "two": r"""weir: fallback > prefetch > managed
  fallback +then pool > host
  managed +device 0""",
    "three": r"""weir: trace > fallback > device
  fallback +then fallback \(then pool > pinned\) > managed
  device +device 0""",
    "paged": r"""weir: system
  system +device 0""",
    "theirs": r"""weir: callback
  callback +device 0""",
    "on_host": r"""weir: pool > (async_)?managed
  pool +0 B reserved .*
  (async_)?managed +device 0""",
    "handle": r"""weir: limit > statistics > pool > async
  limit +32.00 MiB, 4.00 MiB charged, .*(\n.*)*
  async +device 0""",
    "any_handle": r"""weir: limit > statistics > pool > async
  limit +32.00 MiB, 4.00 MiB charged, .*(\n.*)*
  async +device 0""",
    "of_erased": r"""weir: limit > device
  limit +3.00 MiB, 0 B charged, 3.00 MiB left; peak 0 B, 0 refused
  device +device 0""",
    "parsed": r"""weir: pool > shared: limit > virtual_memory
  pool +0 B reserved .*
  shared: limit 8.00 MiB, 0 B charged, 8.00 MiB left; peak 0 B, 0 refused
  virtual_memory device 0""",
    "left": r"""weir: no stack""",
    "taken": r"""weir: device
  device +device 0""",
    "erased": r"""weir: limit > device
  limit +3.00 MiB, 0 B charged, 3.00 MiB left; peak 0 B, 0 refused
  device +device 0""",
}


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def main(printers, program):
    if not shutil.which("gdb"):
        skip("the pretty-printers need gdb")
    commands = [f"source {printers}", "set width 0", "break stop_here", "run", "up"]
    for name in SHOWN:
        commands += [f"echo ---{name}\\n", f"output {name}", "echo \\n"]
    arguments = [argument for command in commands + ["echo ---\\n", "kill"] for argument in ("-ex", command)]
    done = subprocess.run(["gdb", "-nx", "--batch", *arguments, program], capture_output=True, text=True, timeout=250)
    said = done.stdout + done.stderr
    if re.search(r"ptrace|Could not trace|not permitted.*\n.*During startup", said) and "---memory" not in said.split("stop_here ()")[-1]:
        skip("gdb may not trace programs here")
    wrong = 0
    known = Path(printers).read_text()
    for header in (Path(printers).parents[2] / "include" / "weir").rglob("*.hpp"):
        for layer in re.findall(r'layer_name = "(\w+)"', header.read_text()):
            if f'"{layer}"' not in known:
                wrong += 1
                print(f"{layer}, a layer of {header.name}, has no line in {printers}")
    for name, expected in SHOWN.items():
        shown = re.search(rf"^---{name}\n(.*?)\n---", done.stdout, re.M | re.S)
        if not shown or not re.fullmatch(expected, shown.group(1)):
            wrong += 1
            print(f"{name} is shown as\n{shown.group(1) if shown else '(nothing)'}\nexpected\n{expected}")
    if wrong:
        print(done.stderr)
    print(f"{len(SHOWN)} stacks, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
