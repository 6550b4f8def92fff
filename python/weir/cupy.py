"""weir as CuPy's allocator."""
import weir
from weir import _library

__all__ = ["allocator", "install"]


def allocator(size):
    """What `cupy.cuda.set_allocator` takes: memory of the current device for the current stream."""
    import cupy

    stream = cupy.cuda.get_current_stream()
    device = cupy.cuda.runtime.getDevice()
    block = weir.Block(size, device, stream.ptr)
    block.stream = stream  # must not end before its memory is given back
    return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(block.ptr, size, block, device), 0)


def install(stack=None):
    """Lets CuPy allocate from weir: arrays that are there keep the memory that they have. `stack` as in
    `weir.torch.install`. Out of memory is a `weir.OutOfMemoryError`, which is a MemoryError as CuPy's own is.

    An array is given back in the order of the stream that was current when it was made: wait for other streams first,
    as with CuPy's own pool."""
    import cupy

    _library.require_cuda(cupy.cuda.runtime.runtimeGetVersion() // 1000, f"CuPy {cupy.__version__}")
    if stack is not None:
        weir.use(stack)
    cupy.cuda.set_allocator(allocator)
