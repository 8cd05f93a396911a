#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_go.py - the Go module: gofmt, vet, its tests under the race detector
and its example, all with a real root. Without Go it is skipped.

What Go has made stays in $GOCACHE, or else in the build folder; the first time
that is the library of Go itself for the race detector, too."""

import os
import re
import shutil
import subprocess
import sys
import unittest
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from live import BUILD, HERE, SOURCE, Rooted  # noqa: E402

SKIPPED = 77


class Go(Rooted):
    def setUp(self):
        self.env = {
            **os.environ, "GO111MODULE": "on", "GOTOOLCHAIN": "local",
            "GOFLAGS": "-buildvcs=false", "CGO_ENABLED": "1",
            "GOCACHE": os.environ.get("GOCACHE", str(
                BUILD / "bindings" / "go-cache")),
            # libweir as it lies in the build folder.
            "PKG_CONFIG_PATH": str(BUILD / "meson-uninstalled"),
            "LD_LIBRARY_PATH": str(BUILD),
            "WEIR_TEST_ROOTS": self.roots,
        }

    def go(self, *arguments):
        done = subprocess.run(["go", *arguments], cwd=HERE / "go",
                              env=self.env, text=True,
                              stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_format(self):
        if not shutil.which("gofmt"):
            self.skipTest("gofmt isn't beside go")
        said = subprocess.run(["gofmt", "-l", "."], cwd=HERE / "go",
                              text=True, capture_output=True)
        self.assertEqual(said.stdout + said.stderr, "")

    def test_no_event_is_forgotten(self):
        header = (SOURCE / "include/weir/weir.h").read_text()
        known = (HERE / "go/event.go").read_text()
        for name in set(re.findall(r"\bWEIR_EVENT_\w+", header)):
            self.assertIn(f"C.{name}\n", known)

    def test_module(self):
        print(self.go("test", "-race", "-count=1", "-timeout=100s",
                      "./..."), flush=True)

    def test_example(self):
        program = self.fleet.folder / "example"
        self.go("build", "-o", str(program), "./example")
        server = subprocess.Popen([program, self.roots, "127.0.0.1:0"],
                                  env=self.env, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True)
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
