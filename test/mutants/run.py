#!/usr/bin/env python3
"""Puts known bugs into copies of weir's headers, one at a time, and says which of them the random programs catch.

    run.py [--only TEXT] [--operations N] [--compiler g++]

Each line: caught or MISSED, after how many operations, by what words, and the bug. Exit status 1 if any is missed.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLOCK = "cuda/stream_clock.hpp"
LEDGER = "blocks/stream_ledger.hpp"
STORE = "blocks/block_store.hpp"
LANES = "blocks/free_lanes.hpp"
REUSE = "adaptors/pool_reuse.hpp"
SEGMENTS = "adaptors/segment_pool.hpp"

# What is wrong, the header, the text that is right, the text that is not.
MUTANTS = [
    ("a stream takes another one's block without waiting", CLOCK,
     "!succeeded(cudaStreamWaitEvent(stream.get(), behind->event, 0))", "false"),
    ("the wait is put on the stream that freed", CLOCK,
     "cudaStreamWaitEvent(stream.get(), behind", "cudaStreamWaitEvent(streams_[giver].handle, behind"),
    ("neighbours of several streams merge and only the last is waited for", REUSE,
     "joined = joined && (whose == shared || clock_.join(lane, stream, whose, store_.ticket(id)));",
     "joined = whose == shared || id != found.first || clock_.join(lane, stream, whose, store_.ticket(id));"),
    ("neighbours merge whoever freed them, without waiting", REUSE,
     "return whose == shared || clock_.available(lane, whose, store_.ticket(id));", "return whose != 0xffff;"),
    ("an event stands for the free after it too", LEDGER,
     "e.upto = l.covered = l.issued;", "e.upto = l.covered = l.issued + 1;"),
    ("the oldest event is taken, whatever it stands behind", LEDGER,
     "if (e.upto < t) continue;", "if (e.upto == 0) continue;"),
    ("a query's answer is the wrong way round", CLOCK,
     "return succeeded(cudaEventQuery(event));", "return !succeeded(cudaEventQuery(event));"),
    ("not ready counts as done", CLOCK,
     "return succeeded(cudaEventQuery(event));", "return succeeded(cudaEventQuery(event)) || true;"),
    ("streams are known by their handles", CLOCK,
     "cudaError_t const code = cudaStreamGetId(handle, &id);",
     "cudaError_t const code = cudaSuccess; id = reinterpret_cast<std::uintptr_t>(handle);"),
    ("all streams that may end have one number", CLOCK,
     "key = static_cast<std::uint64_t>(id) << kind_bits | mortal_kind;", "key = 1 << kind_bits | mortal_kind;"),
    ("the per-thread default stream is taken for the legacy one", CLOCK,
     "key = running_thread::this_number() << kind_bits | per_thread_kind;", "key = legacy_key;"),
    ("what was waited for once is known for ever", LEDGER,
     "if (k.giver == giver) return t <= k.upto;", "if (k.giver == giver) return true;"),
    ("a new stream inherits what the lane's last one waited for", LEDGER,
     "for (auto& k : l.knows) k = {};", ""),
    ("recorded counts as done", LEDGER,
     "t <= lanes_[giver].completed", "t <= lanes_[giver].covered"),
    ("a lane's blocks are all done when one is", LANES,
     "return id != 0 && this->ticket(id) <= ticket ? id : 0;", "return ticket != 0 ? id : 0;"),
    ("a segment goes back though its work is not done", STORE,
     "return b.is_free() && b.lane == shared && is_whole(segment);", "return b.is_free() && is_whole(segment);"),
    ("a segment goes back with a live block at its end", STORE,
     "return b.is_free() && b.lane == shared && is_whole(segment);", "return b.is_free() && b.lane == shared;"),
    ("segments go back at the end without waiting", SEGMENTS,
     "    release_captured(0);\n    synchronize();", "    release_captured(0);"),
    ("a block is cut 256 B too short", STORE,
     "table_.split(id, wanted);", "table_.split(id, wanted - (wanted > 1));"),
    ("what an aligned block leaves behind it is anyone's", LANES,
     "blocks_[end].set_free(lane);", "blocks_[end].set_free(shared);"),
    ("a block 256 B too small will do", "blocks/free_index.hpp",
     "if (has > size && (best", "if (has + 1 >= size && (best"),
    ("a free in host order is taken for one of the legacy stream", CLOCK,
     "if (stream.is_host_order()) return 0;", "if (stream.is_host_order()) return legacy_key;"),
    ("memory in host order is not waited for", "sources/async.hpp",
     "detail::relaxed([order] { return cudaStreamSynchronize(order); });", "cudaSuccess;"),
    ("pinned memory is freed while its stream works", "sources/common.hpp",
     "if (!stream.is_host_order() && !wait_for(stream, device_)) return;", ""),
]


def run(command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **more)


def must(command, **more):
    result = run(command, **more)
    if result.returncode != 0:
        sys.exit(" ".join(map(str, command)) + "\n" + result.stdout)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--only", default="", help="bugs whose words have this in them")
    arguments.add_argument("--operations", default="1000000", help="operations to find each bug in")
    arguments.add_argument("--compiler", default="g++")
    options = arguments.parse_args()
    cuda = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"
    compiler = [options.compiler, "-std=c++20", "-O1", "-isystem", str(cuda), f"-I{ROOT / 'test'}"]
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        objects = []
        for source in [*sorted((ROOT / "include/weir/sim").glob("*.cpp")), ROOT / "test/support/main.cpp"]:
            objects.append(Path(folder) / (source.stem + ".o"))
            must([*compiler, f"-I{ROOT / 'include'}", "-c", str(source), "-o", str(objects[-1])])
        for what, header, right, wrong in [("(no bug)", CLOCK, "", ""), *MUTANTS]:
            if options.only not in what:
                continue
            headers = Path(folder) / "include"
            shutil.rmtree(headers, ignore_errors=True)
            shutil.copytree(ROOT / "include", headers)
            text = (headers / "weir" / header).read_text()
            if right and text.count(right) != 1:
                print(f"STALE    {what}: {header} has its place {text.count(right)} times; mend the list", flush=True)
                missed += 1
                continue
            (headers / "weir" / header).write_text(text.replace(right, wrong) if right else text)
            program = Path(folder) / "random_stacks"
            must([*compiler, f"-I{headers}", str(ROOT / "test/laws/random_stacks.cpp"), *map(str, objects), "-lpthread", "-o",
                  str(program)])
            environment = dict(os.environ, WEIR_SOAK_OPERATIONS=options.operations, WEIR_SOAK_SHRINK="0")
            try:
                result = run([str(program)], env=environment, timeout=120)
                failed, output = result.returncode != 0, result.stdout
            except subprocess.TimeoutExpired:
                failed, output = True, "it does not end"
            found = re.search(r"found after (\d+) operations.*?\n?.*?: (.*)", output)
            words = found.group(2)[:150] if found else output.strip()[-100:].replace("\n", " ")
            after = found.group(1) if found else "?"
            if what == "(no bug)":
                print(("clean    " if not failed else "NOT CLEAN ") + what, flush=True)
                missed += failed
            elif failed:
                print(f"caught   after {after:>7}: {what}\n           {words}", flush=True)
            else:
                print(f"MISSED   {what}", flush=True)
                missed += 1
    print(f"{missed} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
