#!/usr/bin/env python3
"""Reads what `bench/run` measured; prints one table and the targets, and writes them and the plots beside the figures.

    table.py RESULTS_FOLDER [--strict]

Times are the median over repeats of nanoseconds an operation (one call of allocate or deallocate), the least in brackets.
Single-threaded work is timed by the processor's clock for the thread, so that other programs on the machine disturb it
less; threads by the clock on the wall, with the 99th percentile of single calls (of every 64th step, the clock's own cost
taken off, the mean over the threads). Exit status 1 with --strict if a target is missed.
"""
import csv
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

WEIR = "weir pool"
HERE = "weir@here"  # what `bench/run --against` measures beside `weir@COMMIT`
PLAIN = "weir pool, plain streams"
FLOOR = "floor (4 B a block, 50 instructions a call)"
RMM = "RMM pool"
# What the plot of waste shows, and what its stacks are called in the others.
PLOTTED = {"weir-pool": WEIR, "rmm-pool": RMM, "thrust-pool": "Thrust disjoint pool", "pytorch-model": "PyTorch's rules",
           "pytorch-expandable-model": "PyTorch's rules, expandable"}
# The columns of the page's tables, by peer and by what the replay calls a stack, and what their heads mean.
COLUMNS = {WEIR: "pool", PLAIN: "plain", "weir arena": "arena", "weir pool | binning": "bins", RMM: "RMM pool",
           "RMM arena": "RMM arena", "RMM binning over pool": "RMM bins", "CUB CachingDeviceAllocator": "CUB",
           "Thrust disjoint pool": "Thrust", "mimalloc (host memory)": "mimalloc", "jemalloc (host memory)": "jemalloc",
           FLOOR: "floor"}
REPLAYED = {"weir-pool": "pool", "weir-arena": "arena", "weir-pool-binning": "bins", "rmm-pool": "RMM pool",
            "rmm-binning": "RMM bins", "thrust-pool": "Thrust", "pytorch-model": "PyTorch",
            "pytorch-expandable-model": "expandable"}
KEY = """Columns: `pool`, `arena` and `bins` (over the pool) are weir's, `plain` is its pool on plain streams; `RMM bins`
stand over its pool; `CUB` is `CachingDeviceAllocator`, `Thrust` the disjoint pool; `mimalloc` and `jemalloc` give host
memory; `floor` is no pool, but the least that one does: four bytes of each block, 50 instructions a call; `PyTorch` is
the model of its rules, `expandable` the same with expandable segments."""


class Figures:
    """What was measured of one workload with one peer."""

    def __init__(self):
        self.times = []
        self.calls = 0.0
        self.kinds = {}
        self.p99s = []  # of a call, of threads
        self.metadata = None  # host memory that bookkeeping takes, bytes a live block

    @property
    def median(self):
        return statistics.median(self.times)

    @property
    def least(self):
        return min(self.times)

    @property
    def p99(self):
        return statistics.median(self.p99s) if self.p99s else None


def read(path):
    """{workload: {peer: Figures}}, in the order of registration."""
    found = {}
    order = []
    for run in json.loads(path.read_text())["benchmarks"]:
        if run.get("run_type") == "aggregate" or run.get("error_occurred"):
            continue
        workload, peer = run["name"].split("/")[0].split("|", 1)
        order.append((run["family_index"], workload, peer))
        figures = found.setdefault((workload, peer), Figures())
        # For threads, Google Benchmark divides the time on the wall by the iterations of all of them.
        time = run["real_time"] if "/real_time" in run["name"] else run["cpu_time"]
        figures.times.append(time / run["operations"])
        figures.p99s += [run["p99"]] if "p99" in run else []
        figures.metadata = run.get("metadata")
        figures.calls = run["cuda_calls"]
        figures.kinds = {k.removeprefix("cuda: "): v for k, v in run.items() if k.startswith("cuda: ")}
    table = {}
    for _, workload, peer in sorted(set(order)):
        table.setdefault(workload, {})[peer] = found[workload, peer]
    return table


def number(x):
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}"


def lines_of(table):
    wide = max((len(w) for w in table), default=0)
    name = max((len(p) for peers in table.values() for p in peers), default=0)
    yield f"{'workload':<{wide}} {'allocator':<{name}} {'ns/op':>8} {'(least)':>9} {'x weir':>7} {'CUDA calls/op':>13}  which"
    for workload, peers in table.items():
        own = peers.get(WEIR)
        for i, (peer, f) in enumerate(peers.items()):
            ratio = f"{f.median / own.median:.2f}" if own else ""
            details = [f"p99 {number(f.p99)} ns"] if f.p99s else []
            details += [f"{f.metadata:.1f} B of host memory a live block"] if f.metadata else []
            kinds = ", ".join(details + [f"{k} {v:.2f}" for k, v in f.kinds.items() if v >= 0.005])
            yield (
                f"{workload if i == 0 else '':<{wide}} {peer:<{name}} {number(f.median):>8} {'(' + number(f.least) + ')':>9} "
                f"{ratio:>7} {f.calls:>13.3f}  {kinds}"
            ).rstrip()


def compared(table):
    """This pool beside another commit's, each from a library of its own; nothing where no other was measured."""
    others = {peer for peers in table.values() for peer in peers if peer.startswith("weir@")} - {HERE}
    for other in others:
        both = {w: (peers[other], peers[HERE]) for w, peers in table.items() if other in peers and HERE in peers}
        if not both:
            continue
        wide = max(len(w) for w in both)
        yield f"{HERE} beside {other}: below 1 is faster than there"
        yield f"{'workload':<{wide}} {other:>14} {HERE:>14} {'ratio':>7} {'of the least':>13}"
        for workload, (there, here) in both.items():
            yield (f"{workload:<{wide}} {number(there.median):>14} {number(here.median):>14} "
                   f"{here.median / there.median:>7.3f} {here.least / there.least:>13.3f}")
        mean = statistics.geometric_mean(here.median / there.median for there, here in both.values())
        least = statistics.geometric_mean(here.least / there.least for there, here in both.values())
        yield f"{'geometric mean':<{wide}} {'':>14} {'':>14} {mean:>7.3f} {least:>13.3f}"
        yield ""


def targets(table, include_costs):
    """(what, target, measured, met); met is None where it was not measured."""

    def time(workload, peer=WEIR):
        figures = table.get(workload, {}).get(peer)
        return figures.median if figures else None

    def at_most(what, measured, limit, unit, text=None):
        shown = "not measured" if measured is None else f"{measured:.2f} {unit}"
        return what, text or f"<= {limit:g} {unit}", shown, None if measured is None else measured <= limit

    def ratio(a, b):
        return None if a is None or b is None else a / b

    pair, live = "pair 4 KiB", "random <= 64 KiB, {} live".format
    yield at_most("allocate+free 4 KiB, one stream", time(pair), 20, "ns/op")
    yield at_most("  beside RMM's pool", ratio(time(pair), time(pair, RMM)), 0.5, "x")
    yield at_most("random <= 1 MiB, 1,000 live", time("random <= 1 MiB, 1000 live"), 50, "ns/op")
    yield at_most("random <= 64 KiB, 100,000 live", time(live(100000)), 60, "ns/op")
    yield at_most("  1,000,000 live beside 1,000", ratio(time(live(1000000)), time(live(1000))), 2, "x")
    several = "streams", "another", "thread"
    calls = [p[WEIR].calls for name, p in table.items() if WEIR in p and not any(word in name for word in several)]
    # Growth while a bench warms up shows as a few calls in millions.
    yield at_most("same-stream CUDA calls an operation", round(max(calls), 3) if calls else None, 0, "calls", "0 where the stream outlives the pool")
    for layer in "limit", "statistics":
        more = [time(w, f"weir pool | {layer}") - time(w) for w in ("pair 256 B", pair, "pair 1 MiB") if time(w, f"weir pool | {layer}")]
        yield at_most(f"  {layer} on top", statistics.median(more) if more else None, 5, "ns/op", "<= +5 ns/op")
    # The least of the repeats, here too.
    bare, seen = (table.get(pair, {}).get(peer) for peer in (WEIR, "weir pool | statistics(by_tag) | trace"))
    yield at_most("  statistics by tag and a trace on top", seen.least / bare.least if bare and seen else None, 2.5, "x")
    for peer in WEIR, "weir arena":
        for work in pair, "1000 live <= 64 KiB":
            # The least of the repeats: what other programs on the machine take away is no fault of the pool's.
            one, two = (table.get(f"{work}, {n}", {}).get(peer) for n in ("1 thread", "2 threads"))
            gain = one.least / two.least if one and two else None
            shown = "not measured" if gain is None else f"{gain:.2f} x"
            what = f"2 threads, a stream each, {peer}: {work}"
            yield what, ">= 1.7 x of 1 thread", shown, None if gain is None else gain >= 1.7
    # There they have no caches, and wait for each other.
    alone, both = (table.get(f"{pair}, {n}", {}).get(PLAIN) for n in ("1 thread", "2 threads"))
    yield at_most("2 threads on plain streams beside 1: pair 4 KiB", ratio(both and both.least, alone and alone.least), 2.5, "x")
    for count in 1000, 100000, 1000000:
        figures = table.get(live(count), {}).get(WEIR)
        yield at_most(f"host memory a live block, {count:,} live", figures.metadata if figures else None, 64, "B")
    yield at_most("g++ -fsyntax-only of weir/adaptors/pool.hpp", include_costs.get("weir/adaptors/pool.hpp"), 0.3, "s")


def replays(path):
    """{trace: {stack: row}} of what bench_replay wrote."""
    found = {}
    if path.exists():
        fields = "trace stack p50 p99 most peak reserved upstream calls least whole".split()
        for row in csv.DictReader(path.open(), fieldnames=fields):
            found.setdefault(row["trace"], {})[row["stack"]] = row
    return found


def held(row):
    """Peak reserved / peak requested."""
    return int(row["reserved"]) / int(row["peak"])


def short(trace):
    """A trace's name without its file's endings, and two that differ at the end as `a_1 .. 2`."""
    name = trace.replace(".csv", "").replace(".gz", "").replace(".pickle", "")
    first, dots, second = name.partition(" .. ")
    alike = os.path.commonprefix([first, second])
    return first + dots + second[alike.rfind("_") + 1:]


def memory_targets(traces):
    for trace, stacks in traces.items():
        row = stacks.get("weir-pool")
        if row is None or "gpt_medium_train" not in trace:
            continue
        limit = 1.10 if ".." in trace else 1.03
        beside = f" (PyTorch's rules: {held(stacks['pytorch-model']):.2f})" if "pytorch-model" in stacks else ""
        yield f"reserved / requested, {short(trace)}", f"<= {limit:.2f}{beside}", f"{held(row):.3f} x", held(row) <= limit


def markdown(table, traces):
    """The main workloads as tables for docs/performance.md, which wraps at 120 columns."""

    def row(cells):
        text = "| " + " | ".join(cells) + " |"
        return text if len(text) <= 120 else text.replace("| ", "|").replace(" |", "|")

    def rows(title, workloads, cell, columns=COLUMNS, name=lambda workload: workload):
        """Only the columns that have a figure for some of the workloads."""
        workloads = [w for w in workloads if w in table]
        peers = [p for p in columns if any(p in table[w] for w in workloads)]
        yield row([title, *(columns[p] for p in peers)])
        yield "|---|" + "---:|" * len(peers)
        for w in workloads:
            yield row([name(w), *(cell(table[w][p]) if p in table[w] else "" for p in peers)])
        yield ""

    def shorter(threads):
        return threads.replace("1000 live <= 64 KiB", "1000 live").replace(" on one stream", ", 1 stream")

    threaded = [w for w in table if "thread" in w]
    yield KEY
    yield ""
    yield from rows("ns/op", [w for w in table if w not in threaded], lambda f: number(f.median))
    yield from rows("CUDA calls/op", ["pair 4 KiB", "random <= 64 KiB, 1000 live, 8 streams",
                                      "allocated on one stream, freed on another"], lambda f: f"{f.calls:.2f}")
    for title, cell in (("threads, ns/op", lambda f: number(f.median)),
                        ("threads, the least", lambda f: number(f.least)),
                        ("p99 of a call, ns", lambda f: number(f.p99) if f.p99s else "")):
        yield from rows(title, threaded, cell, name=shorter)
    yield from rows("host memory a live block, B", [w for w in table if any(f.metadata for f in table[w].values())],
                    lambda f: f"{f.metadata:.1f}" if f.metadata else "", {p: COLUMNS[p] for p in (WEIR, PLAIN)})
    stacks = [s for s in REPLAYED if any(s in found for found in traces.values())]
    yield row(["reserved / requested", *(REPLAYED[s] for s in stacks)])
    yield "|---|" + "---:|" * len(stacks)
    for trace, found in traces.items():
        ran_whole = {s: f"{held(found[s]):.3f}" for s in stacks if s in found and found[s]["whole"] == "1"}
        yield row([short(trace), *(ran_whole.get(s, "") for s in stacks)])


def machine(context):
    try:
        model = next(line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor()
    count = subprocess.run(["nproc"], capture_output=True, text=True).stdout.strip()
    compiler = subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True).stdout.strip()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    changed = subprocess.run(["git", "status", "--porcelain", "include"], capture_output=True, text=True).stdout.strip()
    return (
        f"{model}, {count} cores, g++ {compiler} -O2, commit {commit or 'none'}{' with changes' if changed else ''}; "
        f"load average {context['load_avg'][0]:.1f} at the start; CUDA calls cost next to nothing here, so this is the host's part alone"
    )


def main(arguments):
    results = Path(arguments[0])
    table = read(results / "suite.json")
    costs = json.loads((results / "include_cost.json").read_text())
    context = json.loads((results / "suite.json").read_text())["context"]
    here = machine(context)
    out = [here, "", *lines_of(table), ""]
    out += ["include cost, g++ -fsyntax-only, best of five: " + ", ".join(f"{h} {s:.2f} s" for h, s in costs.items() if s), ""]
    out += compared(table)
    absent = [f"{key}: {why}" for key, why in context.items() if key.startswith("left out: ")]
    out += [*absent, ""] if absent else []
    out += ["Threads scale only as far as the machine has idle cores: read their rows beside the load average.", ""]
    missed = 0
    out += [f"{'target':<76} {'must be':<36} {'is':>14}"]
    traces = replays(results / "replay.csv")
    for what, must, measured, met in [*targets(table, costs), *memory_targets(traces)]:
        missed += met is False
        verdict = {True: "met", False: "NOT MET", None: ""}[met]
        out += [f"{what:<76} {must:<36} {measured:>14}  {verdict}".rstrip()]
    text = "\n".join(out)
    print(text)
    (results / "table.txt").write_text(text + "\n")
    (results / "tables.md").write_text("\n".join([here, "", *markdown(table, traces)]) + "\n")
    print(f"\nfigures: {results}/")
    draw(results, table, traces)
    return 1 if missed and "--strict" in arguments else 0


def draw(results, table, traces):
    """The plots, where there is matplotlib."""
    try:
        import plots
    except ImportError as failure:
        print(f"no plots: {failure} (Debian: python3-matplotlib)")
        return
    plots.growth(results / "growth.svg", {
        peer: [(live, table[w][peer].median) for live in (100, 1000, 10000, 100000, 1000000)
               if (w := f"random <= 64 KiB, {live} live") in table and peer in table[w]]
        for peer in table.get("random <= 64 KiB, 1000 live", {}) if not peer.startswith("(") and "bare" not in peer
    })
    counts = {1: "1 thread", 2: "2 threads", 4: "4 threads", 8: "8 threads"}
    plots.threads(results / "threads.svg", {
        peer: [(n, table[w][peer].median) for n, name in counts.items()
               if (w := f"pair 4 KiB, {name}") in table and peer in table[w]]
        for peer in table.get("pair 4 KiB, 1 thread", {})
    })
    plots.waste(results / "waste.svg", {
        short(trace): {PLOTTED[stack]: held(row) for stack, row in stacks.items() if row["whole"] == "1" and stack in PLOTTED}
        for trace, stacks in traces.items()
    })


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
