"""What sim/run puts under a program: stubs of libraries that it needs, and PyTorch's peaks by layer, here of a module
with PyTorch's names that allocates nothing."""
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMPILER = os.environ.get("CC", "cc")

# A library as NVIDIA's are, with a symbol version, and one of a program's that needs it.
REAL = "int cublasCreate_v2(void **handle) { return 7; } int cublasLtUnneeded(void) { return 0; }"
PROGRAM = """
int cublasCreate_v2(void **);
int program_calls(void) { void *handle; return cublasCreate_v2(&handle); }
"""

TORCH = """
class Tensor:
    grad_fn = None

class cuda:
    now, peak, reserved, device = [0, 0], [0, 0], [64 << 20, 0], 0

    class memory:
        pass

    @staticmethod
    def is_initialized():
        return True

    @staticmethod
    def device_count():
        return DEVICES

    @classmethod
    def current_device(cls):
        return cls.device

    @classmethod
    def allocate(cls, bytes):
        cls.now[cls.device] += bytes
        cls.peak[cls.device] = max(cls.peak[cls.device], cls.now[cls.device])

    @staticmethod
    def mem_get_info(device):
        return 100 << 20, 200 << 20

def number(device):
    return cuda.device if device is None else device

def memory_stats(device=None):
    of = number(device)
    return {"allocated_bytes.all.current": cuda.now[of], "allocated_bytes.all.peak": cuda.peak[of],
            "reserved_bytes.all.peak": max(cuda.peak[of], cuda.reserved[of]),
            "reserved_bytes.all.current": cuda.reserved[of]}

def reset_peak_memory_stats(device=None):
    cuda.peak[number(device)] = cuda.now[number(device)]

cuda.memory_stats = cuda.memory.memory_stats = memory_stats
cuda.memory.reset_peak_memory_stats = cuda.reset_peak_memory_stats = reset_peak_memory_stats
cuda.max_memory_allocated = lambda device=None: cuda.memory.memory_stats(device)["allocated_bytes.all.peak"]

class nn:
    class modules:
        class module:
            before = after = None

            @classmethod
            def register_module_forward_pre_hook(cls, hook):
                cls.before = hook

            @classmethod
            def register_module_forward_hook(cls, hook):
                cls.after = hook

class _tensor_str:
    _tensor_str = None

import sys, types
optimizer = types.ModuleType("torch.optim.optimizer")
optimizer.register_optimizer_step_pre_hook = optimizer.register_optimizer_step_post_hook = lambda hook: None
sys.modules["torch.optim.optimizer"] = optimizer
"""

SCRIPT = """
import torch

class Layer:
    def __init__(self, parts, kept, more):
        self.parts, self.kept, self.more = parts, kept, more

    def named_modules(self, name=""):
        yield name, self
        for key, part in self.parts.items():
            yield from part.named_modules(f"{name}.{key}" if name else key)

    def __call__(self):
        module = torch.nn.modules.module
        module.before(self, ())
        torch.cuda.allocate(self.kept + self.more)
        torch.cuda.allocate(-self.more)
        for part in self.parts.values():
            part()
        module.after(self, (), None)

mib = 1 << 20
Layer({"small": Layer({}, 2 * mib, 1 * mib), "large": Layer({}, 4 * mib, 16 * mib)}, 0, 0)()
print(torch.cuda.max_memory_allocated() // mib)
"""


class Stubs(unittest.TestCase):
    def test_a_library_that_is_missing_is_replaced_by_what_is_needed_of_it(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            (folder / "real.c").write_text(REAL)
            (folder / "program.c").write_text(PROGRAM)
            (folder / "map").write_text("libcublas.so.13 { global: *; };")
            (folder / "libraries").mkdir()
            real = folder / "libcublas.so.13"
            compile_shared = [COMPILER, "-shared", "-fPIC"]
            subprocess.run([*compile_shared, f"-Wl,-soname,{real.name},--version-script={folder / 'map'}", "-o", real,
                            folder / "real.c"], check=True)
            program = folder / "libraries" / "libprogram.so"
            subprocess.run([*compile_shared, "-o", program, folder / "program.c", real], check=True)
            real.unlink()
            made = subprocess.run([ROOT / "sim" / "make-stubs", folder / "stubs", folder / "libraries"], check=True,
                                  capture_output=True, text=True)
            self.assertEqual(made.stdout, "libcublas.so.13: 1 functions\n")
            call = f"import ctypes; print(ctypes.CDLL('{program}').program_calls())"
            called = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True,
                                    env={**os.environ, "LD_LIBRARY_PATH": str(folder / "stubs"), "WEIR_STUBS_VERBOSE": "1"})
            self.assertEqual(called.stdout, "0\n")
            self.assertEqual(called.stderr, "stub: cublasCreate_v2 of libcublas.so.13\n")

    def test_a_folder_without_libraries_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            made = subprocess.run([ROOT / "sim" / "make-stubs", folder, folder], capture_output=True, text=True)
            self.assertEqual(made.returncode, 1)
            self.assertIn("there is no shared library in", made.stderr)


class Running(unittest.TestCase):
    def run_on_sim(self, folder, *arguments):
        """With a build that is there already."""
        (folder / "cmake").write_text("#!/bin/sh\n")
        (folder / "cmake").chmod(0o755)
        return subprocess.run([ROOT / "sim" / "run", "--build", folder, "--quiet", *arguments], capture_output=True,
                              text=True, env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})

    def test_a_file_that_cannot_be_written_is_told_before_the_program_starts(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            cases = {folder / "missing" / "file": "there is no folder " + str(folder / "missing"), folder: "it is a folder",
                     "": "it has no name"}
            for option in ("--report", "--snapshot"):
                for path, why in cases.items():
                    done = self.run_on_sim(folder, option, path, sys.executable, "-c", "print('ran')")
                    self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
                    self.assertEqual(done.stderr, f"sim/run: {option}: '{path}' cannot be written: {why}\n")

    def test_two_dashes_end_the_options(self):
        with tempfile.TemporaryDirectory() as folder:
            program = [sys.executable, "-c", "import sys; print(sys.argv[1:])", "--"]
            done = self.run_on_sim(Path(folder), "--", *program)
            self.assertEqual((done.returncode, done.stdout), (0, "['--']\n"), done.stderr)
            for nothing in ([], ["--"]):
                self.assertIn("no program was given", self.run_on_sim(Path(folder), *nothing).stderr)

    def test_a_file_that_can_be_written_is_left_alone_until_then(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            (folder / "old").write_text("old")
            show = "import pathlib, sys; print([p.exists() and p.read_text() for p in map(pathlib.Path, sys.argv[1:])])"
            for name, seen in (("old", "['old']\n"), ("new", "[False]\n")):
                done = self.run_on_sim(folder, "--report", folder / name, sys.executable, "-c", show, folder / name)
                self.assertEqual((done.returncode, done.stdout), (0, seen), done.stderr)


class Building(unittest.TestCase):
    def test_no_warning_of_a_users_compiler_keeps_a_program_from_running(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            (folder / "cmake").write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\n')
            (folder / "cmake").chmod(0o755)
            done = subprocess.run([ROOT / "sim" / "run", "--build", folder / "build", "true"], capture_output=True,
                                  text=True, env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
            self.assertEqual(done.returncode, 0, done.stderr)
            configured, built = (folder / "asked").read_text().splitlines()
            self.assertIn(" -DWEIR_WARNINGS_AS_ERRORS=OFF", configured)
            self.assertTrue(built.startswith("--build "), built)


# 80 MiB that PyTorch gives back to CUDA, then a layer on another device.
TWO_DEVICES = """
torch.cuda.allocate(80 * mib)
torch.cuda.allocate(-80 * mib)
torch.cuda.reserved = [0, 48 * mib]
Layer({}, 0, 0)()
torch.cuda.device = 1
Layer({}, 8 * mib, 0)()
print([torch.cuda.max_memory_allocated(device) // mib for device in (0, 1)])
torch.cuda.reset_peak_memory_stats(0)
print([torch.cuda.max_memory_allocated(device) // mib for device in (0, 1)])
"""


def run_with_torch(script, devices=1, more="", **environment):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "torch.py").write_text(f"DEVICES = {devices}\n" + textwrap.dedent(TORCH) + more)
        (Path(folder) / "train.py").write_text(script)
        return subprocess.run([sys.executable, Path(folder) / "train.py"], capture_output=True, text=True,
                              env={**os.environ, **environment, "PYTHONPATH": str(ROOT / "sim" / "torch")})


class Peaks(unittest.TestCase):
    def run_with_peaks(self, script, devices=1, more=""):
        return run_with_torch(script, devices, more, SIM_RUN_PEAKS="1")

    def test_memory_counts_for_the_layer_that_runs(self):
        done = self.run_with_peaks(SCRIPT)
        self.assertEqual(done.stdout, "22\n", done.stderr)  # as without the notes
        lines = [line.strip() for line in done.stderr.splitlines()]
        self.assertEqual(lines[1], "22.0  forward large (Layer)")
        self.assertIn("3.0  forward small (Layer)", lines)
        kept = lines[next(i for i, line in enumerate(lines) if "kept by the forward pass" in line):]
        self.assertEqual(kept[1:3], ["4.0  forward large (Layer)", "2.0  forward small (Layer)"])
        self.assertIn("peak 22.0 MiB allocated, 64.0 MiB reserved; with the context's 36 MiB", lines[-1])

    def test_devices_count_by_themselves_and_what_was_given_back_counts(self):
        done = self.run_with_peaks(SCRIPT + TWO_DEVICES, devices=2)
        self.assertEqual(done.stdout, "22\n[86, 8]\n[6, 8]\n", done.stderr)
        lines = [line.strip() for line in done.stderr.splitlines()]
        self.assertIn("8.0  forward Layer, device 1", lines)
        self.assertIn("sim/run: device 0: peak 86.0 MiB allocated, 86.0 MiB reserved; with the context's 100 MiB it "
                      "takes 186 of the device's 200 MiB", lines)
        self.assertIn("sim/run: device 1: peak 8.0 MiB allocated, 48.0 MiB reserved; with the context's 52 MiB it "
                      "takes 100 of the device's 200 MiB", lines)

    def test_an_allocator_without_statistics_does_not_end_the_program(self):
        refuse = """
def refuse(device=None):
    raise RuntimeError("getDeviceStats is not supported")
cuda.memory.memory_stats = refuse
"""
        done = self.run_with_peaks(SCRIPT.replace("print(", "print('done') #"), more=refuse)
        self.assertEqual((done.stdout, done.stderr),
                         ("done\n", "sim/run: there will be no peaks: getDeviceStats is not supported\n"))

    def test_asking_for_statistics_does_not_begin_to_use_the_device(self):
        unused = """
def begin():
    raise RuntimeError("the device is used")
cuda.is_initialized = lambda: False
cuda.current_device = begin
cuda.memory_stats = cuda.memory.memory_stats = lambda device=None: {}
"""
        done = self.run_with_peaks("import torch; print(torch.cuda.memory_stats())", more=unused)
        self.assertEqual((done.stdout, done.stderr), ("{}\n", ""))


class Snapshot(unittest.TestCase):
    def test_says_why_it_cannot_be_written(self):
        history = """
cuda._lazy_call = lambda call: call()
cuda.memory._record_memory_history = lambda: None
cuda.memory._dump_snapshot = lambda path: open(path, "w").close()
"""
        done = run_with_torch("import torch; print('done')", more=history, SIM_RUN_SNAPSHOT="/nowhere/memory.pickle")
        self.assertEqual(done.stdout, "done\n")
        self.assertEqual(done.stderr, "sim/run: no snapshot was written: [Errno 2] No such file or directory: "
                                      "'/nowhere/memory.pickle'\n")


if __name__ == "__main__":
    unittest.main()
