"""The shared library behind the package, and how its errors become Python's."""
import ctypes
import functools
import glob
import importlib.util
import operator
import os

_HERE = os.path.dirname(os.path.abspath(__file__))


class OutOfMemoryError(MemoryError):
    """The memory cannot be had. The text is the report: what was asked for, which layer refused, what each holds."""


class ConfigError(ValueError):
    """A text that is no stack, a device that is not there, a limit that no layer has."""


class TooLateError(RuntimeError):
    """The stack of a device is there already and cannot be chosen any more."""


class CudaError(RuntimeError):
    """A call of CUDA's failed."""


_ERRORS = {1: OutOfMemoryError, 2: ConfigError, 3: TooLateError, 4: CudaError, 5: RuntimeError}


class LimitNumbers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("used", "max_bytes", "peak", "refused")]


_POINTER, _SIZE, _DEVICE, _STREAM = ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p
_U64, _TEXT = ctypes.c_uint64, ctypes.c_char_p
_ARGUMENTS = {
    "malloc": [ctypes.POINTER(_POINTER), _SIZE, _DEVICE, _STREAM],
    "free": [_POINTER, _SIZE, _DEVICE, _STREAM],
    "record_stream": [_POINTER, _STREAM],
    "use": [_TEXT, _DEVICE],
    "trim": [ctypes.POINTER(_U64), _DEVICE],
    "report": [ctypes.POINTER(_TEXT), _DEVICE],
    "numbers": [ctypes.POINTER(_TEXT), _DEVICE],
    "reset_peaks": [_DEVICE],
    "limit": [ctypes.POINTER(LimitNumbers), _DEVICE, _TEXT],
    "set_limit": [_DEVICE, _TEXT, _U64],
    "device_memory": [ctypes.POINTER(_U64), ctypes.POINTER(_U64), _DEVICE],
    "current_device": [ctypes.POINTER(_DEVICE)],
}


_RANGES = {_SIZE: (-(1 << 63), (1 << 63) - 1), _DEVICE: (-(1 << 31), (1 << 31) - 1), _U64: (0, (1 << 64) - 1),
           _STREAM: (0, (1 << 64) - 1)}


def _checked(kind, value):
    """The value as ctypes takes it: an int for a number, of whichever type. Refuses what ctypes would cut off without a
    word."""
    if kind is _TEXT and b"\0" in value:
        raise ConfigError(f"weir: {value.decode()!r} has a NUL character in it, at which a text ends")
    if kind not in _RANGES:
        return value
    least, most = _RANGES[kind]
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"weir: a whole number was expected, and {value!r} was given") from None
    if not least <= number <= most:
        raise ConfigError(f"weir: {number} was given; it must be from {least} to {most}")
    return number


def path():
    """The file of the library: that of the package, or what the environment variable WEIR_LIBRARY names."""
    named = os.environ.get("WEIR_LIBRARY")
    found = named or os.path.join(_HERE, "libweir_plug_in.so")
    if not os.path.exists(found):
        raise ImportError(
            f"weir: there is no {found}; "
            + ("WEIR_LIBRARY names it" if named else "install the package with `pip install ./python`")
        )
    return found


def packaged_runtimes(name="libcudart.so.*"):
    """NVIDIA's runtime libraries in the packages that come with PyTorch and CuPy."""
    nvidia = importlib.util.find_spec("nvidia")
    folders = nvidia.submodule_search_locations if nvidia else []
    return [found for folder in folders for found in glob.glob(os.path.join(folder, "*", "lib", name))]


def _load(file):
    """Loads the library on the CUDA runtime that the process has, or else on one that can be found."""
    try:
        return ctypes.CDLL(file)
    except OSError as error:
        if "undefined symbol: _ZN4weir3sim" in str(error):
            raise ImportError(
                "weir: the package was built with WEIR_CHECKED, and runs on the simulated runtime alone: start the "
                "program with sim/run, or install the package without that"
            ) from error
        name = str(error).split(":")[0]
        if not name.startswith("libcudart"):
            raise ImportError(f"weir: {error}") from error
        runtimes = packaged_runtimes(name)
        if not runtimes:
            raise ImportError(
                f"weir: {name} was not found: import the framework first, name its folder in LD_LIBRARY_PATH, "
                "or use the simulated runtime's"
            ) from error
        ctypes.CDLL(runtimes[0], mode=ctypes.RTLD_GLOBAL)
        return ctypes.CDLL(file)


@functools.lru_cache(maxsize=None)
def library():
    """The library, loaded when it is first needed: importing the package alone needs no CUDA."""
    loaded = _load(path())
    loaded.weir_error_text.restype = ctypes.c_char_p
    for name, arguments in _ARGUMENTS.items():
        getattr(loaded, "weir_try_" + name).argtypes = arguments
    return loaded


def call(name, *arguments):
    """Calls `weir_try_<name>`, and raises what went wrong."""
    loaded = library()
    values = [_checked(kind, value) for kind, value in zip(_ARGUMENTS[name], arguments)]
    status = getattr(loaded, "weir_try_" + name)(*values)
    if status != 0:
        raise _ERRORS[status](loaded.weir_error_text().decode(errors="replace"))


def address(name):
    """The address of a function, for frameworks that take one."""
    return ctypes.cast(getattr(library(), name), ctypes.c_void_p).value


def require_cuda(major, whose):
    """Refuses to run on another major version of CUDA than the library was compiled for."""
    own = library().weir_compiled_for() // 1000
    if major is not None and int(major) != own:
        raise ImportError(
            f"weir: this package was built for CUDA {own}, and {whose} uses CUDA {major}: a process cannot have both. "
            f"Build it with the headers of CUDA {major} (`pip install ./python` finds those of the toolkit)"
        )
