"""One stack of CUDA memory resources under PyTorch, CuPy and Numba.

A stack is a text, as `"async | pool | limit(60%)"`: where memory comes from, and what is done with it on its way. Each
device has one stack, made when the device is first asked for memory, and shared by all frameworks of the process:

    import weir.torch
    weir.torch.install("async | pool | limit(60%, name=all)")   # PyTorch's allocator from now on
    weir.limit("all").max_bytes                                 # what PyTorch and others may have together
    print(weir.report())                                        # who holds what

The environment variable WEIR_STACK comes before the text in the program.
"""
import ctypes
import json

from weir._library import ConfigError, CudaError, LimitNumbers, OutOfMemoryError, TooLateError, call

__all__ = [
    "Block", "ConfigError", "CudaError", "Limit", "OutOfMemoryError", "TooLateError", "allocate", "limit", "numbers",
    "report", "reset_peaks", "trim", "use",
]

_CURRENT, _ALL = -1, -1


def _number(device):
    return _CURRENT if device is None else device


def _chosen(device):
    """The number of a device that is to stay the same, whichever is current later, and in other threads."""
    if device is not None:
        return device
    current = ctypes.c_int()
    call("current_device", ctypes.byref(current))
    return current.value


def _text(given):
    if not isinstance(given, str):
        raise TypeError(f"weir: a text was expected, as 'async | pool', and {given!r} was given")
    return given.encode()


def use(stack, device=None):
    """Chooses the stack of a device (None: of each) by its text. Raises ConfigError for a text that is none, and
    TooLateError where the device has another stack already. Makes nothing yet, and calls no CUDA."""
    call("use", _text(stack), _ALL if device is None else device)


class Limit:
    """A budget of a stack (`limit(60%, name=service)`), in bytes."""

    def __init__(self, name, device):
        self._name, self._device = _text(name), device
        self._numbers()

    def _numbers(self):
        numbers = LimitNumbers()
        call("limit", ctypes.byref(numbers), self._device, self._name)
        return numbers

    @property
    def used(self):
        """What is charged now."""
        return self._numbers().used

    @property
    def peak(self):
        """The most that was charged at one time."""
        return self._numbers().peak

    @property
    def refused(self):
        """How many requests were refused."""
        return self._numbers().refused

    @property
    def max_bytes(self):
        """The budget; may be set. What is in use stays, also where that is more."""
        return self._numbers().max_bytes

    @max_bytes.setter
    def max_bytes(self, value):
        call("set_limit", self._device, self._name, value)

    def __repr__(self):
        n = self._numbers()
        return f"weir.Limit({self._name.decode()!r}: {n.used} of {n.max_bytes} B, peak {n.peak}, {n.refused} refused)"


def limit(name="", device=None):
    """The budget called `name` of a device's stack (None: of the device that is current now); without a name the
    outermost. Raises ConfigError where there is none."""
    return Limit(name, _chosen(device))


def report(device=None):
    """What each layer of a device's stack holds, for people: the text of an out-of-memory error without the error."""
    text = ctypes.c_char_p()
    call("report", ctypes.byref(text), _number(device))
    return text.value.decode(errors="replace")


def numbers(device=None):
    """The numbers of all layers of a device's stack, as a dictionary: docs/tools.md says what each is."""
    text = ctypes.c_char_p()
    call("numbers", ctypes.byref(text), _number(device))
    return json.loads(text.value)


def reset_peaks(device=None):
    """Lets the peaks of all layers start again from what is so now."""
    call("reset_peaks", _number(device))


def trim(device=None):
    """Waits for the work of freed blocks and gives idle memory back, of one device or of all (None). Returns how many
    bytes the devices have more of."""
    released = ctypes.c_uint64()
    call("trim", ctypes.byref(released), _ALL if device is None else device)
    return released.value


class Block:
    """Memory of a device, until `free` or until nobody refers to it. `ptr` is its address, an integer."""

    ptr = 0  # also of one whose making was refused

    def __init__(self, size, device, stream):
        # What `__del__` needs, since a module may be gone by then.
        self.size, self._free = size, call
        self._order = (device, stream)
        p = ctypes.c_void_p()
        call("malloc", ctypes.byref(p), size, device, stream)
        self.ptr = p.value or 0

    def record_stream(self, stream):
        """The block is used on another stream as well: what is freed waits for that."""
        if self.ptr:
            call("record_stream", self.ptr, stream)

    def free(self):
        """Gives the memory back: it is used again after the work queued on its streams. Once is enough."""
        p, self.ptr = self.ptr, 0
        if p:
            self._free("free", p, self.size, *self._order)

    def __reduce_ex__(self, protocol):
        raise TypeError("weir: a Block cannot be copied or pickled: its memory would be given back twice")

    def __del__(self):
        self.free()


def allocate(size, device=None, stream=0):
    """`size` bytes of a device for a stream (`cudaStream_t` as an integer, as frameworks give it). Raises
    OutOfMemoryError with the report."""
    return Block(size, _chosen(device), stream)
