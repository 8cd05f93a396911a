# SPDX-License-Identifier: MIT
"""test_gate_tools.py - the tools that check a change before it gets into main:
each test runs once, a failure is counted and names the command that repeats it,
and no package is installed unasked.

Scripts stand in place of Meson, dpkg-query, sudo and apt-get."""

import contextlib
import json
import os
import pty
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["WEIR_SOURCE"])

# Stands in for meson: its log is $LOG, its introspection $TESTS.
MESON = """\
#!/bin/sh
echo "$*" >>calls
case "$*" in
introspect*) printf '%s' "$TESTS" ;;
*"--logbase check"*) printf '%s' "$LOG" >build/meson-logs/check.json ;;
esac
case "$LOG" in *FAIL*) exit 1 ;; esac
"""

LIVE = """\
import unittest


class Alone(unittest.TestCase):
    def test_good(self):
        print("good ran")

    def test_bad(self):
        self.assertEqual(1, 2)


class Together(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print("a server for all")

    def test_one(self):
        pass

    def test_two(self):
        pass


class Like(Together):
    PROCESS = "the same"


class Unlike(Together):
    PROCESS = "the same"


if __name__ == "__main__":
    unittest.main()
"""


def entry(name, result="OK", printed=""):
    return json.dumps({"name": f"weir:live / {name}", "result": result,
                       "stdout": printed, "stderr": ""}) + "\n"


class Case(unittest.TestCase):
    def setUp(self):
        box = tempfile.TemporaryDirectory()
        self.addCleanup(box.cleanup)
        self.box = Path(box.name)
        (self.box / "build/meson-logs").mkdir(parents=True)
        self.env = dict(os.environ, PATH=f"{self.box}:{os.environ['PATH']}")

    def script(self, name, text):
        path = self.box / name
        path.write_text(text)
        path.chmod(0o755)

    def run_tool(self, *command, **more):
        """(exit status, output)"""
        done = subprocess.run(command, cwd=self.box, env=self.env,
                              check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, **more)
        return done.returncode, done.stdout

    def calls(self):
        path = self.box / "calls"
        return path.read_text().splitlines() if path.exists() else []


class Run(Case):
    def run_tests(self, log):
        self.script("meson", MESON)
        self.env["LOG"] = log
        return self.run_tool(SOURCE / "tools/run-tests", "build", "--log",
                             "check", "--suite", "unit")

    def count(self, *names):
        return self.run_tool(SOURCE / "tools/count-tests",
                             *[f"build/meson-logs/{name}.json"
                               for name in names])

    def test_what_passes_is_counted(self):
        status, _ = self.run_tests(
            entry("a") + entry("b", printed="[  PASSED  ] 7 test(s).") +
            entry("c", "SKIP"))
        self.assertEqual(status, 0)
        self.assertEqual(self.count("check"),
                         (0, "8 passed, 0 failed, 1 skipped\n"))

    def test_a_failure_is_not_run_again_and_says_how_to(self):
        status, said = self.run_tests(
            entry("a") + entry("b", "FAIL", "replay: WEIR_SEED=17 "
                                            "WEIR_HISTORIES=1\n"))
        self.assertEqual(status, 1)
        self.assertEqual(len(self.calls()), 1)
        self.assertIn("b: FAIL; to repeat it: WEIR_SEED=17 WEIR_HISTORIES=1 "
                      "meson test -C build -v b\n", said)
        self.assertEqual(self.count("check"),
                         (1, "1 passed, 1 failed, 0 skipped\n"))

    def test_an_earlier_log_does_not_count(self):
        (self.box / "build/meson-logs/check.json").write_text(entry("old"))
        self.script("meson", "#!/bin/sh\nexit 1\n")
        status, _ = self.run_tool(SOURCE / "tools/run-tests", "build",
                                  "--log", "check")
        self.assertEqual(status, 1)
        status, said = self.count("check")
        self.assertEqual(status, 1)
        self.assertIn("check.json isn't there", said)

    def test_a_program_that_ran_twice_is_a_failure(self):
        for name in "check", "live":
            (self.box / f"build/meson-logs/{name}.json").write_text(
                entry("a"))
        status, said = self.count("check", "live")
        self.assertEqual(status, 1)
        self.assertIn("weir:live / a ran twice\n", said)


class Repeat(Case):
    def test_the_table(self):
        self.script("meson", MESON)
        self.script("sometimes", "#!/bin/sh\necho x >>ran\n"
                                 "[ $(wc -l <ran) != 2 ]\n")
        self.env["LOG"] = ""
        self.env["TESTS"] = json.dumps([
            {"name": name, "cmd": command, "suite": ["weir:unit"],
             "env": {}, "timeout": 60, "is_parallel": True, "depends": []}
            for name, command in (("always", ["true"]),
                                  ("sometimes", [str(self.box / "sometimes")])
                                  )])
        status, said = self.run_tool(
            SOURCE / "tools/repeat-tests", "build", "--times", "3", "--load",
            "0", "--jobs", "1", "--suite", "unit")
        self.assertEqual(status, 1, said)
        self.assertRegex(said, r"\nalways +3 +0 +0 ")
        self.assertRegex(said, r"\nsometimes +3 +1 +0 ")
        self.assertIn("6 runs of 2 tests, 1 failed", said)
        self.assertTrue(
            (self.box / "build/repeat/sometimes.2.log").exists(), said)


class Live(Case):
    def live_run(self, *options):
        (self.box / "live.py").write_text(LIVE)
        return self.run_tool(sys.executable, SOURCE / "test/live/live_run.py",
                             self.box / "live.py", *options)

    def test_a_failure_says_how_to_repeat_it(self):
        status, said = self.live_run("--jobs", "2")
        self.assertEqual(status, 1)
        self.assertIn("1 != 2", said)
        self.assertIn(f"python3 {self.box}/live.py -v Alone.test_bad\n", said)
        self.assertEqual(said.count("a server for all"), 3, said)
        self.assertEqual(said.count("Ran 2 tests"), 1, said)
        self.assertEqual(said.count("Ran 4 tests"), 1, said)

    def test_a_part_of_a_file(self):
        status, said = self.live_run("--but", "Alone.test_bad")
        self.assertEqual(status, 0, said)
        self.assertIn("good ran", said)
        status, said = self.live_run("--only", "Together")
        self.assertEqual(status, 0, said)
        self.assertNotIn("good ran", said)
        status, said = self.live_run("--only", "Nobody")
        self.assertEqual(status, 1)
        self.assertIn("has no test Nobody", said)

    def run_good(self, *lines):
        """Runs test_good with these lines as its body."""
        (self.box / "live.py").write_text(LIVE.replace(
            'print("good ran")', "\n        ".join(lines)))
        return self.run_tool(
            sys.executable, SOURCE / "test/live/live_run.py",
            self.box / "live.py", "--only", "Alone.test_good")

    def test_a_process_left_behind_is_a_failure(self):
        status, said = self.run_good("import subprocess",
                                     "subprocess.Popen(['sleep', '1000'])")
        self.assertEqual(status, 1)
        self.assertIn("expected no process to be left behind", said)

    def test_a_file_left_behind_is_a_failure(self):
        status, said = self.run_good("import tempfile",
                                     "tempfile.mkdtemp(prefix='mine-')")
        self.assertEqual(status, 1)
        self.assertRegex(said, r"no file to be left behind .* \['mine-")

    def test_a_file_of_a_sanitizer_is_none_of_a_test(self):
        """A process killed before its main() leaves it."""
        make = ("import os, pathlib",
                "folder = pathlib.Path(os.environ['TMPDIR'])",
                "(folder / 'tsan.rodata.1').touch()")
        status, said = self.run_good(*make)
        self.assertEqual(status, 0, said)
        status, said = self.run_good(*make, "(folder / 'mine').touch()")
        self.assertEqual(status, 1)
        self.assertIn("no file to be left behind in $TMPDIR; got ['mine']",
                      said)

    def test_files_go_when_a_test_is_killed(self):
        self.env["TMPDIR"] = str(self.box / "tmp")
        (self.box / "tmp").mkdir()
        status, said = self.run_good("import os, tempfile",
                                     "print(tempfile.mkdtemp(), flush=True)",
                                     "os.kill(os.getpid(), 9)")
        self.assertEqual(status, 1)
        self.assertIn(f"{self.box}/tmp/", said)
        self.assertNotIn("no file to be left behind", said)
        self.assertEqual(list((self.box / "tmp").iterdir()), [])

    def test_a_file_that_cannot_run_here_is_skipped(self):
        (self.box / "live.py").write_text(LIVE.replace(
            "    unittest.main()", "    raise SystemExit(77)"))
        status, said = self.run_tool(sys.executable,
                                     SOURCE / "test/live/live_run.py",
                                     self.box / "live.py")
        self.assertEqual(status, 77, said)


class Packages(Case):
    """tools/install-deps.sh where nothing is installed."""

    def setUp(self):
        super().setUp()
        self.script("dpkg-query", "#!/bin/sh\n")
        for name in "apt-get", "sudo":
            self.script(name, f'#!/bin/sh\necho {name} "$@" >>calls\n')

    def be(self, uid):
        self.script("id", f"#!/bin/sh\necho {uid}\n")

    def at_terminal(self, answer):
        """Runs it at a terminal, where 'answer' is typed: (status, output)."""
        ours, theirs = pty.openpty()
        with subprocess.Popen([SOURCE / "tools/install-deps.sh", "build"],
                              cwd=self.box, env=self.env, stdin=theirs,
                              stdout=theirs, stderr=theirs) as process:
            os.close(theirs)
            os.write(ours, answer.encode())
            status = process.wait()
        # A read returns one buffer of the terminal; at the end, EIO.
        said = b""
        with contextlib.suppress(OSError):
            while part := os.read(ours, 65536):
                said += part
        os.close(ours)
        return status, said.decode()

    def test_make_installs_nothing(self):
        status, said = self.run_tool(SOURCE / "tools/install-deps.sh",
                                     "--missing", "build")
        self.assertEqual(status, 1)
        self.assertRegex(said, "missing:.* meson .*\n`make deps` installs")
        self.assertEqual(self.calls(), [])

    def test_make_needs_no_library_of_the_tests(self):
        _, said = self.run_tool(SOURCE / "tools/install-deps.sh",
                                "--missing", "build")
        self.assertNotRegex(said, "protobuf|cmocka")
        self.script("pkg-config", f"""#!/bin/sh
case "$*" in *protobuf*|*cmocka*) exit 1 ;; esac
exec {shutil.which("pkg-config")} "$@"
""")
        for name in "protoc-c", "cmake":
            self.script(name, "#!/bin/sh\nexit 1\n")
        self.env["PKG_CONFIG"] = str(self.box / "pkg-config")
        status, said = self.run_tool("meson", "setup", "-Dcharts=disabled",
                                     self.box / "new", SOURCE)
        self.assertEqual(status, 0, said)
        self.assertIn("a library is missing: test_swarm is left out", said)

    def test_root_is_not_asked(self):
        self.be(0)
        status, said = self.run_tool(SOURCE / "tools/install-deps.sh",
                                     "build", stdin=subprocess.DEVNULL)
        self.assertEqual(status, 0, said)
        self.assertEqual(self.calls()[0], "apt-get update -qq")

    def test_sudo_asks_at_a_terminal(self):
        self.be(1000)
        status, said = self.at_terminal("n\n")
        self.assertEqual(status, 1, said)
        self.assertIn("Install them by sudo apt-get?", said)
        self.assertEqual(self.calls(), [])
        status, said = self.at_terminal("y\n")
        self.assertEqual(status, 0, said)
        self.assertEqual(self.calls()[0], "sudo apt-get update -qq")

    def test_sudo_does_not_ask_a_script(self):
        self.be(1000)
        status, said = self.run_tool(SOURCE / "tools/install-deps.sh",
                                     "build", stdin=subprocess.DEVNULL)
        self.assertEqual(status, 0, said)
        self.assertEqual(self.calls()[0], "sudo apt-get update -qq")


if __name__ == "__main__":
    unittest.main()
