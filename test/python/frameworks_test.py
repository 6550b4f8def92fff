"""What the package does to PyTorch, CuPy and Numba, shown by modules in their place that write down what they are
given. With the real ones: docs/pytorch.md."""
import ctypes
import os
import sys
import tempfile
import types
import unittest
import unittest.mock

import weir
from weir import _extension, _library

MIB = 1 << 20


def function_at(address, result, *arguments):
    return ctypes.CFUNCTYPE(result, *arguments)(address)


class Hooks:
    """PyTorch's object of a pluggable allocator."""

    def __init__(self):
        self.set = {}

    def __getattr__(self, name):
        if not name.startswith("set_"):
            raise AttributeError(name)
        return lambda address: self.set.__setitem__(name, address)


def fake_torch(cuda="13.2", initialized=False, backend="native"):
    torch = types.ModuleType("torch")
    torch.__version__ = "2.15.0"
    torch.version = types.SimpleNamespace(cuda=cuda)

    class CUDAPluggableAllocator:
        def __init__(self, path, malloc, free):
            loaded = ctypes.CDLL(path)
            self.malloc = ctypes.cast(getattr(loaded, malloc), ctypes.c_void_p).value
            self.free = ctypes.cast(getattr(loaded, free), ctypes.c_void_p).value
            self.hooks = Hooks()

        def allocator(self):
            return self.hooks

    changed = []
    memory = types.SimpleNamespace(CUDAPluggableAllocator=CUDAPluggableAllocator,
                                   change_current_allocator=changed.append, get_allocator_backend=lambda: backend)
    torch.cuda = types.SimpleNamespace(memory=memory, is_initialized=lambda: initialized,
                                       MemPool=lambda hooks: types.SimpleNamespace(hooks=hooks))
    torch.changed = changed
    return torch


class Extension(unittest.TestCase):
    def test_the_compiler_may_be_a_command_of_several_words(self):
        for given, words in (("ccache g++ -m64", ["ccache", "g++", "-m64"]), ("", ["c++"])):
            with unittest.mock.patch.dict(os.environ, CXX=given, CUDA_HOME=self.toolkit()):
                command = _extension.command("torch", "out.so", ["a.cpp"], "library.so")
                self.assertEqual(command[:len(words) + 1], [*words, "-std=c++20"])

    def test_a_compiler_that_is_not_there_is_named(self):
        torch = fake_torch()
        torch.__file__, torch._C = "torch/__init__.py", types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=True)
        there = dict(CXX="/none/g++", CUDA_HOME=self.toolkit(), XDG_CACHE_HOME=self.toolkit())
        with unittest.mock.patch.dict(os.environ, **there):
            with self.assertRaisesRegex(RuntimeError, "takes a C.. compiler, and /none/g.. cannot be run .No such"):
                _extension.built(torch)

    def toolkit(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.mkdir(os.path.join(folder.name, "include"))
        open(os.path.join(folder.name, "include", "cuda_runtime_api.h"), "w").close()
        return folder.name


class PyTorch(unittest.TestCase):
    def with_torch(self, **facts):
        sys.modules["torch"] = fake_torch(**facts)
        self.addCleanup(sys.modules.pop, "torch")
        import weir.torch

        return sys.modules["torch"], weir.torch

    def test_install_gives_pytorch_the_functions_and_every_hook(self):
        torch, plug = self.with_torch()
        weir.use("async | pool | limit(8MiB)", device=0)
        plug.install()
        (allocator,) = torch.changed
        malloc = function_at(allocator.malloc, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
        free = function_at(allocator.free, None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
        p = malloc(MIB, 0, None)
        self.assertEqual(weir.limit(device=0).used, MIB)
        function_at(allocator.hooks.set["set_record_stream_fn"], None, ctypes.c_void_p, ctypes.c_void_p)(p, None)
        free(p, MIB, 0, None)
        function_at(allocator.hooks.set["set_reset_fn"], None)()
        self.assertEqual(weir.limit(device=0).used, 0)
        self.assertIn("0 B reserved", weir.report(0))
        set_fraction = function_at(allocator.hooks.set["set_memory_fraction_fn"], None, ctypes.c_double, ctypes.c_int)
        for fraction, budget in ((0, 0), (0.25, 4 << 30)):
            set_fraction(fraction, 0)
            self.assertEqual(weir.limit(device=0).max_bytes, budget)
        self.assertLessEqual({"set_begin_allocate_to_pool", "set_end_allocate_to_pool_fn", "set_release_pool"},
                             set(allocator.hooks.set))

    def test_a_second_install_is_refused_and_leaves_the_stack(self):
        torch, plug = self.with_torch(backend="pluggable")
        weir.use("async | limit(1MiB, name=first)", device=5)
        with self.assertRaisesRegex(RuntimeError, "has the allocator 'pluggable' already.*weir.use.. chooses another"):
            plug.install("async")
        self.assertEqual((torch.changed, weir.limit("first", 5).max_bytes), ([], MIB))

    def test_install_is_too_late_once_cuda_is_in_use(self):
        torch, plug = self.with_torch(initialized=True)
        with self.assertRaisesRegex(RuntimeError, "PyTorch has used CUDA already.*right after `import torch`"):
            plug.install()
        self.assertEqual(torch.changed, [])

    def test_a_wrong_text_leaves_pytorch_its_allocator(self):
        torch, plug = self.with_torch()
        with self.assertRaisesRegex(weir.ConfigError, "column 1: 'pool' is an adaptor"):
            plug.install("pool")
        self.assertEqual(torch.changed, [])

    def test_another_version_of_cuda_is_refused(self):
        other = "12.8" if _library.library().weir_compiled_for() // 1000 == 13 else "13.0"
        _, plug = self.with_torch(cuda=other)
        with self.assertRaisesRegex(ImportError, f"PyTorch 2.15.0 uses CUDA {other[:2]}: a process cannot have both"):
            plug.install()

    def test_pytorch_without_cuda_is_refused(self):
        _, plug = self.with_torch(cuda=None)
        with self.assertRaisesRegex(ImportError, "this PyTorch was built without CUDA"):
            plug.pool()

    def test_a_pool_gets_null_for_out_of_memory_so_that_pytorch_tries_again(self):
        torch, plug = self.with_torch()
        weir.use("async | limit(8MiB)", device=1)
        made = plug.pool()
        malloc = function_at(made.allocator_of_weir.malloc, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int,
                             ctypes.c_void_p)
        self.assertIsNone(malloc(9 * MIB, 1, None))
        self.assertIs(made.hooks, made.allocator_of_weir.hooks)


class CuPy(unittest.TestCase):
    def test_arrays_are_of_the_current_stream_and_device(self):
        class UnownedMemory:
            def __init__(self, ptr, size, owner, device_id):
                self.ptr, self.size, self.owner, self.device_id = ptr, size, owner, device_id

        cupy = types.ModuleType("cupy")
        cupy.__version__ = "14.2"
        stream = types.SimpleNamespace(ptr=0)
        given = []
        cupy.cuda = types.SimpleNamespace(
            set_allocator=given.append, get_current_stream=lambda: stream, UnownedMemory=UnownedMemory,
            MemoryPointer=lambda memory, offset: memory,
            runtime=types.SimpleNamespace(getDevice=lambda: 2, runtimeGetVersion=_library.library().weir_compiled_for))
        sys.modules["cupy"] = cupy
        self.addCleanup(sys.modules.pop, "cupy")
        import weir.cupy

        weir.use("async | pool | limit(8MiB)", device=2)
        weir.cupy.install()
        (allocate,) = given
        array = allocate(MIB)
        self.assertEqual((array.size, array.device_id), (MIB, 2))
        self.assertIs(array.owner.stream, stream)
        self.assertEqual(weir.limit(device=2).used, MIB)
        with self.assertRaises(MemoryError):
            allocate(16 * MIB)
        del array
        self.assertEqual(weir.limit(device=2).used, 0)
        self.assertEqual(allocate(0).ptr, 0)


class Numba(unittest.TestCase):
    def with_numba(self):
        """The module, and a list of the managers that it is given."""
        numba = types.ModuleType("numba")

        class HostOnlyCUDAMemoryManager:
            def __init__(self, context):
                self.context = context

        class MemoryPointer:
            def __init__(self, context, pointer, size, finalizer):
                self.pointer, self.size, self.finalizer = pointer, size, finalizer

        set_to = []
        self.device = types.SimpleNamespace(primary_context=None)
        driver = types.SimpleNamespace(devices={0: self.device})
        numba.cuda = types.SimpleNamespace(
            cudadrv=types.SimpleNamespace(driver=types.SimpleNamespace(driver=driver)),
            GetIpcHandleMixin=type("GetIpcHandleMixin", (), {}), HostOnlyCUDAMemoryManager=HostOnlyCUDAMemoryManager,
            MemoryPointer=MemoryPointer, MemoryInfo=lambda free, total: (free, total),
            set_memory_manager=set_to.append)
        sys.modules["numba"] = numba
        self.addCleanup(sys.modules.pop, "numba")
        sys.modules.pop("weir.numba", None)  # which has the module of the test before
        import weir.numba

        return set_to

    def test_install_is_too_late_once_numba_has_used_cuda(self):
        set_to = self.with_numba()
        self.device.primary_context = types.SimpleNamespace(memory_manager=object())
        with self.assertRaisesRegex(RuntimeError, "Numba has used CUDA already.*before the first array"):
            weir.numba.install()
        self.assertEqual(set_to, [])
        self.device.primary_context.memory_manager = weir.numba.MemoryManager(None)
        weir.numba.install()

    def test_arrays_share_the_budget_and_know_the_device(self):
        set_to = self.with_numba()
        weir.use("async | pool | limit(8MiB)", device=3)
        weir.numba.install()
        (manager,) = set_to
        self.assertIs(manager, weir.numba._numba_memory_manager)
        made = manager(types.SimpleNamespace(device=types.SimpleNamespace(id=3)))
        array = made.memalloc(MIB)
        self.assertEqual(weir.limit(device=3).used, MIB)
        array.finalizer()
        self.assertEqual(weir.limit(device=3).used, 0)
        free, total = made.get_memory_info()
        self.assertEqual(total, 16 << 30)
        self.assertLessEqual(free, total)
        self.assertEqual(made.interface_version, 1)


if __name__ == "__main__":
    unittest.main()
