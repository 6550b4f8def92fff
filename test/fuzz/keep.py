#!/usr/bin/env python3
"""Puts the inputs that reach the most into a corpus.

    keep.py CONTROL_FILE CORPUS MOST    CONTROL_FILE: what libFuzzer's -merge_control_file wrote

Takes, again and again, the input with the most that no other has reached yet (the smallest of equal ones), until
MOST are there. Files of the corpus whose names begin with `regression` stay, beyond that number.
"""
import hashlib
import sys
from pathlib import Path


def main(control_file, corpus, most):
    lines = Path(control_file).read_text().splitlines()
    count, first = int(lines[0]), int(lines[1])
    names = lines[2 : 2 + count]
    assert first <= count
    reached = {}
    for line in lines[2 + count :]:
        kind, number, *features = line.split()
        if kind == "FT":
            reached[names[int(number)]] = set(features)
    contents = {name: Path(name).read_bytes() for name in reached}
    chosen, known = [], set()
    while len(chosen) < most:
        best = max(reached, key=lambda n: (len(reached[n] - known), -len(contents[n]), n), default=None)
        if best is None or not reached[best] - known:
            break
        known |= reached.pop(best)
        chosen.append(contents[best])
    corpus = Path(corpus)
    corpus.mkdir(parents=True, exist_ok=True)
    for old in corpus.iterdir():
        if not old.name.startswith("regression"):
            old.unlink()
    for content in chosen:
        (corpus / hashlib.sha1(content).hexdigest()[:12]).write_bytes(content)
    everything = set().union(known, *reached.values())
    print(f"{corpus}: {len(chosen)} files, {sum(map(len, chosen))} B; {len(known)} of {len(everything)} ways")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
