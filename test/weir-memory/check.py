#!/usr/bin/env python3
"""Runs weir-memory on small traces that can be counted by hand.

    check.py PROGRAM
"""
import gzip
import pickle
import pty
import os
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = Path(__file__).resolve().parents[2] / "include/weir/version.hpp"
program = str(Path(sys.argv[1]).resolve())  # some of what follows runs it in another folder
folder = Path(tempfile.mkdtemp())
failed = 0
MIB = 1 << 20
HEADER = "Thread,Time,Action,Pointer,Size,Stream,Tag\n"
LOG = HEADER + "".join([
    f"1,10:00:00.000000,allocate,0x1000000,{MIB},0x7f,weights\n",
    f"1,10:00:00.000500,allocate,0x2000000,{2 * MIB},0x7f,kv\n",
    f"2,10:00:00.001000,allocate,0x4000000,{MIB},0x80,kv\n",
    f"2,10:00:00.001500,allocate failure,0x0,{64 * MIB},0x80,kv\n",
    f"1,10:00:00.002000,free,0x2000000,{2 * MIB},0x7f,\n",
    f"1,10:00:00.003000,allocate,0x2000000,{MIB // 2},0x7f,\n",
])


def file(name, data):
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return str(path)


def run(*arguments, given=b""):
    return subprocess.run([program, *arguments], capture_output=True, input=given)


def expect(what, is_true, seen=""):
    global failed
    if not is_true:
        failed += 1
        print(f"FAILED: {what}\n{ascii(seen)[:2000]}")


def check(what, status, says, *arguments, given=b""):
    """`says`: parts of what is printed, all of which must be safe to print."""
    done = run(*arguments, given=given)
    shown = (done.stdout + done.stderr).decode(errors="replace")
    is_safe = shown.replace("\n", "").isprintable()
    missing = [part for part in says if part not in shown]
    expect(f"{what}: exit status {done.returncode} for {status}, missing {missing}, safe {is_safe}",
           done.returncode == status and not missing and is_safe, shown)
    return shown


log = file("a.csv", LOG)
check("a summary", 0, ["peak in use         4.00 MiB (4194304 B) at event 3, after 1.00 ms", "events              6 in 3.00 ms, 2 streams, 2 threads, 2 tags",
                       "in use at the end   2.50 MiB (2621440 B) in 3 blocks", "allocations         4, the largest of 2.00 MiB", "out of memory       1 time\n",
                       "kv                                3.00 MiB     75.0 %  2 blocks", "weights                           1.00 MiB     25.0 %  1 block"],
      "summary", log)
check("of the standard input", 0, ["standard input", "4.00 MiB"], "summary", "-", given=LOG.encode())
if b"libz" in subprocess.run(["ldd", program], capture_output=True).stdout:
    check("of a gzip-ed file", 0, ["4.00 MiB"], "summary", file("b.csv.gz", gzip.compress(LOG.encode())))

# One format into each other, and back to the same.
for to in ("json", "torch", "csv"):
    made = str(folder / f"made.{to}")
    check(f"to {to}", 0, [], "convert", log, "--to", to, "-o", made)
    check(f"from {to}", 0, ["peak in use         4.00 MiB (4194304 B)", "in use at the end   2.50 MiB"], "summary", made)
expect("a log is written to the standard output", run("convert", log, "--to", "csv").stdout.startswith(b"Thread,Time,"))
snapshot = pickle.loads((folder / "made.torch").read_bytes())
expect("Python reads the snapshot", sum(e["action"] == "alloc" for e in snapshot["device_traces"][0]) == 4, str(snapshot))

# What a pool was refused, and did without, is no refusal of the program's.
lines = ['{"weir_trace":1,"began":0,"lost":0,"layers":["top","below"]}']
for at, (action, layer, address, size) in enumerate([("out_of_memory", "below", 0, 8192), ("grow", "below", 4096, 4096),
                                                     ("allocate", "top", 4096, 2048), ("out_of_memory", "top", 0, 16384)]):
    lines.append(f'{{"ns":{at},"action":"{action}","layer":"{layer}","device":0,"address":"{address:#x}","bytes":{size},'
                 '"stream":"0x1","thread":1}')
check("a refusal below a pool", 0, ["out of memory       1 time\n"], "summary", file("below.json", "\n".join(lines) + "\n"))

# What is read is not written over.
kept = file("kept.csv", LOG)
for given in (("convert", kept, "--to", "json", "-o", kept), ("page", kept, "-o", str(folder / "." / "kept.csv"))):
    check("an output that is the input", 2, ["is what is read; name another file with --output"], *given)
os.environ["WEIR_LOG_FILE"] = kept
for stack in (f"async | pool | logging({kept})", f"async | logging( path = {kept}, mode=0600) | pool",
              f"async | logging(buffer=1MiB,path={kept})", f"async | logging (\t{kept}\n)", "async | logging"):
    check("a log that is there", 2, ["the stack's logging would empty", "leave logging out of --stack"],
          "replay", kept, "--smallest", "--stack", stack)
del os.environ["WEIR_LOG_FILE"]
expect("what was read is as it was", Path(kept).read_text() == LOG)
check("a log that is new", 0, ["smallest device"], "replay", kept, "--smallest", "--stack", f"async | pool | logging({folder / 'new.csv'})")

more = file("c.csv", LOG + f"1,10:00:01.000000,allocate,0x9000000,{4 * MIB},0x7f,new\n")
check("a comparison", 0, ["peak in use", "+2.50 MiB (+62.5 %)", "new", "-2.00 MiB"], "compare", log, more)

for command in (("convert", log, "--to", "csv"), ("page", log)):
    printed = subprocess.run([program, *command, "--output", "-"], capture_output=True, cwd=folder)
    expect(f"{command[0]} writes to the standard output", printed.returncode == 0 and not (folder / "-").exists()
           and printed.stdout.startswith((b"Thread,Time,", b"<!doctype html>")) and printed.stdout.endswith((b"\n", b"</html>\n")), printed)

page = str(folder / "memory.html")
check("a page", 0, [page], "page", log, more, "--output", page)
written = Path(page).read_text()
expect("with both runs", '"name":"a.csv"' in written and '"name":"c.csv"' in written, written[-3000:])

# What PyTorch wrote has its segments: those of the end, and when they came and went.
def block(size, state):
    return {"size": size, "requested_size": size, "state": state, "frames": []}
def event(action, address, size, at):
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": at, "frames": []}
torch = {"segments": [{"device": 0, "address": 0x1000000, "total_size": 4 * MIB, "stream": 0, "is_expandable": False, "frames": [],
                       "blocks": [block(MIB, "active_allocated"), block(MIB, "active_pending_free"), block(2 * MIB, "inactive")]}],
         "device_traces": [[event("segment_alloc", 0x1000000, 4 * MIB, 1), event("alloc", 0x1000000, MIB, 2),
                            event("segment_alloc", 0x8000000, 2 * MIB, 3), event("segment_free", 0x8000000, 2 * MIB, 4),
                            {"action": "oom", "device_free": 5, "size": 64 * MIB, "stream": 0, "time_us": 5, "frames": []}]]}
torch = file("torch.pickle", pickle.dumps(torch))
check("a snapshot of PyTorch", 0, ["peak in use         1.00 MiB", "out of memory       1 time\n"], "summary", torch)
check("as a page", 0, [page], "page", torch, "-o", page)
written = Path(page).read_text()
expect("with its segments", f'"mapped":[[0,{4 * MIB},1,6]]' in written and f',{2 * MIB},3,4]' in written and '"hasEnd":true' in written, written[-3000:])
expect("and what is pending", f'"bytes":[{MIB},{MIB}]' in written, written[-3000:])
check("and on to another one", 0, [], "convert", torch, "--to", "torch", "-o", str(folder / "again.pickle"))
again = pickle.loads((folder / "again.pickle").read_bytes())
expect("which has them too", [s["total_size"] for s in again["segments"]] == [4 * MIB], str(again["segments"]))

# weir's extension shows PyTorch each live block as a segment; earlier blocks lay across them.
across = {"segments": [{"device": 0, "address": 0x1080000, "total_size": 512, "stream": 0, "frames": [],
                        "blocks": [block(512, "active_allocated")]}],
          "device_traces": [[event(action, address, size, 1) for action, address, size in [
              ("alloc", 0x1000000, MIB), ("free_requested", 0x1000000, MIB), ("free_completed", 0x1000000, MIB), ("alloc", 0x1080000, 512)]]]}
check("a snapshot of blocks alone", 0, [], "convert", file("across.pickle", pickle.dumps(across)), "--to", "torch", "-o", str(folder / "again.pickle"))
check("keeps all events", 0, ["peak in use         1.00 MiB", "allocations         2, "], "summary", str(folder / "again.pickle"))

# What PyTorch's viewer would stop at is left out, and counted.
twice = file("twice.csv", LOG + f"1,10:00:00.004000,free,0x2000000,{2 * MIB},0x7f,\n")
check("a wrong free", 0, ["weir-memory: left out 1 event at which PyTorch's viewer would stop"],
      "convert", twice, "--to", "torch", "-o", str(folder / "again.pickle"))

# Two devices at the same time, each on its default stream.
def life(address, begin, end):
    return [event("alloc", address, MIB, begin), event("free_requested", address, MIB, end), event("free_completed", address, MIB, end)]
two = file("two.pickle", pickle.dumps({"segments": [], "device_traces": [life(0x1000000, 1, 5), life(0x9000000, 2, 4)]}))
check("a snapshot of two devices", 0, ["peak in use         2.00 MiB (2097152 B) at event 2", "2 streams"], "summary", two)
# One stream, whose requests a second stack of host memory served too.
lines = ['{"weir_trace":1,"layers":["top"]}'] + [
    f'{{"action":"allocate","device":{device},"address":"{at:#x}","bytes":1,"stream":"{stream}"}}'
    for at, device, stream in ((1, 0, "0x7f0"), (2, "null", "0x7f0"), (3, 0, "0x1"), (4, "null", "0x1"))]
check("streams of two kinds of memory", 0, ["2 streams"], "summary", file("kinds.json", "\n".join(lines) + "\n"))

check("a replay", 0, ["4 blocks, peak in use 4.00 MiB", "async | pool\n    held ", "CUDA calls"], "replay", log)
check("on stacks of one's own", 0, ["device\n    held 4.00 MiB, 1.000 of the peak; ", "smallest device 4.00 MiB"], "replay", log, "--stack", "device", "--smallest")
check("whose limit is a part of the device", 0, ["held 4.00 MiB", "smallest device 8.00 MiB"], "replay", log, "--stack", "device | limit(50%)", "--smallest")
check("that is out of memory", 1, ["out of memory at event 3 of 6", "refused by limit"], "replay", log, "--stack", "device | limit(3MiB)")
check("on a device that is too small", 1, ["out of memory at event 3 of 6"], "replay", log, "-s", "device", "-d", "3MiB")
check("with no first memory", 1, ["out of memory at event 0"], "replay", log, "-s", "device | pool(initial=1GiB)", "-d", "1MiB")

check("--help", 0, ["weir-memory COMMAND", "replay TRACE"], "--help")
check("--version", 0, ["weir-memory ", next(line.split('"')[1] for line in VERSION.read_text().splitlines() if "VERSION_STRING" in line)],
      "--version")
check("no command", 2, ["no command; there are summary"])
check("an unknown command", 2, ["no command 'x\\x1b'"], "x\x1b")
check("an unknown option", 2, ["--frob", "--help says"], "summary", "--frob")
check("an option of another command", 2, ["summary does not take --output"], "summary", log, "-o", "x")
check("the same", 2, ["convert does not take --smallest"], "convert", log, "--to", "csv", "--smallest")
check("no trace", 2, ["summary needs a trace"], "summary")
check("too few traces", 2, ["compare needs 2 traces"], "compare", log)
check("too many", 2, ["page takes at most 2"], "page", log, log, log)
check("the standard input twice", 2, ["the standard input, '-', can be read only once"], "compare", "-", "-", given=LOG.encode())
check("no format", 2, ["convert needs --to"], "convert", log)
check("a wrong format", 2, ["--to is 'xml'; it can be csv, json or torch"], "convert", log, "--to", "xml")
check("a wrong size", 2, ["'12QB' is no number above 0"], "replay", log, "-d", "12QB")
check("one that no memory has", 2, ["'8388608TiB' is no number above 0 of bytes that can be addressed"], "replay", log, "-d", "8388608TiB")
check("a wrong stack", 2, ["no source is called 'x'"], "replay", log, "-s", "x")
check("a missing file", 2, ["none.csv: cannot be opened: No such file"], "summary", str(folder / "none.csv"))
check("a page that cannot be written", 2, ["No such file"], "page", log, "-o", "/nowhere/x.html")
for what in (["summary", log], ["compare", log, more], ["convert", log, "--to", "json"], ["replay", log], ["page", log, "-o", page], ["--help"]):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([program, *what], stdout=full, stderr=subprocess.PIPE)
    expect(f"{what[0]} on a full disk: exit status {done.returncode}",
           done.returncode == 2 and b"standard output: No space left on device" in done.stderr, done.stderr)
check("a damaged line", 2, ["d.csv:8: "], "summary", file("d.csv", LOG + "1,now,free\n"))
check("a damaged snapshot", 2, ["made.torch: byte "], "summary", file("made.torch", (folder / "made.torch").read_bytes()[:-9]))
check("no trace at all", 2, ["e.csv:1: is neither"], "summary", file("e.csv", "x\x1b[2J\n"))
check("more than is read", 2, ["more than the 100 bytes"], "summary", log, "--max-bytes", "100")
check("names do not steer the terminal", 0, ["\\x1b[2J"], "summary", file("\x1b[2J.csv", LOG.replace("weights", "\x1b[2J")))

# On a terminal a long replay says how far it is; elsewhere it says nothing.
long = HEADER + "".join(f"1,10:00:00.000000,{what},0x1000000,{MIB},0x7f,\n" for _ in range(200_000) for what in ("allocate", "free"))
long = file("long.csv", long)
expect("nothing on what is no terminal", run("replay", long).stderr == b"")
ours, theirs = pty.openpty()
child = subprocess.Popen([program, "replay", long, "-s", "async"], stdout=subprocess.DEVNULL, stderr=theirs)
os.close(theirs)
said = b""
try:
    while part := os.read(ours, 4096):
        said += part
except OSError:  # the other end is closed
    pass
child.wait()
expect("how far it is, on a terminal, and a clean line at the end", said == b"" or (b"replaying on async: " in said and said.endswith(b"\r\x1b[K")), said)

print("all as expected" if not failed else f"{failed} failed")
sys.exit(1 if failed else 0)
