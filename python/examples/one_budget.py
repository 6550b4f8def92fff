"""PyTorch, CuPy and Numba in one process, on one stack of memory with one budget: what one of them frees is the others'
at once, none can take more than what is left, and the error says who holds what.

    sim/run --quiet python python/examples/one_budget.py       # or on a GPU, without sim/run
"""
import torch

import weir
import weir.torch

MIB = 1 << 20

weir.torch.install("async | pool | limit(max=64MiB, name=all) | statistics")


def used():
    return weir.limit("all").used // MIB


def with_numba():
    """An array of Numba's beside PyTorch's; None where Numba is not installed."""
    try:
        import numpy
        import weir.numba
        from numba import cuda
    except ImportError:
        return None
    weir.numba.install()
    return cuda.device_array(8 * MIB, numpy.uint8)


def with_cupy():
    """The same of CuPy's, which needs a GPU: NVIDIA's runtime is linked into it."""
    try:
        import cupy
        import weir.cupy
        weir.cupy.install()
        return cupy.empty(8 * MIB, "u1")
    except Exception as why:
        print("without CuPy:", str(why).splitlines()[0])
        return None


weights = torch.empty(32 * MIB, dtype=torch.uint8, device="cuda")
print("PyTorch holds", used(), "MiB")
assert used() == 32

table = with_numba()
if table is not None:
    print("with Numba", used(), "MiB")
    assert used() == 40

image = with_cupy()
if image is not None:
    print("with CuPy", used(), "MiB")

try:
    torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
    raise AssertionError("more than the budget was given")
except RuntimeError as refused:  # torch.cuda.OutOfMemoryError with install(..., extension=True)
    print(refused)

del weights
activations = torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
print("and after PyTorch freed its weights,", used(), "MiB")
print(weir.report())
