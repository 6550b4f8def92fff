#!/usr/bin/env python3
"""The package with the real PyTorch (bench/peers/get-torch), on the simulated runtime, every block under `checked`, which
proves the order of its uses. Not part of `test/run`, since the wheel is large.

usage: test/python/with_torch.py PYTHON [TEST...]

  PYTHON    the interpreter of an environment that has PyTorch
  TEST      as unittest names them; default: all

Exit status 1 if one fails."""
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "with_torch"
sys.path.insert(0, str(ROOT / "python"))
sys.dont_write_bytecode = True
from weir import _extension  # noqa: E402

START = """
import torch, weir, weir.torch
c = torch.cuda
"""
INSTALL = START + "weir.torch.install('async | pool')\n"
WHOLE = START + "weir.torch.install('async | pool | limit(60%)', extension=True)\n"

# `b` reads what is `a`'s, which then goes, and `a` writes where it was.
READ_ELSEWHERE = """
a, b = c.Stream(), c.Stream()
for i in range(3):
    with c.stream(a): x = torch.empty(1 << 18, device='cuda').zero_()
    b.wait_stream(a)
    with c.stream(b): y = torch.empty(1 << 18, device='cuda').copy_(x)
    if {recorded}: x.record_stream(b)
    del x
    with c.stream(a): z = torch.empty(1 << 18, device='cuda').zero_()
    del y, z
c.synchronize()
print('done')
"""

RANDOM_TENSORS = """
import random
random.seed(7)
streams = [c.current_stream(), c.Stream(), c.Stream()]
live = []
for step in range(400):
    if len(live) < 12:
        s = random.choice(streams)
        with c.stream(s): live.append((torch.empty(random.randrange(1, 1 << 18), device='cuda').zero_(), s))
    x, s = random.choice(live)
    other = random.choice(streams)
    other.wait_stream(s)
    with c.stream(other): y = torch.empty_like(x).copy_(x)
    if other != s: x.record_stream(other)
    if random.random() < 0.5: live.pop(random.randrange(len(live)))
    del x, y
live.clear()
c.synchronize()
print('done', next(l['requested'] for l in weir.numbers()['layers'] if l['layer'] == 'pool'))
"""

GRAPH = """
captured = lambda: next(l['captured'] for l in weir.numbers()['layers'] if l['layer'] == 'pool')
g = c.CUDAGraph()
x = torch.zeros(1 << 20, device='cuda')
with c.graph(g):
    y = torch.empty(1 << 20, device='cuda').copy_(x)
    z = torch.empty(1 << 20, device='cuda').copy_(y)
    del y
for i in range(3): g.replay()
c.synchronize()
held = captured()
del z
g.reset()
print('done', held >= 4 << 20, captured())
"""

# What a graph leaves of its pool, in the capture or after it, is the next one's.
SHARED_POOL = """
reserved = lambda: {reserved} >> 20
x, small = torch.zeros(8 << 20, device='cuda'), torch.zeros(1, device='cuda')
before, graphs, held, pool = reserved(), [], [], None
for keep in (True, True, False, False, False):
    g = c.CUDAGraph()
    with c.graph(g, pool=pool):
        y = x
        for _ in range(4): y = torch.empty_like(x).copy_(y)
    pool = g.pool()
    graphs.append((g, y if keep else None))
    del y
    held.append(reserved() - before)
print(held)
"""

# A copy that is not contiguous is a kernel of one device in the other's memory.
PEERS = """
import ctypes
x, y = (torch.zeros(100, 200, device=f'cuda:{i}') for i in (0, 1))
y.copy_(x.view(200, 100).t())
class attributes(ctypes.Structure):
    _fields_ = [('type', ctypes.c_int), ('device', ctypes.c_int), ('on_device', ctypes.c_void_p),
                ('on_host', ctypes.c_void_p)]
shown = attributes()
c.set_device(0)
ctypes.CDLL(None).cudaPointerGetAttributes(ctypes.byref(shown), ctypes.c_void_p(y.data_ptr()))
print(shown.device, shown.on_device is not None)
"""

POOL = """
weir.use('async | limit(max=64MiB)')
pool = weir.torch.pool()
with c.use_mem_pool(pool):
    x = torch.empty(4 << 20, device='cuda').zero_()
print('done', weir.limit().used >> 20, c.memory_reserved() >> 20)
try:
    with c.use_mem_pool(pool): y = torch.empty(32 << 20, device='cuda')
except torch.cuda.OutOfMemoryError as e:
    print('refused')
"""

# A graph has segments of a pool, and all of them go back when the pool ends, though the graph may still run.
GRAPH_IN_POOL = """
import gc
weir.use('async | pool')
pool, x, s, t = weir.torch.pool(), torch.zeros(4 << 20, device='cuda'), c.Stream(), c.Stream()
with c.stream(s), c.use_mem_pool(pool): y = torch.empty_like(x)
del y
c.synchronize()
g = c.CUDAGraph()
with c.graph(g, pool=pool.id, stream=s):
    y = torch.empty_like(x).copy_(x)
    z = torch.empty(8 << 20, device='cuda').zero_()
with c.stream(t): g.replay()
g.reset()
del y, z, g, pool
gc.collect()
c.empty_cache()
print('done', [(l['requested'], l['captured']) for l in weir.numbers()['layers'] if l['layer'] == 'pool'])
"""

# Graphs of one pool in a tree, whose outputs live on or not, and branches of it: each is recorded in the pool as it was
# after the one before. Copies are real on the simulated runtime, so each output has what came in.
TREE = """
import gc, random
from torch._inductor import config, cudagraph_trees
config.triton.slow_path_cudagraph_asserts = config.triton.fast_path_cudagraph_asserts = True
def copies(to, of):
    for a, b in zip(to, of): a.copy_(b)
torch._foreach_copy_ = copies
def twice(x):
    y = x.clone()
    return y.clone(), y
first, second = (torch.compile(f, backend='cudagraphs', dynamic=False) for f in (lambda x: twice(x), twice))
random.seed(3)
wrong = 0
for step in range(60):
    torch.compiler.cudagraph_mark_step_begin()
    a, b = first(torch.full((random.choice((1000, 5000, 300000)),), float(step)).cuda())
    if random.random() < 0.3: del b
    p, q = second(a)
    if random.random() < 0.3: del a
    if random.random() < 0.5:
        r, t = second(p)
        wrong += int((r.cpu() != step).sum())
        if random.random() < 0.5: del p
    wrong += int((q.cpu() != step).sum())
set_back = cudagraph_trees.get_manager(0, False).debug_checkpointing_counter
a = b = p = q = r = t = None
print(wrong, set_back > 3, c.memory_stats()['requested_bytes.all.current'], c.memory_stats()['allocation.all.current'])
cudagraph_trees.reset_cudagraph_trees()
torch._dynamo.reset()
gc.collect()
c.synchronize()
"""
# Graphs of a tree whose sizes shrink, each with copies of its inputs, and what their pool holds.
SIZES = """
import gc
def copies(to, of):
    for a, b in zip(to, of): a.copy_(b)
torch._foreach_copy_ = copies
reserved = lambda: {reserved} >> 20
for number, size in enumerate({sizes}):
    scope = {{}}
    exec(f'def f(x): return x.clone()  # {{number}}', scope)
    f = torch.compile(scope['f'], backend='cudagraphs', dynamic=False)
    for repeat in range(3):
        torch.compiler.cudagraph_mark_step_begin()
        x = torch.full((size << 18,), float(size)).cuda()
        y = f(x)
        assert (y.cpu() == size).all()
        del x, y
gc.collect()
c.synchronize()
c.empty_cache()
print(reserved())
"""
# A step of six graphs whose outputs stay, each with a copy of its input, which is the next one's afterwards.
OUTPUTS = """
import gc
def copies(to, of):
    for a, b in zip(to, of): a.copy_(b)
torch._foreach_copy_ = copies
reserved = lambda: {reserved} >> 20
graphs = []
for number in range(6):
    scope = {{}}
    exec(f'def f(x): return x.clone()  # {{number}}', scope)
    graphs.append(torch.compile(scope['f'], backend='cudagraphs', dynamic=False))
for repeat in range(3):
    torch.compiler.cudagraph_mark_step_begin()
    outputs = []
    for number, f in enumerate(graphs):
        x = torch.full((16 << 18,), float(number)).cuda()
        outputs.append(f(x))
        del x
    assert all((y.cpu() == number).all() for number, y in enumerate(outputs))
    del outputs
gc.collect()
c.synchronize()
c.empty_cache()
print(reserved())
"""
# A checkpoint of a pool whose graphs are gone.
ENDED = """
import gc
pool, s = c.graph_pool_handle(), c.Stream()
g = c.CUDAGraph()
with c.graph(g, pool=pool, stream=s): y = torch.empty(1 << 20, device='cuda').zero_()
state = torch._C._cuda_getCheckpointState(0, pool)
del y
g.reset()
del g
gc.collect()
try: torch._C._cuda_setCheckpointPoolState(0, state, [], [])
except RuntimeError as e: print('of a pool of graphs that has ended' in str(e))
del state
print([(l['requested'], l['captured']) for l in weir.numbers()['layers'] if l['layer'] == 'pool'])
"""
# What a checkpoint keeps is had again by the next graph; but not what no capture allocated, which is everyone's when the
# checkpoint ends.
KEPT = """
pool, s = c.graph_pool_handle(), c.Stream()
with c.stream(s):
    torch._C._cuda_beginAllocateCurrentThreadToPool(0, pool)
    eager = torch.empty(1 << 20, device='cuda')
    torch._C._cuda_endAllocateToPool(0, pool)
first, second = c.CUDAGraph(), c.CUDAGraph()
with c.graph(first, pool=pool, stream=s): captured = torch.empty(1 << 20, device='cuda').zero_()
state = torch._C._cuda_getCheckpointState(0, pool)
kept = {captured.data_ptr(): 'captured', eager.data_ptr(): 'eager'}
del captured, eager
with c.graph(second, pool=pool, stream=s): again = [torch.empty(1 << 20, device='cuda').zero_() for _ in range(3)]
print([kept.get(x.data_ptr()) for x in again])
"""
TREE_HELD = "print([(l['requested'], l['captured']) for l in weir.numbers()['layers'] if l['layer'] == 'pool'])"

STATISTICS = """
x = torch.empty(1 << 20, device='cuda')
y = torch.empty(1 << 18, device='cuda'); del y
s = c.memory_stats()
print(c.memory_allocated() >> 20, c.max_memory_allocated() >> 20, s['allocation.all.allocated'], s['num_ooms'])
c.memory._record_memory_history()
c.memory._set_memory_metadata('of the test')
try: torch.empty(1 << 40, device='cuda')
except torch.cuda.OutOfMemoryError as e: print('refused by limit' in str(e))
y = torch.empty(1000, device='cuda'); del y
snapshot = c.memory._snapshot()
print([e['action'] for e in snapshot['device_traces'][0]], [s['total_size'] for s in snapshot['segments']])
print({k: v for k, v in snapshot['allocator_settings'].items() if v})
print({e.get('user_metadata') for e in snapshot['device_traces'][0]}, c.memory._get_memory_metadata())
refused = snapshot['device_traces'][0][0]
print(refused['size'] == 4 << 40, refused['device_free'] == c.mem_get_info()[0])
pool = c.MemPool()
with c.use_mem_pool(pool): z = torch.empty(1000, device='cuda')
print([s['total_size'] for s in pool.snapshot()], len(c.memory_snapshot()))
del z, pool
c.reset_peak_memory_stats()
print(c.max_memory_allocated() >> 20, c.memory.get_allocator_backend())
x = y = None
s = c.memory_stats()
print(c.memory_allocated(), s['requested_bytes.all.current'], s['active.all.current'],
      s['allocated_bytes.all.freed'] > 0)
torch.backends.cudnn.benchmark = True
print(tuple(torch.nn.Conv2d(3, 8, 3, device='cuda')(torch.empty(2, 3, 32, 32, device='cuda')).shape))
"""

# Of devices that cannot be, of which there could be, and that there are.
NO_DEVICE = """
x = torch.empty(1, device='cuda')
for ask in (c.memory_allocated, c.reset_peak_memory_stats, c.reset_accumulated_memory_stats,
            c.get_per_process_memory_fraction, lambda device: c.set_per_process_memory_fraction(0.5, device)):
    for device in (-1, 2, 100):
        try: print('not refused', ask(device))
        except RuntimeError as e: print(str(e).splitlines()[0])
    ask(1)
"""

# As with PyTorch's own allocator, but for what that has cached.
FRACTIONS = """
for fraction in (0.0, 1.0):
    c.set_per_process_memory_fraction(fraction)
    try: print(c.get_per_process_memory_fraction(), torch.empty(1, device='cuda').shape)
    except torch.cuda.OutOfMemoryError: print('refused')
"""

# What of the history has stacks.
CONTEXTS = """
x = torch.empty(1, device='cuda')
for when in ('state', 'alloc', 'all'):
    c.memory._record_memory_history(context=when, clear_history=True)
    y = torch.empty(1000, device='cuda')
    del y
    print(when, [e['action'] for e in c.memory._snapshot()['device_traces'][0] if e.get('frames')])
"""


def build_checked():
    """The plug-in, with `checked` on every stack."""
    BUILD.mkdir(parents=True, exist_ok=True)
    subprocess.run([ROOT / "sim/run", "--quiet", "true"], check=True)
    subprocess.run(["c++", "-std=c++20", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-DWEIR_CHECKED", "-w",
                    "-I", ROOT / "include", "-isystem", _extension.cuda_headers(), ROOT / "python/src/plug_in.cpp",
                    "-o", BUILD / "libweir_plug_in.so", "-Wl,-soname,libweir_plug_in.so",
                    "-L", ROOT / "build/sim/sim/runtime", "-lcudart"], check=True)


class WithPyTorch(unittest.TestCase):
    def printed(self, program, mode="lazy", checks=True, devices=1):
        environment = {**os.environ, "WEIR_LIBRARY": str(BUILD / "libweir_plug_in.so"), "XDG_CACHE_HOME": str(BUILD),
                       "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
        check = ["--check-order"] if checks else []
        command = [ROOT / "sim/run", "--quiet", *check, "--mode", mode, "--devices", devices, PYTHON, *program]
        done = subprocess.run([str(part) for part in command], env=environment, capture_output=True, text=True)
        return re.sub("weir::sim: [0-9]+ launches of .*\n", "", done.stdout + done.stderr)  # more in older versions

    def test_what_is_recorded_is_in_order(self):
        for mode in ("immediate", "lazy", "random", "threads"):
            with self.subTest(mode=mode):
                self.assertEqual(self.printed(["-c", INSTALL + READ_ELSEWHERE.format(recorded=True)], mode), "done\n")

    def test_what_is_not_recorded_is_found(self):
        printed = self.printed(["-c", INSTALL + READ_ELSEWHERE.format(recorded=False)])
        self.assertIn("was last used by cudaMemcpyAsync", printed)
        self.assertIn("violations of order", printed)

    def test_random_programs_of_tensors_are_in_order(self):
        for install in (INSTALL, WHOLE):
            for mode in ("lazy", "random", "threads"):
                with self.subTest(mode=mode, whole=install is WHOLE):
                    self.assertRegex(self.printed(["-c", install + RANDOM_TENSORS], mode), r"\Adone 0\n\Z")

    def test_memory_of_a_graph_is_kept_for_it_and_then_given_back(self):
        declared = START + "weir.torch.install('async | pool(declared_captures=true)')\n"
        for install in (INSTALL, WHOLE, declared):
            self.assertEqual(self.printed(["-c", install + GRAPH]), "done True 0\n")

    def test_graphs_of_a_pool_hold_what_they_hold_in_pytorch(self):
        own = self.printed(["-c", START + SHARED_POOL.format(reserved="c.memory_reserved()")], checks=False)
        large = "[64, 96, 128, 128, 128]\n"
        self.assertIn(own, (large, "[66, 98, 130, 130, 130]\n"))  # 2.11 has a segment more, for a graph's small blocks
        reserved = "next(l['reserved'] for l in weir.numbers()['layers'] if l['layer'] == 'pool')"
        for install in (INSTALL, WHOLE):
            self.assertEqual(self.printed(["-c", install + SHARED_POOL.format(reserved=reserved)], checks=False), large)

    def test_graphs_of_a_tree_are_recorded_in_the_pool_as_it_was(self):
        said = lambda *program, **more: [line for line in self.printed(["-c", "".join(program)], checks=False, **more).splitlines()
                                         if not line.startswith("W")]  # of what is not installed
        own = said(START, TREE)
        self.assertIn(own, (["0 True 0 0"], ["0 True 16 2"]))  # 2.11 keeps a seed and an offset for graphs
        for stack in ("async | pool", "virtual_memory | pool"):
            for mode in ("lazy", "random"):
                with self.subTest(stack=stack, mode=mode):
                    install = START + f"weir.torch.install('{stack}', extension=True)\n"
                    self.assertEqual(said(install, TREE, TREE_HELD, mode=mode), [*own, "[(0, 0)]"])

    def test_what_a_checkpoint_keeps_is_had_again_where_a_capture_allocated_it(self):
        self.assertEqual(self.printed(["-c", WHOLE + KEPT], checks=False), "['captured', None, None]\n")

    def test_a_tree_of_graphs_holds_little_more_than_in_pytorch(self):
        reserved = "next(l['reserved'] for l in weir.numbers()['layers'] if l['layer'] == 'pool')"
        for program, sizes in ((SIZES, [16] * 10), (SIZES, [64, 48, 36, 27, 20, 15]), (OUTPUTS, [])):
            held = [int(self.printed(["-c", install + program.format(sizes=sizes, reserved=of)], checks=False).split()[0])
                    for install, of in ((START, "c.memory_reserved()"), (WHOLE, reserved))]
            with self.subTest(program=program, sizes=sizes, held=held):
                self.assertLessEqual(held[1], 1.5 * held[0] + 8)  # 2.11's small blocks: a segment of 8 MiB, not of 2

    def test_a_checkpoint_of_a_pool_that_has_ended_is_refused(self):
        self.assertEqual(self.printed(["-c", WHOLE + ENDED], checks=False), "True\n[(0, 0)]\n")

    def test_a_mem_pool_takes_its_segments_from_weir(self):
        self.assertEqual(self.printed(["-c", START + POOL]), "done 16 16\nrefused\n")

    def test_a_mem_pools_segments_go_back_though_a_graph_had_them(self):
        self.assertEqual(self.printed(["-c", START + GRAPH_IN_POOL]), "done [(0, 0)]\n")

    def test_the_extension_has_statistics_history_and_errors(self):
        lines = self.printed(["-c", WHOLE + STATISTICS]).splitlines()
        self.assertEqual(lines[0], "4 5 2 0")
        self.assertEqual(lines[1], "True")
        self.assertEqual(lines[2], "['oom', 'alloc', 'free_requested', 'free_completed'] [4194304]")
        self.assertEqual(lines[3], "{}")  # settings of PyTorch's own allocator, which is not there
        self.assertEqual(lines[4], "{'of the test'} of the test")
        self.assertEqual(lines[5], "True True")
        self.assertEqual(lines[6], "[4000] 2")
        self.assertEqual(lines[7], "4 weir")
        self.assertEqual(lines[8:10], ["0 0 0 True", "(2, 8, 30, 30)"])

    def test_a_device_that_is_not_there_is_named(self):
        refused = [f"weir: there is no device {device}; this process sees 2, numbered from 0" for device in (-1, 2, 100)]
        self.assertEqual(self.printed(["-c", WHOLE + NO_DEVICE], devices=2).splitlines(), 5 * refused)

    def test_a_fraction_is_from_0_to_1(self):
        for start in (START, WHOLE):
            self.assertEqual(self.printed(["-c", start + FRACTIONS]), "refused\n1.0 torch.Size([1])\n")

    def test_the_history_has_stacks_where_pytorchs_own_has_them(self):
        own = self.printed(["-c", START + CONTEXTS], checks=False)
        self.assertIn("alloc ['alloc', 'free_requested', 'free_completed']", own)
        self.assertEqual(self.printed(["-c", WHOLE + CONTEXTS]), own)

    def test_a_device_reaches_anothers_memory_where_peers_were_let_in(self):
        for stack in ("async(peers=true) | pool", "virtual_memory(peers=true) | pool"):
            install = START + f"weir.torch.install('{stack}')\n"
            self.assertEqual(self.printed(["-c", install + PEERS], devices=2), "1 True\n")

    def test_one_budget_under_all(self):
        printed = self.printed([ROOT / "python/examples/one_budget.py"])
        self.assertIn("PyTorch holds 32 MiB", printed)
        self.assertIn("refused by all: limit", printed)
        self.assertIn("and after PyTorch freed its weights", printed)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    PYTHON = sys.argv.pop(1)
    if subprocess.run([PYTHON, "-c", "import importlib.util as u; exit(u.find_spec('torch') is None)"]).returncode != 0:
        sys.exit(f"skipped: {PYTHON} has no PyTorch: pip install --no-deps torch")
    build_checked()
    unittest.main()
