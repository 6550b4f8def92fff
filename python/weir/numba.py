"""weir under Numba: its External Memory Manager.

    import weir.numba
    weir.numba.install("async | pool")      # before the first use of numba.cuda

or, without a change of the program, NUMBA_CUDA_MEMORY_MANAGER=weir.numba in its environment.
"""
import ctypes

from numba import cuda

import weir
from weir._library import call

__all__ = ["MemoryManager", "install"]


class MemoryManager(cuda.GetIpcHandleMixin, cuda.HostOnlyCUDAMemoryManager):
    """Device memory from weir; host memory is Numba's own. Arrays belong to the legacy default stream, which waits for
    Numba's streams and is waited for by them, so an array may be dropped while they use it."""

    def initialize(self):
        pass

    def memalloc(self, size):
        block = weir.Block(size, self.context.device.id, 0)
        return cuda.MemoryPointer(self.context, ctypes.c_void_p(block.ptr), size, finalizer=block.free)

    def get_memory_info(self):
        free, total = ctypes.c_uint64(), ctypes.c_uint64()
        call("device_memory", ctypes.byref(free), ctypes.byref(total), self.context.device.id)
        return cuda.MemoryInfo(free=free.value, total=total.value)

    @property
    def interface_version(self):
        return 1


_numba_memory_manager = MemoryManager  # what NUMBA_CUDA_MEMORY_MANAGER looks for


def _managers():
    """Those of the contexts that Numba has made, each of which keeps its own."""
    try:
        contexts = [device.primary_context for device in cuda.cudadrv.driver.driver.devices.values()]
        return [context.memory_manager for context in contexts if context is not None]
    except AttributeError:  # a Numba that keeps them elsewhere
        return []


def install(stack=None):
    """Lets Numba allocate from weir. `stack` as in `weir.torch.install`. Call it before Numba first uses CUDA; raises
    RuntimeError where it is too late."""
    if not all(isinstance(manager, MemoryManager) for manager in _managers()):
        raise RuntimeError(
            "weir: Numba has used CUDA already, and keeps the memory manager that it has: call weir.numba.install() "
            "before the first array, or start the program with NUMBA_CUDA_MEMORY_MANAGER=weir.numba"
        )
    if stack is not None:
        weir.use(stack)
    cuda.set_memory_manager(MemoryManager)
