"""The package by itself: stacks from text, memory, limits, reports and errors. A device has one stack for the life of a
process, so each test has a device of its own."""
import copy
import ctypes
import gc
import os
import pickle
import subprocess
import sys
import threading
import unittest
import unittest.mock

import weir
from weir import _library

MIB = 1 << 20


def in_process(program, **environment):
    """Runs a program of Python, and gives what it prints."""
    done = subprocess.run([sys.executable, "-B", "-c", program], env={**os.environ, **environment},
                          capture_output=True, text=True)
    return done.stdout + done.stderr


class Memory(unittest.TestCase):
    def test_a_block_is_given_back_by_free_or_when_nobody_has_it(self):
        weir.use("device | pool | statistics", device=0)
        block = weir.allocate(1000, device=0)
        self.assertEqual(block.ptr % 256, 0)
        self.assertNotEqual(block.ptr, 0)
        requested = lambda: weir.numbers(0)["layers"][0]["requested"]
        self.assertEqual(requested(), 1000)
        block.free()
        block.free()
        self.assertEqual(requested(), 0)
        weir.allocate(500, device=0).record_stream(0)
        gc.collect()
        self.assertEqual(requested(), 0)
        self.assertEqual(weir.numbers(0)["layers"][0]["requested_peak"], 1000)
        weir.reset_peaks(0)
        self.assertEqual(weir.numbers(0)["layers"][0]["requested_peak"], 0)

    def test_a_block_cannot_be_copied_since_its_memory_would_go_back_twice(self):
        weir.use("device | pool | statistics", device=0)
        block = weir.allocate(500, device=0)
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with self.assertRaisesRegex(TypeError, "weir: a Block cannot be copied or pickled"):
                copied(block)

    def test_zero_bytes_have_no_address(self):
        self.assertEqual(weir.allocate(0, device=1).ptr, 0)

    def test_a_negative_size_is_refused(self):
        with self.assertRaisesRegex(weir.ConfigError, "a size of -1 B was asked for; it must be 0 or more"):
            weir.allocate(-1, device=1)

    def test_a_number_that_c_would_cut_off_is_refused(self):
        for wrong in ({"size": (1 << 64) + 16}, {"size": 16, "device": 1 << 32}, {"size": 16, "stream": 1 << 64}):
            with self.assertRaisesRegex(weir.ConfigError, "was given; it must be from"):
                weir.allocate(**{"device": 1, **wrong})
        for wrong in ({"size": "16"}, {"size": 1.5}, {"size": 16, "device": "1"}):
            with self.assertRaisesRegex(TypeError, "weir: a whole number was expected, and '?1"):
                weir.allocate(**{"device": 1, **wrong})

    def test_numbers_may_be_of_any_type_that_is_one(self):
        class Number:  # as numpy's are
            def __init__(self, value): self.value = value
            def __index__(self): return self.value

        weir.allocate(Number(1000), Number(1), Number(0)).record_stream(Number(0))

    def test_idle_memory_goes_back_to_the_device(self):
        weir.use("device | pool", device=1)
        weir.allocate(3 * MIB, device=1).free()
        self.assertGreaterEqual(weir.trim(1), 3 * MIB)
        self.assertEqual(weir.trim(1), 0)
        weir.allocate(3 * MIB, device=1).free()
        self.assertGreaterEqual(weir.trim(), 3 * MIB)

    def test_threads_share_a_stack(self):
        weir.use("device | pool | statistics", device=2)

        def work():
            for size in range(1, 200):
                weir.allocate(size * 100, device=2).free()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(weir.numbers(2)["layers"][0]["requested"], 0)


class Level(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("current", "peak", "total", "freed")]


class Totals(ctypes.Structure):
    """What PyTorch's statistics are made of."""
    _fields_ = [(name, Level) for name in ("requested", "allocated", "reserved", "live")]
    _fields_ += [("refused", ctypes.c_uint64)]

    @classmethod
    def of(cls, device):
        totals = cls()
        assert _library.library().weir_try_totals(ctypes.byref(totals), device) == 0
        return totals


def totals_after(stack, program):
    """What a program prints that knows `weir_test` and uses a stack."""
    return in_process(f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})\nimport weir, weir_test\n"
                      f"weir.use({stack!r})\n" + program)


class Statistics(unittest.TestCase):
    def test_a_stack_without_blocks_has_none_though_its_layers_hold_memory(self):
        program = ("weir.allocate(4).free()\nt = weir_test.Totals.of(0)\n"
                   "print(t.requested.current, t.allocated.current, t.live.current, t.reserved.current > 0)")
        for stack in ("async | pool", "async | statistics | pool", "virtual_memory | pool | limit(50%)"):
            with self.subTest(stack=stack):
                self.assertEqual(totals_after(stack, program), "0 0 0 True\n")

    def test_no_more_was_freed_than_allocated(self):
        program = ("kept = weir.allocate(4)\n"
                   "show = lambda t: print(t.allocated.total, t.allocated.freed, t.live.total, t.live.freed)\n"
                   "show(weir_test.Totals.of(0)); kept.free(); show(weir_test.Totals.of(0))")
        self.assertEqual(totals_after("async | pool", program), "4 0 1 0\n4 4 1 1\n")

    def test_the_largest_block_is_what_a_pool_has_free_or_the_device_left_and_limits_let(self):
        largest = ("import ctypes\n"
                   "def largest(device=0):\n"
                   "    n = ctypes.c_uint64()\n"
                   "    assert weir._library.library().weir_try_largest(ctypes.byref(n), device) == 0\n"
                   "    return n.value >> 20\n")
        program = (largest + "before = largest()\nkept = weir.allocate(1 << 20)\nweir.allocate(12 << 30).free()\n"
                   "print(before, largest(), largest(1))")
        for stack, wanted in (("async | pool", "16384 12288 16384\n"),
                              ("async | pool | limit(max=12300MiB)", "16384 12288 16384\n"),
                              ("async | limit(max=13GiB) | pool", "16384 12288 16384\n")):
            with self.subTest(stack=stack):
                self.assertEqual(totals_after(stack, program), wanted)
        program = largest + "kept = weir.allocate(1 << 20)\nprint(largest())"
        for stack, wanted in (("async | limit(max=1GiB)", "1023\n"), ("async | pool | limit(max=1GiB)", "1023\n"),
                              ("async | pool(initial=1GiB, max=2GiB)", "1024\n"),
                              ("async | pool(initial=4GiB) | limit(max=1GiB)", "1023\n")):
            with self.subTest(stack=stack):
                self.assertEqual(totals_after(stack, program), wanted)

    def test_statistics_of_a_device_that_nobody_uses_take_no_memory_of_it(self):
        program = ("import ctypes\n"
                   "def free():\n"
                   "    n = ctypes.c_uint64()\n"
                   "    weir._library.call('device_memory', ctypes.byref(n), ctypes.byref(ctypes.c_uint64()), 1)\n"
                   "    return n.value\n"
                   "before = free()\n"
                   "print(weir_test.Totals.of(1).reserved.current, weir.trim(1), weir.reset_peaks(1))\n"
                   "print(before - free())\nweir.trim(9)")
        printed = totals_after("async | pool(initial=1GiB)", program)
        self.assertTrue(printed.startswith("0 0 None\n0\n"), printed)
        self.assertIn("ConfigError: weir: framework_memory: there is no device 9; this process sees 8", printed)


class Limits(unittest.TestCase):
    def test_out_of_memory_has_the_report(self):
        weir.use("async | pool | limit(max=8MiB, name=service)", device=3)
        kept = weir.allocate(6 * MIB, device=3)
        with self.assertRaises(weir.OutOfMemoryError) as raised:
            weir.allocate(4 * MIB, device=3)
        self.assertIsInstance(raised.exception, MemoryError)
        text = str(raised.exception)
        self.assertIn("weir: out of memory: 4.00 MiB", text)
        self.assertIn("refused by service: limit", text)
        self.assertIn("6.00 MiB", weir.report(3))

        service = weir.limit("service", 3)
        self.assertEqual((service.used, service.max_bytes, service.peak, service.refused),
                         (6 * MIB, 8 * MIB, 6 * MIB, 1))
        service.max_bytes = 16 * MIB
        weir.allocate(4 * MIB, device=3).free()
        self.assertEqual(weir.limit("", 3).peak, 10 * MIB)
        self.assertIn("'service': 6291456 of 16777216 B", repr(service))
        kept.free()

    def test_a_part_of_the_device(self):
        weir.use("async | pool | limit(50%)", device=4)
        self.assertEqual(weir.limit(device=4).max_bytes, 8 << 30)

    def test_a_limit_stays_that_of_its_device_whichever_is_current(self):
        program = ("import threading\n"
                   "service, kept = weir.limit('service'), weir.allocate(4096)\n"
                   "def elsewhere():\n"
                   "    weir._library.library().cudaSetDevice(1)\n"
                   "    service.max_bytes = 5000\n"
                   "    print(service.used, weir.limit('service').used, weir.limit('service').max_bytes)\n"
                   "thread = threading.Thread(target=elsewhere)\nthread.start()\nthread.join()\n"
                   "print(service.max_bytes)")
        self.assertEqual(totals_after("async | limit(max=1MiB, name=service)", program), "4096 0 1048576\n5000\n")

    def test_a_limit_that_is_not_there_is_named(self):
        with self.assertRaisesRegex(weir.ConfigError, "no limit called 'nobody'"):
            weir.limit("nobody", 5)
        weir.use("async | limit(1MiB)", device=6)
        for wrong in (-1, 1 << 64):
            with self.assertRaisesRegex(weir.ConfigError, f"weir: {wrong} was given; it must be from 0 to 18446744073"):
                weir.limit(device=6).max_bytes = wrong
        self.assertEqual(weir.limit(device=6).max_bytes, MIB)


class Texts(unittest.TestCase):
    def test_what_is_wrong_with_a_text_is_shown_by_column(self):
        with self.assertRaises(weir.ConfigError) as raised:
            weir.use("async | pol")
        self.assertIn("column 9: no adaptor is called 'pol'", str(raised.exception))
        with self.assertRaisesRegex(weir.ConfigError, "memory of 'host' cannot be reached by the device"):
            weir.use("host | pool")

    def test_what_is_no_text_is_refused(self):
        with self.assertRaisesRegex(TypeError, "weir: a text was expected, as 'async . pool', and 5 was given"):
            weir.use(5)
        with self.assertRaisesRegex(weir.ConfigError, "has a NUL character in it"):
            weir.use("async\0 | pool(no such option)")
        with self.assertRaisesRegex(weir.ConfigError, "has a NUL character in it"):
            weir.limit("all\0", 5)

    def test_a_stack_cannot_be_changed_once_it_is_there(self):
        weir.use("device | pool", device=7)
        weir.allocate(1, device=7)
        weir.use("device | pool", device=7)
        with self.assertRaisesRegex(weir.TooLateError, "device 7 has its stack already, 'device . pool'"):
            weir.use("async", device=7)

    def test_a_device_that_is_not_there_is_refused(self):
        with self.assertRaisesRegex(weir.ConfigError, "there is no device 9; this process sees 8, numbered from 0"):
            weir.allocate(1, device=9)
        with self.assertRaisesRegex(weir.ConfigError, "device 64 cannot be; it must be from 0 to 63"):
            weir.allocate(1, device=64)
        for ask in (weir.trim, weir.reset_peaks, weir.numbers):
            with self.assertRaisesRegex(weir.ConfigError, "device -2 cannot be; it must be from 0 to 63"):
                ask(-2)

    def test_the_environment_comes_first(self):
        program = "import weir; weir.use('device'); weir.allocate(1); print(weir.report())"
        self.assertIn("pool", in_process(program, WEIR_STACK="async | pool"))
        self.assertIn("weir: WEIR_STACK: column 1: no source", in_process(program, WEIR_STACK="nothing"))


class Loading(unittest.TestCase):
    def test_importing_needs_no_library(self):
        self.assertEqual(in_process("import weir; print('there')", WEIR_LIBRARY="/none"), "there\n")

    def test_a_library_that_is_missing_is_named(self):
        self.assertIn("ImportError: weir: there is no /none; WEIR_LIBRARY names it",
                      in_process("import weir; weir.report()", WEIR_LIBRARY="/none"))

    def test_without_a_runtime_it_says_how_to_get_one(self):
        printed = in_process("import weir; weir.report()", LD_LIBRARY_PATH="")
        # Where a toolkit's runtime is found, that needs a GPU.
        self.assertRegex(printed, "ImportError: weir: libcudart.so.[0-9]+ was not found: import the framework first|"
                                  "CudaError|device")

    def test_what_is_built_for_the_check_of_order_says_that_it_needs_the_simulated_runtime(self):
        missing = OSError("weir.so: undefined symbol: _ZN4weir3sim14checked_blocksC1Ev")
        with unittest.mock.patch("ctypes.CDLL", side_effect=missing):
            with self.assertRaisesRegex(ImportError, "built with WEIR_CHECKED.*start the program with sim/run"):
                _library._load("weir.so")

    def test_memory_that_outlives_the_program_is_no_error(self):
        self.assertEqual(in_process("import weir; kept = weir.allocate(1000); print('ends')"), "ends\n")


if __name__ == "__main__":
    unittest.main()
