#!/usr/bin/env python3
"""sim/run --report: the page, the exit status, and what is said where there is nothing to show.

usage: report_test.py BUILD PROGRAM   BUILD has the simulated runtime, PROGRAM allocates"""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM, BUILD = sys.argv.pop(), sys.argv.pop()
ENVIRONMENT = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.page = Path(folder.name) / "memory.html"

    def command(self, *program):
        return [ROOT / "sim" / "run", "--build", BUILD, "--device", "default", "--report", self.page, *program]

    def run_with_report(self, *program):
        return subprocess.run(self.command(*program), capture_output=True, text=True, env=ENVIRONMENT)

    def test_shows_what_a_program_took_from_cuda(self):
        said = self.run_with_report(PROGRAM)
        self.assertEqual((said.returncode, said.stdout), (0, "runs on weir::sim device 0\ndone\n"), said.stderr)
        self.assertIn(f"sim/run: {self.page} shows what the program took from CUDA\n", said.stderr)
        page = self.page.read_text()
        self.assertTrue(page.startswith("<!doctype html>"), page[:80])
        self.assertIn("cudaMallocAsync", page)

    def test_ends_with_the_programs_status_and_writes_no_empty_page(self):
        said = self.run_with_report("sh", "-c", "exit 3")
        self.assertEqual(said.returncode, 3)
        self.assertIn("sim/run: no page was written: the program took no memory of a device\n", said.stderr)
        self.assertFalse(self.page.exists())

    def test_ends_as_a_shell_does_where_a_signal_ended_the_program(self):
        said = self.run_with_report("sh", "-c", f"{PROGRAM}; kill -TERM $$")
        self.assertEqual(said.returncode, 128 + 15)
        self.assertTrue(self.page.exists())

    def test_a_signal_that_asks_for_the_end_is_the_programs(self):
        script = "trap 'kill $!; echo asked; exit 5' TERM; sleep 20 & echo began; wait"
        with subprocess.Popen(self.command("sh", "-c", script), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, env=ENVIRONMENT) as run:
            self.assertEqual(run.stdout.readline(), "began\n")
            run.terminate()
            self.assertEqual(run.stdout.readline(), "asked\n")
            self.assertIn("sim/run: no page was written", run.communicate()[1])
        self.assertEqual(run.returncode, 5)

    def test_says_before_the_program_starts_that_a_page_cannot_be_written(self):
        self.page = self.page.parent / "nowhere" / "memory.html"
        said = self.run_with_report(PROGRAM)
        self.assertEqual((said.returncode, said.stdout), (1, ""))
        self.assertIn(f"sim/run: --report: '{self.page}' cannot be written: there is no folder ", said.stderr)

    def test_says_why_a_page_could_not_be_written(self):
        self.page = self.page.parent / "soon_gone" / "memory.html"
        self.page.parent.mkdir()
        said = self.run_with_report("sh", "-c", f"{PROGRAM}; rmdir {self.page.parent}")
        self.assertEqual(said.returncode, 0)
        self.assertIn("sim/run: no page was written: weir-memory: ", said.stderr)


if __name__ == "__main__":
    unittest.main()
