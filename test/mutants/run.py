#!/usr/bin/env python3
"""Puts known bugs (bugs.py) into copies of weir's headers, or of the simulated runtime's sources, one at a time, and
says which of them the tests catch.

    run.py                          each bug against the one test that is to catch it; part of `test/run all`
    run.py --random                 each bug against the random programs instead: how soon, as a table for the docs
    run.py --places                 only whether each bug has its place and its case; compiles nothing

    --only TEXT        bugs of this number, or whose words have this in them
    --compiler clang++ --jobs 2     --include FOLDER (of CUDA's or doctest's headers; may be given again)

A test is compiled once for all bugs that it is to catch, and the program has the one that it is told (switched.py). What
that does not catch, or cannot have, is compiled alone. If bugs.py names a case for a bug, that one has to catch it alone,
and of the test only such cases are compiled: of a large one that takes a third of the time.

Prints a line for each bug: caught, skipped and why, MISSED, or STALE: the place that the bug is put into is not in the
file exactly as often as bugs.py says, or its case is not in the test, so that bugs.py has to follow the file. Two
threads may fail to meet on a busy machine: what is missed is tried once more, and the line says so if only that caught
it. Those that are not caught are printed again at the end. Exit status 1 if there are any. That each test passes without
a bug is what ctest shows.
"""
import argparse
import concurrent.futures
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import switched
from bugs import BUGS, Bug

ROOT = Path(__file__).resolve().parents[2]
RANDOM = "random/stacks"
NO_BUG = "(no bug)"
RMM = ROOT / "build/peers/rmm"  # for bugs that need it: its headers, which clang++ 14 does not take, and its libraries
RMM_COMPILER = "g++"
RMM_HEADERS = [f"-isystem{RMM / folder}" for folder in ("librmm/include/rapids", "librmm/include", "rapids_logger/include")]
RMM_LIBRARIES = [word for library in (RMM / "librmm/lib64/librmm.so", RMM / "rapids_logger/lib64/librapids_logger.so")
                 for word in (str(library), f"-Wl,-rpath,{library.parent}")]
LINKER = "lld" if shutil.which("ld.lld") else "gold"  # which takes a tenth of a second longer, a thousand times
ENDLESS = 20  # seconds; with a bug a test may well not end


def run(command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **more)


class Stale(Exception):
    pass


class Broken(Exception):
    pass


def is_source(name):
    """Whether a bug's file is a source of the simulated runtime, and no header of weir."""
    return name.startswith("sim/") and name.endswith(".cpp")


def place_of(name):
    return Path(name) if is_source(name) else Path("include/weir") / name


@functools.cache
def original(name):
    return (ROOT / place_of(name)).read_text()


def put_in(bug, tree):
    """Writes changed copies of the files into `tree`, which holds nothing else; Stale if a place is not there as often
    as it should be. Returns the changed sources."""
    texts = {}
    for name, right, wrong, *count in bug.edits:
        text = texts.get(name, original(name))
        expected = count[0] if count else 1
        if text.count(right) != expected:
            raise Stale(f"{name} has its place {text.count(right)} times instead of {expected}: {right.strip()[:70]!r}")
        texts[name] = text.replace(right, wrong)
    return write(texts, tree)


def put_in_all(bugs, tree):
    """The same of several bugs, which have their places: the first is number 1."""
    edits = {}
    for number, bug in enumerate(bugs, 1):
        for name, right, wrong, *_ in bug.edits:
            edits.setdefault(name, []).append((number, right, wrong))
    return write({name: switched.switched(original(name), of_file) for name, of_file in edits.items()}, tree)


def write(texts, tree):
    for name, text in texts.items():
        file = tree / place_of(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return [tree / place_of(name) for name in texts if is_source(name)]


TEST_CASE = re.compile(r"^TEST_CASE(?:[^\n]*\}|.*?\n\})\n", re.DOTALL | re.MULTILINE)


def case_of(bug, text):
    cases = TEST_CASE.findall(text)
    wanted = [case for case in cases if re.search(r'"(.*)"', case).group(1).startswith(bug.case)]
    if len(wanted) != 1:
        raise Stale(f"{len(wanted)} cases of {bug.test} begin with '{bug.case}'")
    return wanted[0]


def with_cases_only(bugs, text):
    """The text of a test without its cases but those of the bugs, if each names one. Lines stay where they are."""
    if not all(bug.case for bug in bugs):
        return text
    wanted = {case_of(bug, text) for bug in bugs}
    return TEST_CASE.sub(lambda case: case[0] if case[0] in wanted else "\n" * case[0].count("\n"), text)


USES_PARSED = re.compile(r"\bparse[(<]|\bstack_from_environment\(")

# Headers that are compiled once: each line is a base, which holds the lines above it too. A test is compiled on the last
# base that none of the changed headers is part of.
BASES = [
    ["doctest/doctest.h", "cuda_runtime_api.h", "dlfcn.h", "sys/mman.h", "unistd.h", "cxxabi.h",
     "algorithm", "array", "atomic", "bit", "chrono", "concepts", "condition_variable", "cstdio", "cstdlib", "cstring",
     "ctime", "deque", "fstream", "functional", "future", "iostream", "iterator", "limits", "map", "memory",
     "memory_resource", "mutex", "new", "numeric", "optional", "random", "set", "source_location", "span", "sstream",
     "stdexcept", "string", "string_view", "system_error", "thread", "tuple", "type_traits", "unordered_map",
     "unordered_set", "variant", "vector"],
    ["weir/cuda.hpp", "weir/sim/sim.hpp", "weir/support/address_map.hpp", "weir/support/biased_lock.hpp"],
    ["weir/core.hpp"],
    ["weir/pool/slab_store.hpp", "weir/pool/stream_ordered_heap.hpp"],
    ["weir/sources.hpp", "weir/adaptors/arena.hpp", "weir/adaptors/pool.hpp"],
    ["weir/adaptors.hpp", "weir/containers.hpp"],
    ["weir/tools.hpp"],
]


@functools.cache
def included(header):
    """A header and what it includes, as far as it is weir's."""
    text = (ROOT / "include" / header).read_text()
    return {header}.union(*(included(name) for name in re.findall(r"#include <(weir/[^>]*)>", text)))


@functools.cache
def held_by(base):
    """Weir's headers in a base."""
    headers = [name for line in BASES[: base + 1] for name in line if name.startswith("weir/")]
    return set().union(*(included(name) for name in headers))


def base_for(bugs, test_text):
    """The last base that a test can be compiled on. What a test defines before it includes anything has to come before
    all of weir."""
    if re.search(r"^#define ", test_text.split("#include <weir/")[0], re.MULTILINE):
        return 0
    changed = {f"weir/{name}" for bug in bugs for name, *_ in bug.edits if not is_source(name)}
    return max(base for base in range(len(BASES)) if not held_by(base) & changed)


def rooms():
    """The simulated runtime's sources as its CMakeLists.txt compiles them: a folder at once, but for one text that is
    compiled twice. The driver's library is no part of it."""
    rooms = {}
    for source in sorted((ROOT / "sim").rglob("*.cpp")):
        if source.parent.name == "driver":
            continue
        room = source.stem if "default_stream" in source.stem else source.parent.name
        rooms.setdefault(room, []).append(source)
    return rooms


# Of a function that is defined twice the linker takes the one it sees first: a changed source goes in front of the rest
# of its folder, which takes three times as long to compile.
FIRST_COUNTS = "-Wl,-z,muldefs"


class Bench:
    """Compiles tests against changed headers and sources; what does not depend on those is compiled once."""

    def __init__(self, options, folder, jobs=1):
        self.folder = Path(folder)
        self.compiler = options.compiler
        cuda = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"
        folders = [Path(path) for path in [*options.include, cuda]]
        folders += [path / "cccl" for path in folders if (path / "cccl").is_dir()]  # where toolkit 13 has cuda::mr
        self.flags = ["-std=c++20", *(f"-isystem{path}" for path in folders), f"-I{ROOT / 'test'}", f"-fuse-ld={LINKER}"]
        self.is_clang = "clang" in self.compiler
        self.objects = {}
        self.bases = {}
        self.one_base = threading.Lock()  # is compiled at a time
        self.turns = threading.Semaphore(jobs)  # to compile

    @staticmethod
    def level(sanitizer, optimised):
        return ["-O0", f"-fsanitize={sanitizer}"] if sanitizer else ["-O1" if optimised else "-O0"]

    def compile(self, source, output, tree, sanitizer, optimised, *more, with_rmm=False):
        """On the headers of `tree`, and those of weir that it does not have."""
        first = [RMM_COMPILER, *RMM_HEADERS] if with_rmm else [self.compiler]
        command = [*first, *self.flags, *self.level(sanitizer, optimised), f"-I{tree / 'include'}",
                   f"-I{ROOT / 'include'}", str(source), *more, "-o", str(output)]
        result = run(command)
        if result.returncode != 0:
            raise Broken(" ".join(command) + "\n" + result.stdout)

    def name_of(self, kind, name):
        return self.folder / f"{kind[0]}{'fast' if kind[1] else ''}.{name}"

    def on_base(self, base, kind):
        """What the compiler is told to start with a base, and what to link with it: clang++ compiles the functions of the
        headers once as well, into an object of their own. Compiled when a test first needs it."""
        with self.one_base:
            if (base, kind) not in self.bases:
                self.bases[base, kind] = self.compile_base(base, kind)
            return self.bases[base, kind]

    def compile_base(self, base, kind):
        header = self.name_of(kind, f"base{base}.hpp")
        header.write_text("".join(f"#include <{name}>\n" for line in BASES[: base + 1] for name in line))
        compiled, functions = f"{header}.gch", f"{header}.o"
        flags = [*self.flags, f"-I{ROOT / 'include'}", *self.level(*kind)]
        more = ["-fpch-instantiate-templates", "-fpch-codegen"] if self.is_clang else []
        commands = [[self.compiler, *flags, *more, "-xc++-header", str(header), "-o", compiled]]
        commands += [[self.compiler, *self.level(*kind), "-c", compiled, "-o", functions]] if self.is_clang else []
        for command in commands:
            if (result := run(command)).returncode != 0:
                raise Broken(" ".join(command) + "\n" + result.stdout)
        return ["-include", str(header)], [functions] if self.is_clang else []

    def compile_room(self, sources, name, tree, kind):
        """Some of the simulated runtime's sources, as one."""
        together = Path(name).with_suffix(".cpp")
        together.write_text("".join(f'#include "{source}"\n' for source in sources))
        self.compile(together, name, tree, *kind, f"-I{ROOT / 'sim'}", "-c")

    def prepare(self, kinds, jobs):
        """The simulated runtime and the tests' main, once for each (sanitizer, optimised)."""
        work = []
        for kind in kinds:
            main = str(self.name_of(kind, "main.o"))
            work.append((self.compile, ROOT / "test/support/main.cpp", main, ROOT, *kind, "-c"))
            self.objects[kind] = [main]
            for room, sources in rooms().items():
                self.objects[kind].append(str(self.name_of(kind, f"{room}.o")))
                work.append((self.compile_room, sources, self.objects[kind][-1], ROOT, kind))
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            list(pool.map(lambda w: w[0](*w[1:]), work))

    def build(self, bugs, test, program, sanitizer, optimised):
        """The test, on headers and sources with the bug, or with one of several."""
        kind = (sanitizer, optimised)
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            tree = Path(place)
            changed = put_in(bugs[0], tree) if len(bugs) == 1 else put_in_all(bugs, tree)
            source = ROOT / "test" / f"{test}.cpp"
            text = source.read_text()
            needs_rmm = bugs[0].needs_rmm
            objects, start, functions = self.objects[kind], [], []
            if "int main(" in text:  # without doctest
                objects = [o for o in objects if not o.endswith(".main.o")]
            elif not needs_rmm:
                start, functions = self.on_base(base_for(bugs, text) if kind == ("", False) else 0, kind)
            for source_changed in changed:
                first = str(source_changed.with_suffix(".o"))
                self.compile(source_changed, first, tree, *kind, f"-I{ROOT / 'sim'}", *start, "-c")
                objects = [first, *objects, FIRST_COUNTS]
            objects = [*objects, *functions]
            if test == bugs[0].test:
                objects = [f"-iquote{source.parent}", *objects]
                source = tree / source.name
                text = with_cases_only(bugs, text)
                source.write_text(text + switched.DEFINITION if len(bugs) > 1 else text)
            # Compiled for the tests that include it; it takes longer than most of them, and not every case needs it.
            if "<support/parsed.hpp>" in text and USES_PARSED.search(text):
                objects = [*objects, str(ROOT / "test/support/parsed.cpp")]
            if needs_rmm:
                self.compile(source, program, tree, *kind, *objects, *RMM_LIBRARIES, "-lpthread", with_rmm=True)
            else:
                self.compile(source, program, tree, *kind, *objects, *start, "-lpthread")

    def try_bug(self, bug, test, environment, sanitizer, optimised):
        """Whether the test failed, what it printed, and how long it ran."""
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            program = Path(place) / "program"
            try:
                with self.turns:
                    self.build([bug], test, program, sanitizer, optimised)
            except Broken as why:
                if not re.search("static assertion failed|static_assert failed", str(why)):  # g++'s words and clang++'s
                    raise
                return True, "a static assertion failed", 0
            return self.run_test(program, bug, environment, ENDLESS * (6 if bug.what == NO_BUG or optimised else 1))

    def try_bugs(self, bugs):
        """The same of several, which one test is to catch: for each that it caught what it printed and how long it ran;
        for one that does not go together with others nothing."""
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            program = Path(place) / "program"
            try:
                with self.turns:
                    self.build(bugs, bugs[0].test, program, "", False)
            except Broken:
                half = len(bugs) // 2
                return {**self.try_bugs(bugs[:half]), **self.try_bugs(bugs[half:])} if half > 1 else {}
            # Without a bug it passes: what then fails is not for the choice that functions begin with.
            ways_to_run = {str(bug.arguments): bug for bug in bugs}.values()
            without = [self.run_test(program, bug, {}, 6 * ENDLESS) for bug in ways_to_run]
            if any(failed for failed, *_ in without):
                return {}
            usual = max(seconds for *_, seconds in without)
            longest = 3 + min(10 * usual, usual + ENDLESS)
            caught = {}
            for number, bug in enumerate(bugs, 1):
                failed, *result = self.run_test(program, bug, {switched.VARIABLE: str(number)}, longest, bug.case)
                if failed:
                    caught[bug.what] = result
            return caught

    @staticmethod
    def run_test(program, bug, environment, longest, case=""):
        first = [] if bug.arguments else ["--abort-after=1"]  # doctest's; programs of their own take arguments
        if case:
            first.append("--test-case=" + re.sub("[^A-Za-z0-9 ]", "?", case) + "*")  # a comma would end it
        started = time.monotonic()
        try:
            result = run([str(program), *bug.arguments, *first], env=dict(os.environ, **environment), timeout=longest)
            failed, output = result.returncode != 0, result.stdout
        except subprocess.TimeoutExpired:
            failed, output = True, "it does not end"
        return failed, output, time.monotonic() - started


def words_of(output):
    """The first words of a failure that say something."""
    for pattern in (r"found after \d+ operations.*?: (.*)", r"(WARNING: ThreadSanitizer: .*)", r"ERROR: (.* is NOT .*)",
                    r"(ERROR: .*)", r"(FATAL ERROR: .*)", r"(weir: .*)"):
        if found := re.search(pattern, output):
            return found.group(1).strip()[:130]
    return (output.strip().splitlines() or ["it ended without a word"])[-1][:130]


def name_of(bug):
    return f"{bug.number:>2} {bug.what}" if bug.number else f" - {bug.what}"


def stale(bugs):
    """A line for each bug that has not its place in the files, or its case in the test."""
    lines = []
    for bug in bugs:
        try:
            with tempfile.TemporaryDirectory() as tree:
                put_in(bug, Path(tree))
            if bug.case:
                case_of(bug, (ROOT / "test" / f"{bug.test}.cpp").read_text())
        except Stale as why:
            lines.append(f"STALE    {name_of(bug)}: {why}")
    return lines


def attempt(bench, bug, options):
    """One line, and whether all is well."""
    if options.random:
        test, kind = RANDOM, ("", True)
        environment = {"WEIR_SOAK_OPERATIONS": options.operations, "WEIR_SOAK_SHRINK": "0"}
    else:
        test, kind, environment = bug.test, (bug.sanitizer, False), {}
    name = name_of(bug)
    if bug.needs_rmm and not RMM.exists():
        return f"skipped  {name}: no RMM in {RMM.relative_to(ROOT)}; get it with cmake/get-rmm", True
    again = ""
    try:
        failed, output, seconds = bench.try_bug(bug, test, environment, *kind)
        if not failed and bug.what != NO_BUG and not options.random:
            again = " at the second try"
            failed, output, seconds = bench.try_bug(bug, test, environment, *kind)
    except Stale as why:
        return f"STALE    {name}: {why}", False
    except Broken as why:
        return f"BROKEN   {name}: it does not compile\n{why}", False
    if bug.what == NO_BUG:
        return f"{'FAILS   ' if failed else 'passes  '} {test} without a bug" + (f"\n{output}" if failed else ""), not failed
    if not failed:
        return f"MISSED   {name} by {test}{again}, {seconds:.1f} s", False
    if options.random:
        after = re.search(r"found after (\d+) operations", output)
        return f"| {bug.number or ''} | {bug.what} | {f'{int(after.group(1)):,}' if after else 'at once'} |", True
    return caught(bug, again, output, seconds), True


def caught(bug, again, output, seconds):
    return f"caught   {name_of(bug)}{again}\n         {bug.test}, {seconds:.1f} s: {words_of(output)}"


def attempt_all(bench, bugs, options):
    """The same of bugs that one test is to catch."""
    found = bench.try_bugs(bugs) if len(bugs) > 1 else {}
    return [(caught(bug, "", *found[bug.what]), True) if bug.what in found else attempt(bench, bug, options)
            for bug in bugs]


def can_go_together(bug):
    if bug.sanitizer or bug.needs_rmm or bug.what == NO_BUG or stale([bug]):
        return False
    rights = {}
    for name, right, *_ in bug.edits:
        rights.setdefault(name, []).append(right)
    return all(switched.can_switch(original(name), of_file) for name, of_file in rights.items())


def together(bugs):
    """Lists of bugs that are compiled together, the longest first: those of a test that need the same base."""
    groups = {}
    for number, bug in enumerate(bugs):
        text = (ROOT / "test" / f"{bug.test}.cpp").read_text()
        groups.setdefault((bug.test, base_for([bug], text)) if can_go_together(bug) else number, []).append(bug)
    return sorted(groups.values(), key=len, reverse=True)


def selected(bugs, only):
    return [b for b in bugs if not only or only == str(b.number) or (not only.isdigit() and only in b.what)]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--only", default="")
    arguments.add_argument("--random", action="store_true")
    arguments.add_argument("--places", action="store_true")
    arguments.add_argument("--operations", default="1000000", help="how many the random programs have to find each bug")
    arguments.add_argument("--compiler", default="clang++")
    arguments.add_argument("--include", action="append", default=[])
    arguments.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    options = arguments.parse_args()
    bugs = selected(BUGS, options.only)
    if not bugs:
        sys.exit(f"no bug has number or words '{options.only}'")
    if options.places:
        lines = stale(bugs)
        print(*lines, f"{len(bugs)} known bugs, {len(lines)} of them stale", sep="\n")
        return 1 if lines else 0
    if options.random:
        bugs = [Bug(0, NO_BUG, [], RANDOM)] + [b for b in bugs if b.random]
    failures, skipped = [], 0
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder, options.jobs)
        bench.prepare({("", True)} if options.random else {(b.sanitizer, False) for b in bugs}, options.jobs)
        # One more than compile: a program that waits for what never comes keeps no processor busy.
        groups = [[bug] for bug in bugs] if options.random else together(bugs)
        with concurrent.futures.ThreadPoolExecutor(options.jobs + 1) as pool:
            for lines in pool.map(lambda group: attempt_all(bench, group, options), groups):
                for line, good in lines:
                    print(line, flush=True)
                    failures += [] if good else [line]
                    skipped += line.startswith("skipped")
    known = sum(b.what != NO_BUG for b in bugs) - skipped
    print(f"{known} known bugs, {len(failures)} missed, stale or broken:" if failures else f"all of {known} known bugs are caught",
          *failures, sep="\n")  # again: a long log may be cut in the middle
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
