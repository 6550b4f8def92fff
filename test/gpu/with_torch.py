#!/usr/bin/env python3
"""PyTorch on weir on a GPU: what real kernels compute must be what they compute on PyTorch's own allocator. Needs a Python
with PyTorch; CuPy and Numba, and torch.compile's Triton, are asked where they are installed.

usage: test/gpu/with_torch.py [PYTHON] [--only WORDS]

Prints a row for each program and stack, then what three trainings hold of the device. Exit status 1 if one differs."""
import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "torch"))
sys.dont_write_bytecode = True
import plug_in  # noqa: E402

START = """
import gc, random, sys
import torch
c = torch.cuda
way, stack = sys.argv[1:3]
if way != 'native':
    import weir, weir.torch
    if way == 'segments': weir.use(stack)
    else: weir.torch.install(stack, extension=way == 'extension')
torch.manual_seed(7)
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
"""

# Tensors pass between streams that work slowly, and each stream finds what it was given. Without record_stream, or were
# memory handed out too early, the number of what differs would not be 0.
STREAMS = """
random.seed(7)
streams = [c.current_stream(), *(c.Stream() for _ in range(3))]
live, wrong = [], torch.zeros(1, dtype=torch.int64, device='cuda')
c.synchronize()
for step in range(3000):
    if len(live) < 12:
        s, value = random.choice(streams), step
        with c.stream(s):
            if step % 7 == 0: c._sleep(200_000)
            live.append((torch.full((random.randrange(1, 1 << 20),), value, device='cuda'), s, value))
    x, s, value = random.choice(live)
    other = random.choice(streams)
    other.wait_stream(s)
    with c.stream(other):
        if step % 5 == 0: c._sleep(200_000)
        bad = (x != value).sum()
        wrong.index_add_(0, torch.zeros(1, dtype=torch.int64, device='cuda'), bad.reshape(1))
        if step % 3 == 0: y = x.clone(); wrong.index_add_(0, torch.zeros(1, dtype=torch.int64, device='cuda'), (y != value).sum().reshape(1)); del y
    if other != s: x.record_stream(other)
    if random.random() < 0.5: live.pop(random.randrange(len(live)))
    del x
live.clear()
c.synchronize()
print(wrong.item())
"""

# Twelve steps, by turns on two streams.
TRAINING = """
sys.path.insert(0, CLIENTS)
from models import KINDS
kind = KINDS['gpt']
model = kind.make().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
streams, losses = (c.current_stream(), c.Stream()), []
for step in range(12):
    s = streams[step % 2]
    s.wait_stream(streams[1 - step % 2])
    with c.stream(s):
        (x,), y = kind.data(4, 64 + 4 * step)
        loss = kind.loss(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
c.synchronize()
print([f'{x.item():.4f}' for x in losses])
"""

# A whole step in a graph, replayed; then memory that graphs share, and what is left of it.
GRAPHS = """
from torch import nn
model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(64, 256, device='cuda'), torch.randn(64, 256, device='cuda')
def step():
    loss = (model(x) - y).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss
side = c.Stream()
side.wait_stream(c.current_stream())
with c.stream(side):
    for _ in range(3): step()
c.current_stream().wait_stream(side)
losses, g = [], c.CUDAGraph()
with c.graph(g): loss = step()
for i in range(20):
    noise = torch.randn(1 << 20, device='cuda')  # what lives beside the graph
    g.replay()
    losses.append(f'{loss.item():.4f}')
    del noise
second = c.CUDAGraph()
with c.graph(second, pool=g.pool()): z = (x @ x.T).relu()
second.replay()
losses.append(f'{z.sum().item():.1f}')
made = c.make_graphed_callables(nn.Linear(256, 256).cuda(), (x,))
losses.append(tuple(made(x).shape))
del second, z, loss, g
gc.collect()
c.empty_cache()
print(losses)
"""

# Trees of graphs in one pool: forward and backward of three lengths, whose tensors live on or not.
COMPILED = """
from torch import nn
from torch._inductor import config
config.triton.fast_path_cudagraph_asserts = config.triton.slow_path_cudagraph_asserts = True
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).cuda()
compiled = torch.compile(model, mode='reduce-overhead', dynamic=False)
random.seed(3)
wrong, held = 0, None
for step in range(40):
    torch.compiler.cudagraph_mark_step_begin()
    x = torch.randn(random.choice((8, 64, 512)), 64, device='cuda')
    for p in model.parameters(): p.grad = None
    y = compiled(x)
    if random.random() < 0.7: y.square().sum().backward()
    expected = model(x)
    wrong += not torch.allclose(y, expected, rtol=1e-3, atol=1e-3)
    if random.random() < 0.5: y = None
print(wrong)
"""

MEM_POOL = """
pool = weir.torch.pool() if way == 'segments' else c.MemPool()
with c.use_mem_pool(pool):
    x = torch.full((1 << 20,), 3.0, device='cuda')
    y = x * 2
g = c.CUDAGraph()
with c.graph(g, pool=pool.id):
    z = x + y
g.replay()
c.synchronize()
print(z.sum().item())
del z, g, pool
gc.collect()
"""

REFUSED = """
if way == 'native': c.set_per_process_memory_fraction((1 << 30) / c.get_device_properties(0).total_memory)
batch, tried = 48, []
while True:
    try:
        x = [torch.ones(batch << 20, device='cuda') for _ in range(8)]
        break
    except RuntimeError:
        tried.append(batch)
        x = None
        batch //= 2
print(tried, batch, sum(y.sum().item() for y in x))
"""

CUPY = """
import cupy
if way != 'native':
    import weir.cupy
    weir.cupy.install()
x = torch.arange(1 << 20, device='cuda', dtype=torch.float64)
y = cupy.arange(1 << 20, dtype=cupy.float64) * 2
z = torch.from_dlpack(y) + x
print(z.sum().item(), float(cupy.linalg.norm(y)))
"""

NUMBA = """
import numpy
if not hasattr(numpy, 'row_stack'): numpy.row_stack = numpy.vstack  # which Numba names, and NumPy 2.5 has no more
from numba import cuda
if way != 'native':
    import weir.numba
    weir.numba.install()
@cuda.jit
def twice(a):
    i = cuda.grid(1)
    if i < a.size: a[i] *= 2
a = cuda.to_device(numpy.arange(1 << 16))
twice[256, 256](a)
print(int(a.copy_to_host().sum()), torch.ones(4, device='cuda').sum().item())
"""

PROGRAMS = {  # each with what it imports that may be missing
    "tensors between streams": (STREAMS, None),
    "a training on two streams": (TRAINING, None),
    "graphs": (GRAPHS, None),
    "torch.compile, reduce-overhead": (COMPILED, "triton"),
    "a MemPool, and a graph in it": (MEM_POOL, None),
    "a smaller batch after out of memory": (REFUSED, None),
    "with CuPy": (CUPY, "cupy"),
    "with Numba": (NUMBA, "numba.cuda"),
}
LIMITED = " | limit(1GiB)"
WAYS = [("plug-in", "async | pool"), ("extension", "async | pool"), ("extension", "virtual_memory | pool"),
        ("extension", "device | pool")]
WHOLE = [way for way in WAYS if way[0] == "extension"]  # PyTorch's plug-in has no checkpoints
POOLS = [("segments", "async"), ("segments", "virtual_memory | pool"), *WAYS[1:]]  # PyTorch's allocator takes segments
WAYS_OF = {MEM_POOL: POOLS, COMPILED: WHOLE}
TRAININGS = {  # what sets PyTorch up, or weir
    "native": {}, "expandable": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "cudaMallocAsync": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
    "weir, async | pool": {"TRAINED_ON": "async | pool"},
    "weir, virtual_memory | pool": {"TRAINED_ON": "virtual_memory | pool"},
}
# PyTorch's own numbers come from weir where it is the whole allocator.
TRAIN = """
import os, runpy, sys
sys.path.insert(0, CLIENTS)
import torch
stack = os.environ.get('TRAINED_ON')
if stack:
    import weir.torch
    weir.torch.install(stack, extension=True)
sys.argv = ['torch_training.py', MODEL]
try: runpy.run_path(CLIENTS + '/torch_training.py', run_name='__main__')
finally: print('of the device:', (lambda free, all: all - free)(*torch.cuda.mem_get_info()) >> 20, 'MiB')
"""


def said(python, library, program, arguments=(), environment=None):
    program = f"CLIENTS = {str(ROOT / 'test' / 'clients')!r}\n" + program
    done = subprocess.run([python, "-c", program, *arguments], capture_output=True, text=True, timeout=180, env={
        **os.environ, "WEIR_LIBRARY": str(library), "PYTHONPATH": f"{ROOT / 'python'}:{os.environ.get('PYTHONPATH', '')}",
        "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})})
    lines = done.stdout.strip().splitlines()
    return done.returncode == 0, lines if done.returncode == 0 else lines + done.stderr.strip().splitlines()[-12:]


def has(python, module):
    find = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
    return module is None or subprocess.run([python, "-c", find], capture_output=True).returncode == 0


def compared(python, library, at_once, only):
    failed, rows = 0, []
    for what, (program, needed) in PROGRAMS.items():
        if only not in what:
            continue
        if not has(python, needed):
            print(f"skipped: {what}: {python} has no {needed}")
            continue
        more = LIMITED if program is REFUSED else ""
        for way, stack in [("native", "-"), *WAYS_OF.get(program, WAYS)]:
            rows.append((what, way, stack, at_once.submit(said, python, library, START + program, (way, stack + more))))
    for what, way, stack, answer in rows:
        try:
            good, lines = answer.result()
        except subprocess.TimeoutExpired:
            good, lines = False, ["did not end"]
        if way == "native":
            there, expected = good, lines[-1:]
            if not good:
                print(f"skipped: {what}: it fails without weir: {lines[-1]}")
        if not there:
            continue
        right = good and lines[-1:] == expected and not (what.startswith("tensors") and lines[-1:] != ["0"])
        failed += not right
        print(f"{'ok   ' if right else 'FAILS'} {what:36} {way:10} {stack:22}", "" if right else "\n  ".join(["", *lines]),
              flush=True)
        if not right and good:
            print("  expected", expected)
    return failed


def trainings(python, library, at_once):
    rows = [(model, name, at_once.submit(said, python, library, f"MODEL = {model!r}\n" + TRAIN, (), environment))
            for model in ("gpt", "resnet", "diffusion") for name, environment in TRAININGS.items()]
    for model, name, answer in rows:
        good, lines = answer.result()
        peak = next((re.findall(r"([0-9.]+) MiB", line) for line in lines if line.startswith("peak")), lines)
        print(f"{'ok   ' if good else 'FAILS'} {model:10} {name:28} allocated, reserved: {', '.join(peak)} MiB", flush=True)
    return sum(not answer.result()[0] for *_, answer in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", nargs="?", default=sys.executable)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    gpu = "import torch, sys; sys.exit(not torch.cuda.is_available())"
    if not has(options.python, "torch") or subprocess.run([options.python, "-c", gpu], capture_output=True).returncode != 0:
        print(f"skipped: PyTorch is not there, or it finds no GPU: {options.python}")
        return 0
    library = plug_in.built(ROOT / "build" / "gpu_torch")
    said(options.python, library, "import torch, weir.torch\nweir.torch.install('async', extension=True)")  # compile it once
    with concurrent.futures.ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as at_once:
        failed = compared(options.python, library, at_once, options.only)
        if not options.only:
            failed += trainings(options.python, library, at_once)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
