"""The whole allocator for PyTorch, compiled for the version that is installed."""
import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile

from weir import _library

_HERE = os.path.dirname(os.path.abspath(__file__))


def _sources():
    """The folder with extension.cpp: beside this file where it is installed, else in the sources."""
    for folder in (_HERE, os.path.join(os.path.dirname(_HERE), "src")):
        if os.path.exists(os.path.join(folder, "extension.cpp")):
            return folder
    raise ImportError(f"weir: extension.cpp is missing beside {__file__}")


def cuda_headers():
    """The folder with CUDA's headers: of a toolkit, or of NVIDIA's packages."""
    roots = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    nvcc = shutil.which("nvcc")
    roots += [os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))] if nvcc else []
    roots += ["/usr/local/cuda"]
    folders = [os.path.join(root, "include") for root in roots if root]
    folders += [os.path.join(os.path.dirname(found), "..", "include") for found in _library.packaged_runtimes()]
    for folder in folders:
        if os.path.exists(os.path.join(folder, "cuda_runtime_api.h")):
            return folder
    raise ImportError("weir: CUDA's headers are missing: set CUDA_HOME to a CUDA Toolkit")


def command(torch_folder, output, sources, library, *more):
    """What compiles something for the PyTorch in a folder: with its classes and weir's C functions."""
    include, libraries = (os.path.join(torch_folder, name) for name in ("include", "lib"))
    return [
        *(shlex.split(os.environ.get("CXX", "")) or ["c++"]),
        "-std=c++20", "-O2", "-DNDEBUG", "-w", "-I" + _sources(), "-isystem", include,
        "-isystem", os.path.join(include, "torch", "csrc", "api", "include"), "-isystem", cuda_headers(),
        *sources, "-o", output, library, "-L" + libraries, "-lc10", "-lc10_cuda", "-ltorch_cpu", "-ltorch_cuda",
        "-Wl,--unresolved-symbols=ignore-all", *more,
    ]


AS_LIBRARY = ("-shared", "-fPIC", "-fvisibility=hidden")


def built(torch):
    """The compiled file; made once for each version of PyTorch and of the source."""
    folder = _sources()
    source = os.path.join(folder, "extension.cpp")
    key = hashlib.sha256()
    for name in ("extension.cpp", "graph_blocks.h", "plug_in.h"):
        with open(os.path.join(folder, name), "rb") as file:
            key.update(file.read())
    key.update(f"{torch.__version__} {torch.__file__} {_library.path()}".encode())
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    output = os.path.join(cache, "weir", f"torch-{torch.__version__}-{key.hexdigest()[:16]}.so")
    if os.path.exists(output):
        return output
    os.makedirs(os.path.dirname(output), exist_ok=True)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(output)) as temporary:
        made = os.path.join(temporary, "extension.so")
        abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"
        compile_it = command(os.path.dirname(torch.__file__), made, [source], _library.path(), *AS_LIBRARY, abi)
        try:
            done = subprocess.run(compile_it, capture_output=True, text=True)
        except OSError as why:
            raise RuntimeError(
                f"weir: the allocator for PyTorch {torch.__version__} takes a C++ compiler, and {compile_it[0]} cannot "
                f"be run ({why.strerror}): install one, or name it in CXX; without it, weir.torch.install() serves, but "
                "for torch.cuda's statistics"
            ) from why
        if done.returncode != 0:
            errors = [line for line in done.stderr.splitlines() if "error" in line][:5] or done.stderr.splitlines()[-5:]
            raise RuntimeError(
                f"weir: the allocator could not be compiled for PyTorch {torch.__version__}; without it, "
                "weir.torch.install() serves, but for torch.cuda's statistics. The compiler says:\n  "
                + "\n  ".join(errors)
            )
        os.replace(made, output)  # whole or not at all, whoever else compiles it
    return output


def install(torch):
    """Makes it PyTorch's allocator."""
    _library.library()  # the extension finds it by its name
    loaded = ctypes.CDLL(built(torch))
    loaded.weir_extension_install.restype = ctypes.c_char_p
    wrong = loaded.weir_extension_install()
    if wrong:
        raise RuntimeError(f"weir: PyTorch refused the allocator: {wrong.decode(errors='replace')}")
