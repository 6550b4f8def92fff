#!/usr/bin/env python3
"""Shows each rule of check.py a tree that breaks it, and one that keeps all."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECK = Path(__file__).with_name("check.py")
GOOD = "#pragma once\n// A header.\n"
FLOORS = """
| floor | folder | what is in it |
|---|---|---|
| 0 | `version.hpp` | the version |
| 0 | `support` | what every folder may use |
| 1 | `cuda` | calls |
| 2 | `core` | resources |
| 3 | `pool` | the allocator |
| 3 | `pool/heap` | its blocks; knows only `support` |
| 5 | `adaptors` | what stands on another |
| 6 | `bridges` | Thrust |
| 7 | `testing` | knows the simulated runtime |
| 8 | `weir.hpp` | the umbrella |
| 0 | `sim/model` | what there is |
| 5 | `sim/api` | the functions |
"""


class Rules(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.write("include/weir/version.hpp", GOOD)
        self.write("include/weir/pool/heap/good.hpp", GOOD + "#include <weir/support/good.hpp>\n")
        self.write("include/weir/pool/good.hpp", GOOD + "#include <weir/pool/heap/good.hpp>\n")
        self.write("include/weir/support/good.hpp", GOOD + "#include <weir/version.hpp>\n")
        self.write("include/weir/adaptors/good.hpp", GOOD + "#include <weir/pool/good.hpp>\n")
        self.write("include/weir/bridges/good.hpp", GOOD + "#include <weir/core/good.hpp>\n")
        self.write("include/weir/testing/good.hpp", GOOD + "#include <weir/sim/good.hpp>\n")
        self.write("sim/model/good.hpp", GOOD)
        self.write("sim/api/good.cpp", '#include "model/good.hpp"\n')
        self.write("docs/architecture.md", FLOORS)
        self.write("include/weir/core/good.hpp", GOOD + "#include <weir/cuda/good.hpp>\n#include <vector>\n")
        self.write("include/weir/cuda/good.hpp", GOOD + "#include <cuda_runtime_api.h>\n")
        self.write("include/weir/weir.hpp", GOOD + "#include <weir/core/good.hpp>\n")
        self.write("include/weir/sim/good.hpp", GOOD + "#include <weir/version.hpp>\n#include <weir/sim/other.hpp>\n#include <cuda_runtime_api.h>\n")
        self.write("README.md", "See [a page](docs/page.md#part) and [elsewhere](https://example.com/none).\n"
                   "```\nauto f = [](int n) {};\n```\n")
        self.write("docs/page.md", "[back](../README.md)\n")
        self.write("test/core/good.cpp", "")
        for folder in ("support", "pool", "pool/heap", "adaptors", "bridges", "testing"):
            self.write(f"test/{folder}/good.cpp", "")
        self.write("test/cuda/good.cpp", "")

    def write(self, path, text):
        file = Path(self.folder.name, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def run_rule(self, rule):
        done = subprocess.run([sys.executable, CHECK, rule, self.folder.name], capture_output=True, text=True)
        return done.returncode, done.stdout

    def refuses(self, rule, path, text, words):
        self.write(path, text)
        status, said = self.run_rule(rule)
        self.assertEqual(status, 1, said)
        self.assertIn(path, said)
        self.assertIn(words, said)

    def test_a_good_tree_passes_every_rule(self):
        for rule in ("includes", "opening", "mirror", "links", "width"):
            self.assertEqual(self.run_rule(rule), (0, ""))

    def test_an_empty_tree_is_an_error(self):
        self.assertEqual(subprocess.run([sys.executable, CHECK, "opening", self.folder.name + "/test"],
                                        capture_output=True).returncode, 2)

    def test_an_include_upwards_is_refused(self):
        self.refuses("includes", "include/weir/core/bad.hpp", GOOD + "#include <weir/adaptors/pool.hpp>\n",
                     "core (2) may not include adaptors (5)")

    def test_a_room_that_knows_only_some_includes_no_others(self):
        self.refuses("includes", "include/weir/pool/heap/bad.hpp", GOOD + "#include <weir/cuda/good.hpp>\n",
                     "pool/heap (3) may not include cuda (1)")
        self.refuses("includes", "include/weir/pool/heap/bad.hpp", GOOD + "#include <cuda_runtime_api.h>\n",
                     "pool/heap knows nothing of CUDA")
        self.refuses("includes", "include/weir/support/bad.hpp", GOOD + "#include <cuda_runtime_api.h>\n",
                     "support knows nothing of CUDA")

    def test_the_version_includes_nothing(self):
        self.refuses("includes", "include/weir/version.hpp", GOOD + "#include <weir/core/good.hpp>\n",
                     "version.hpp (0) may not include core (2)")

    def test_the_page_names_no_folder_that_is_not_there(self):
        self.refuses("includes", "docs/architecture.md", FLOORS + "| 9 | `attic` | nothing |\n", "there is no 'attic'")

    def test_the_library_does_not_know_the_simulated_runtime(self):
        self.refuses("includes", "include/weir/core/bad.hpp", GOOD + "#include <weir/sim/sim.hpp>\n", "simulated runtime")

    def test_what_shows_a_stack_to_the_simulated_runtime_is_included_by_nothing(self):
        self.write("include/weir/testing/checked.hpp", GOOD + "#include <weir/sim/good.hpp>\n")
        self.assertEqual(self.run_rule("includes"), (0, ""))
        self.refuses("includes", "include/weir/adaptors.hpp", GOOD + "#include <weir/testing/checked.hpp>\n",
                     "adaptors (5) may not include testing (7)")

    def test_the_simulated_runtime_does_not_know_the_library(self):
        self.refuses("includes", "include/weir/sim/bad.hpp", GOOD + "#include <weir/core/good.hpp>\n", "simulated runtime")
        self.refuses("includes", "sim/model/bad.cpp", "#include <weir/core/good.hpp>\n", "simulated runtime")

    def test_the_simulated_runtime_includes_its_own_folders_downwards(self):
        self.write("sim/api/good.cpp", '#include "model/good.hpp"\n#include "good.cpp"\n#include <weir/sim/good.hpp>\n')
        self.assertEqual(self.run_rule("includes"), (0, ""))
        self.refuses("includes", "sim/model/bad.cpp", '#include "api/good.hpp"\n', "sim/model (0) may not include sim/api (5)")
        self.refuses("includes", "sim/model/bad.cpp", '#include "good.hpp"\n', '"folder/name.hpp"')
        self.refuses("includes", "sim/model/bad.cpp", '#include "misc/good.hpp"\n', "no place on docs/architecture.md")
        self.refuses("includes", "sim/misc/bad.cpp", "#include <vector>\n", "no place on docs/architecture.md")

    def test_nobody_includes_inner_headers_of_the_simulated_runtime(self):
        self.refuses("includes", "include/weir/sim/bad.hpp", GOOD + '#include "model/good.hpp"\n', "<weir/...>")

    def test_only_bridges_include_thrust(self):
        self.write("include/weir/bridges/good.hpp", GOOD + "#include <thrust/device_vector.h>\n")
        self.assertEqual(self.run_rule("includes"), (0, ""))
        self.refuses("includes", "include/weir/adaptors/bad.hpp", GOOD + "#include <thrust/device_vector.h>\n",
                     "only bridges and tools")

    def test_quotes_are_refused(self):
        self.refuses("includes", "include/weir/core/bad.hpp", GOOD + '#include "good.hpp"\n', "<weir/...>")

    def test_an_unknown_folder_is_refused(self):
        self.refuses("includes", "include/weir/misc/bad.hpp", GOOD, "no place on docs/architecture.md")

    def test_a_header_without_guard_or_comment_is_refused(self):
        self.refuses("opening", "include/weir/core/good.hpp", "// A header.\n#pragma once\n", "#pragma once")
        self.refuses("opening", "include/weir/core/good.hpp", "#pragma once\n\n", "comment")

    def test_the_inner_headers_of_the_simulated_runtime_say_what_they_are_too(self):
        self.refuses("opening", "sim/model/bad.hpp", "#pragma once\n\n", "comment")

    def test_a_header_without_test_is_refused(self):
        self.refuses("mirror", "include/weir/adaptors/lonely.hpp", GOOD, "test/adaptors/lonely.cpp")

    def test_a_link_that_leads_nowhere_is_refused(self):
        self.refuses("links", "docs/page.md", "text\n[gone](gone.md)\n", "docs/page.md:2: the link to gone.md")
        self.refuses("links", "SECURITY.md", "[gone](gone.md)\n", "SECURITY.md:1: the link to gone.md")

    def test_a_long_line_in_a_page_is_refused(self):
        long = "a " * 60 + "b\n"
        self.refuses("width", "docs/decisions/0001.md", "text\n" + long, "docs/decisions/0001.md:2: 121 columns")
        self.refuses("width", "README.md", "|" + "a" * 119 + "|\n", "README.md:1: 121 columns")

    def test_code_and_addresses_may_be_long(self):
        self.write("README.md", "a " * 60 + "\n```text\n" + "a" * 121 + "\n```\n")
        self.write("docs/page.md", f"<https://example.com/{'a' * 200}> " + "a" * 100 + "\n")
        self.assertEqual(self.run_rule("width"), (0, ""))


if __name__ == "__main__":
    unittest.main()
