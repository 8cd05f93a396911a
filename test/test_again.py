# SPDX-License-Identifier: MIT
"""test_again.py - which failed tests tools/test-tree runs once more, and what
tools/count-tests then counts.

A script in Meson's place writes the logs: its first run by $FIRST, its second
by $AGAIN."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["WEIR_SOURCE"])

MESON = """\
#!/bin/sh
case "$*" in
*--logbase*) log=again; text=$AGAIN ;;
*) log=testlog; text=$FIRST ;;
esac
echo "$*" >>calls
printf '%s' "$text" >"build/meson-logs/$log.json"
case "$text" in *FAIL*) exit 1 ;; esac
"""


def entry(name, result="OK", suite="live", printed=""):
    return json.dumps({"name": f"weir:{suite} / {name}", "result": result,
                       "stdout": "", "stderr": printed}) + "\n"


class Again(unittest.TestCase):
    def setUp(self):
        box = tempfile.TemporaryDirectory()
        self.addCleanup(box.cleanup)
        self.box = Path(box.name)
        (self.box / "build/meson-logs").mkdir(parents=True)
        meson = self.box / "meson"
        meson.write_text(MESON)
        meson.chmod(0o755)

    def run_tree(self, first, again=""):
        """Exit status, calls of Meson, and what is counted."""
        env = dict(os.environ, FIRST=first, AGAIN=again,
                   PATH=f"{self.box}:{os.environ['PATH']}")
        tree = subprocess.run([SOURCE / "tools/test-tree", "build", "-x"],
                              cwd=self.box, env=env, check=False,
                              stdout=subprocess.PIPE, text=True)
        counted = subprocess.run([SOURCE / "tools/count-tests", "build"],
                                 cwd=self.box, check=False,
                                 stdout=subprocess.PIPE, text=True)
        calls = (self.box / "calls").read_text().splitlines()
        (self.box / "calls").unlink()
        return tree.returncode, calls, counted.stdout.strip()

    def assert_final(self, first):
        status, calls, _ = self.run_tree(first)
        self.assertEqual((status, len(calls)), (1, 1))

    def test_all_is_well(self):
        status, calls, counted = self.run_tree(entry("a") + entry("b"))
        self.assertEqual((status, len(calls), counted),
                         (0, 1, "2 passed, 0 failed"))

    def test_a_live_test_has_a_second_run(self):
        first = entry("a") + entry("b", "FAIL")
        status, calls, counted = self.run_tree(first, entry("b"))
        self.assertEqual((status, counted), (0, "2 passed, 0 failed"))
        self.assertEqual(calls[1].split()[-1], "b")
        status, calls, counted = self.run_tree(first, entry("b", "FAIL"))
        self.assertEqual((status, len(calls), counted),
                         (1, 2, "1 passed, 1 failed"))

    def test_an_old_second_run_does_not_count(self):
        self.run_tree(entry("b", "FAIL"), entry("b"))
        _, _, counted = self.run_tree(entry("a", "FAIL", suite="unit"))
        self.assertEqual(counted, "0 passed, 1 failed")

    def test_other_suites_have_none(self):
        self.assert_final(entry("a", "FAIL", suite="unit"))
        self.assert_final(entry("a", "FAIL", suite="model") +
                          entry("b", "FAIL"))

    def test_a_finding_has_none(self):
        for finding in ("==1==ERROR: AddressSanitizer: heap-use-after-free",
                        "WARNING: ThreadSanitizer: data race (pid=7)",
                        "a.c:1:2: runtime error: signed integer overflow"):
            self.assert_final(entry("a", "FAIL", printed=finding))

    def test_many_have_none(self):
        self.assert_final("".join(entry(name, "FAIL") for name in "abcd"))


if __name__ == "__main__":
    unittest.main()
