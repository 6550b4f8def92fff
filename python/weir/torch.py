"""weir as PyTorch's allocator, or as the memory of one `torch.cuda.MemPool`."""

import weir
from weir import _library

__all__ = ["extension", "install", "pool"]


def _torch():
    import torch

    cuda = torch.version.cuda
    if cuda is None:
        raise ImportError("weir: this PyTorch was built without CUDA")
    _library.require_cuda(cuda.split(".")[0], f"PyTorch {torch.__version__}")
    return torch


def _c_functions(torch, malloc):
    """PyTorch's object for an allocator of C functions; every hook that it offers is mapped."""
    allocator = torch.cuda.memory.CUDAPluggableAllocator(_library.path(), malloc, "weir_free")
    hooks = allocator.allocator()
    for hook, function in {
        "set_record_stream_fn": "weir_record_stream",  # without it, `Tensor.record_stream` does nothing
        "set_reset_fn": "weir_empty_cache",
        "set_memory_fraction_fn": "weir_set_fraction",
        "set_begin_allocate_to_pool": "weir_begin_graph_pool",
        "set_end_allocate_to_pool_fn": "weir_end_graph_pool",
        "set_release_pool": "weir_release_graph_pool",
    }.items():
        getattr(hooks, hook)(_library.address(function))
    return allocator


def install(stack=None, extension=False):
    """Makes weir PyTorch's allocator, for all devices: call it before PyTorch first uses CUDA.

    `stack` is a text, as "async | pool | limit(60%)"; None leaves the one that `weir.use` or WEIR_STACK chose, or
    "async | pool". `record_stream`, `empty_cache`, graph pools and `set_per_process_memory_fraction` (of a stack with a
    limit) reach weir. Statistics and snapshots of `torch.cuda` need the whole allocator: `extension=True`, which
    compiles it first (`weir.torch.extension`), and then out of memory is a `torch.cuda.OutOfMemoryError`; without it, a
    RuntimeError with the same text.

    Raises ConfigError for a text that is none, RuntimeError where PyTorch has used CUDA already or its allocator is
    another one than its own; the stack stays what it was then."""
    torch = _torch()
    if torch.cuda.is_initialized():
        raise RuntimeError(
            "weir: PyTorch has used CUDA already, and cannot change its allocator any more: call weir.torch.install() "
            "right after `import torch`, before any tensor is on a device and before torch.cuda.init()"
        )
    backend = torch.cuda.memory.get_allocator_backend()
    if backend not in ("native", "cudaMallocAsync"):
        raise RuntimeError(
            f"weir: PyTorch has the allocator '{backend}' already, weir's or another one's, and cannot change it any "
            "more: call weir.torch.install() once; weir.use() chooses another stack until the first is made"
        )
    if stack is not None:
        weir.use(stack)
    if extension:
        from weir import _extension

        _extension.install(torch)
    else:
        torch.cuda.memory.change_current_allocator(_c_functions(torch, "weir_malloc"))


def pool(stack=None):
    """A `torch.cuda.MemPool` whose segments come from weir, for `torch.cuda.use_mem_pool`. PyTorch's allocator stays,
    with its statistics, and asks weir for its segments only: budgets and reports count those. May be made at any time."""
    torch = _torch()
    if stack is not None:
        weir.use(stack)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(_library.path(), "weir_malloc_segment", "weir_free_segment")
    made = torch.cuda.MemPool(allocator.allocator())
    made.allocator_of_weir = allocator  # has to live as long as the pool
    return made


def extension():
    """Compiles the whole allocator for the PyTorch that is installed, once for each version of it, and returns the file:
    `install(..., extension=True)` does it too. Takes a C++ compiler, CUDA's headers, and most of a minute."""
    from weir import _extension

    return _extension.built(_torch())
