#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_java.py - the Java client: compiled without a warning, its tests and
its example, all with a real agent beside a real root. The compiled files stay
in the build folder. Without a JDK of 17 or later it is skipped."""

import json
import re
import shutil
import subprocess
import sys
import unittest
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from live import HERE, Rooted, built, run  # noqa: E402
from live_fleet import WEIR  # noqa: E402
from patience import PATIENCE, until  # noqa: E402

SKIPPED = 77
JAVA = HERE / "java"
OPTIONS = ["-Xlint:all,-try", "-Werror", "-encoding", "UTF-8", "--release",
           "17"]


def has_java():
    """Whether there is a compiler of 17 or later."""
    if not shutil.which("javac") or not shutil.which("java"):
        return False
    said = subprocess.run(["javac", "-version"], text=True,
                          capture_output=True).stdout
    version = re.match(r"javac (\d+)", said)
    return version is not None and int(version[1]) >= 17


class Java(Rooted):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        sources = sorted(JAVA.glob("**/*.java"))
        cls.classes = built(
            "java", sources, [run("javac", "-version"), *OPTIONS],
            lambda folder: run("javac", *OPTIONS, "-d", folder, *sources))

    def agent(self, *options):
        """Starts an agent; its places, by loopback and by path."""
        ports = self.fleet.folder / f"places-{self._testMethodName}"
        path = "unix:" + str(self.fleet.folder / self._testMethodName)
        agent = subprocess.Popen(
            [WEIR, "agent", "--roots", self.roots, "--http", "127.0.0.1:0",
             "--http",
             path, "--port-file", ports, "--log-level", "error", *options])
        self.addCleanup(agent.wait)
        self.addCleanup(agent.terminate)
        until("the agent's places", ports.exists)
        places = [line.split("=", 1)[1] for line in
                  ports.read_text().split()]

        def ready():
            try:
                with urllib.request.urlopen(f"http://{places[0]}/readyz",
                                            timeout=PATIENCE):
                    return True
            except urllib.error.HTTPError as error:
                error.close()
                return False
        until("the quotas", ready)
        return places

    def java(self, *arguments):
        return ["java", "-XX:TieredStopAtLevel=1", "-cp", self.classes,
                *arguments]

    def test_client(self):
        done = subprocess.run(self.java("WeirTest", *self.agent()), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        print(done.stdout, flush=True)

    def test_example(self):
        place, _ = self.agent()

        def ask(url):
            try:
                with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                    self.assertEqual(answer.read(), b"forty-two\n")
                    return answer.status
            except urllib.error.HTTPError as refused:
                if refused.code == 429:
                    self.assertIn("Retry-After", refused.headers)
                refused.close()
                return refused.code

        server = subprocess.Popen(self.java("Server", place), text=True,
                                  stdout=subprocess.PIPE)
        try:
            url = server.stdout.readline().strip()
            # A permit of "db" may still be in flight after an answer: then
            # 503.
            before = []
            while (status := ask(url)) != 429:
                before.append(status)
                self.assertLess(len(before), 1000, before)
            self.assertEqual(before[0], 200)
            # More, if the agent didn't answer in a second.
            self.assertGreaterEqual(len(before), 3, before)
        finally:
            server.kill()
            server.wait()
            server.stdout.close()

    def test_a_killed_process_holds_nothing(self):
        """The permits of a killed process are free, at any time of the
        kill."""
        place, _ = self.agent()
        holder = subprocess.Popen(self.java("Holder", place, "two"),
                                  text=True, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE)
        self.assertEqual(holder.stdout.readline(), "in flight\n")

        def enter():
            asked = json.dumps({"name": "two", "weight": 2}).encode()
            try:
                with urllib.request.urlopen(urllib.request.Request(
                        f"http://{place}/v1/enter", asked,
                        {"Content-Type": "application/json"}),
                        timeout=PATIENCE) as answer:
                    return answer.status
            except urllib.error.HTTPError as error:
                error.close()
                return error.code
        self.assertEqual(enter(), 429)
        holder.kill()
        holder.wait()
        holder.stdin.close()
        holder.stdout.close()
        until("two are free", lambda: enter() == 200)


if __name__ == "__main__":
    if not has_java():
        print("skipped: there is no javac of 17 or later in the PATH; Debian "
              "has it in default-jdk-headless (tools/install-deps.sh check)",
              file=sys.stderr)
        sys.exit(SKIPPED)
    unittest.main()
