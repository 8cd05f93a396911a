#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_go.py - the Go module: gofmt, vet, its tests under the race detector
and its example, all with a real root. Without Go it is skipped.

The results of builds stay in the build folder (live.built()), and Go's own
cache in $GOCACHE or there, too; the first build includes Go's library for the
race detector."""

import os
import re
import shutil
import subprocess
import sys
import unittest
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from live import BUILD, HERE, SOURCE, Rooted, built, run  # noqa: E402

SKIPPED = 77
GO = HERE / "go"
ENV = {
    **os.environ, "GO111MODULE": "on", "GOTOOLCHAIN": "local",
    "GOFLAGS": "-buildvcs=false", "CGO_ENABLED": "1",
    "GOCACHE": os.environ.get("GOCACHE", str(
        BUILD / "bindings" / "go-cache")),
    # libweir in the build folder.
    "PKG_CONFIG_PATH": str(BUILD / "meson-uninstalled"),
    "LD_LIBRARY_PATH": str(BUILD),
}
PATIENCE = "-test.timeout=300s"


def go(*arguments):
    return run("go", *arguments, cwd=GO, env=ENV)


def make(folder):
    """Builds programs that run without Go."""
    go("vet", "./...")
    go("build", "-o", folder / "example", "./example")
    for package, name in (".", "weir"), ("./weirhttp", "weirhttp"):
        go("test", "-race", "-c", "-o", folder / name, package)


class Go(Rooted):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.programs = built(
            "go", [*GO.glob("**/*.go"), GO / "go.mod",
                   *SOURCE.glob("include/weir/*.h")],
            [go("version"), go("env", "CC", "CGO_CFLAGS", "CGO_LDFLAGS")],
            make)

    def test_format(self):
        if not shutil.which("gofmt"):
            self.skipTest("gofmt isn't beside go")
        said = subprocess.run(["gofmt", "-l", "."], cwd=GO, text=True,
                              capture_output=True)
        self.assertEqual(said.stdout + said.stderr, "")

    def test_no_event_is_forgotten(self):
        header = (SOURCE / "include/weir/weir.h").read_text()
        known = (GO / "event.go").read_text()
        for name in set(re.findall(r"\bWEIR_EVENT_\w+", header)):
            self.assertIn(f"C.{name}\n", known)

    def run_tests(self, name):
        # A symbol missing in libweir is an error at once.
        said = run(self.programs / name, "-test.v", PATIENCE, cwd=GO,
                   env={**ENV, "WEIR_TEST_ROOTS": self.roots,
                        "LD_BIND_NOW": "1"})
        passed = said.count("\n--- PASS: ")
        self.assertGreater(passed, 0, said)
        print(f"{name}: {passed} tests passed", flush=True)

    def test_module(self):
        self.run_tests("weir")

    def test_http(self):
        self.run_tests("weirhttp")

    def test_example(self):
        server = subprocess.Popen([self.programs / "example", self.roots,
                                   "127.0.0.1:0"], env=ENV, text=True,
                                  stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL)
        try:
            url = server.stdout.readline().strip()
            with urllib.request.urlopen(url, timeout=60) as answer:
                self.assertEqual(answer.read(), b"forty-two\n")
        finally:
            server.kill()
            server.wait()
            server.stdout.close()


if __name__ == "__main__":
    if not shutil.which("go"):
        print("skipped: there is no go in the PATH; Debian has it in "
              "golang-go (tools/install-deps.sh check)", file=sys.stderr)
        sys.exit(SKIPPED)
    unittest.main()
