#!/usr/bin/env python3
"""Calls test/run, examples/run and others without building anything: what they say of themselves, what they refuse, and that a
failing test, or one that does not build, fails the whole run. In place of CMake and ctest they find scripts that say so.
"""
import os
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tools = Path(folder.name)
        self.tool("cmake", "exit 0")
        self.tool("ctest", "exit 0")

    def tool(self, name, script):
        path = self.tools / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def call(self, *command):
        environment = {**os.environ, "PATH": f"{self.tools}:{os.environ['PATH']}", "WEIR_RUNTIME": "sim"}
        return subprocess.run([ROOT / command[0], *command[1:]], capture_output=True, text=True, env=environment)

    def ctest_says(self, failed, all_tests, status):
        self.tool("ctest", f"echo '{100 - failed}% tests passed, {failed} tests failed out of {all_tests}'; exit {status}")

    def test_help_names_every_step(self):
        said = self.call("test/run", "--help")
        self.assertEqual((said.returncode, said.stderr), (0, ""))
        for step in ("all", "quick", "dev", "clang", "tsan", "speed", "gpu", "format", "tidy", "WEIR_RUNTIME"):
            self.assertIn(step, said.stdout)
        said = self.call("examples/run", "--help")
        self.assertEqual((said.returncode, said.stderr), (0, ""))
        self.assertIn("build/examples", said.stdout)
        for script in ("test/gpu/run", "test/fuzz/run", "test/soak", "cmake/get-rmm", "bench/peers/get-torch",
                       "docs/pictures/make"):
            said = self.call(script, "--help")
            self.assertEqual((said.returncode, said.stderr), (0, ""), script)
            self.assertNotEqual(said.stdout, "")

    def test_a_script_is_run_as_its_python_is(self):
        script = self.tools / "train"
        (self.tools / "CMakeCache.txt").touch()  # built before
        for first_line in (f"#!{sys.executable}", "#!/usr/bin/env -S python3 -B"):
            script.write_text(f"{first_line}\nimport os\nprint('sim/torch' in os.environ.get('PYTHONPATH', ''))\n")
            script.chmod(0o755)
            said = self.call("sim/run", "--quiet", "--build", self.tools, script)
            self.assertEqual((said.returncode, said.stdout, said.stderr), (0, "True\n", ""), first_line)

    def test_what_is_unknown_is_refused_in_one_line(self):
        for script, argument in (("test/run", "drev"), ("test/run", "--all"), ("examples/run", "--jobs"),
                                 ("test/gpu/run", "pool"), ("test/fuzz/run", "nothing"), ("cmake/get-rmm", "here"),
                                 ("bench/peers/get-torch", "here"), ("docs/pictures/make", "all")):
            said = self.call(script, argument)
            self.assertEqual((said.returncode, said.stdout), (2, ""))
            self.assertEqual(len(said.stderr.splitlines()), 1, said.stderr)
            self.assertIn(f"'{argument}'", said.stderr)

    def test_a_run_passes_only_if_all_its_tests_do(self):
        self.ctest_says(0, 7, 0)
        said = self.call("test/run", "quick")
        self.assertEqual((said.returncode, said.stdout.splitlines()[-1]), (0, "7 passed, 0 failed"))
        self.ctest_says(2, 7, 8)
        said = self.call("test/run", "quick")
        self.assertEqual((said.returncode, said.stdout.splitlines()[-1]), (1, "5 passed, 2 failed"))
        self.assertIn("quick has failing tests", said.stdout)
        self.assertIn("98% tests passed, 2 tests failed out of 7", said.stdout)  # ctest's own summary

    def test_a_run_ends_with_what_failing_tests_said_last(self):
        self.tool("ctest", """
          echo '  1/3 Test #1: good ......   Passed    0.06 sec'
          echo '  2/3 Test #2: bad ......***Failed    0.06 sec'
          seq 1 40 | sed 's/^/line /'
          echo '      Start  3: other'
          echo '  3/3 Test #3: other ......***Skipped   0.06 sec'
          echo '66% tests passed, 1 tests failed out of 3'; exit 8""")
        said = self.call("test/run", "quick")
        lines = [f"line {number}" for number in range(21, 41)]
        self.assertEqual(said.stdout.splitlines()[-23:], ["  2/3 Test #2: bad ......***Failed    0.06 sec", *lines,
                                                          "quick has failing tests", "2 passed, 1 failed"])

    def test_a_run_fails_where_ctest_does_though_it_counts_no_failure(self):
        self.ctest_says(0, 7, 8)
        self.assertEqual(self.call("test/run", "quick").returncode, 1)

    def test_a_run_fails_where_something_does_not_build(self):
        self.tool("cmake", 'case $1 in --build) echo "no such file"; exit 1;; esac')
        said = self.call("test/run", "quick")
        self.assertEqual((said.returncode, said.stdout.splitlines()[-1]), (1, "0 passed, 1 failed"))
        self.assertIn("no such file", said.stdout)
        said = self.call("examples/run")
        self.assertEqual((said.returncode, said.stdout), (1, ""))
        self.assertIn("no such file", said.stderr)

    def test_what_ci_calls_is_everything(self):
        self.assertIn("exec test/run all\n", (ROOT / ".ci" / "run").read_text())
        said = self.call("test/run", "--help").stdout
        self.assertIn("every step below but `quick`", said)
        script = (ROOT / "test" / "run").read_text()
        self.assertIn("all=(format dev clang tsan speed gpu tidy)", script)


if __name__ == "__main__":
    unittest.main()
