#!/usr/bin/env python3
"""Runs the README's example and compares what it prints with what the README says it prints.

    run.py PAGE PROGRAM [ARGUMENT...]
"""
import difflib
import re
import subprocess
import sys
from pathlib import Path

page, *command = sys.argv[1:]
promised = re.search(r"^```text\n(.*?)^```$", Path(page).read_text(), re.M | re.S)
printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
expected = promised.group(1) if promised else ""
if printed != expected:
    sys.stdout.writelines(difflib.unified_diff(expected.splitlines(True), printed.splitlines(True), page, command[0]))
    sys.exit(1)
