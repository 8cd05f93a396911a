#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_table.py - `weir agent --table` and processes that decide on its table:
a real root, four services, and SIGKILL for any of them at random instants, the
agent included. In the end the root has counted the units that passed."""

import json
import mmap
import os
import random
import signal
import struct
import subprocess
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

from live_cli import WEIR, Case, Root
from patience import PATIENCE, until

BUILD = Path(os.environ["WEIR_BUILD"])
DECIDERS = 4
PEEKS = 200  # of a request of the HTTP API, which allows 256
KILLS = int(os.environ.get("WEIR_KILLS", "100"))
LIMIT, BURST = 5000, 750


class Notes:
    """The deciders' counts: struct notes of table_decider.c."""

    def __init__(self, path):
        Path(path).write_bytes(bytes(32))
        self.file = open(path, "r+b")
        self.map = mmap.mmap(self.file.fileno(), 32)

    def look(self):
        return dict(zip(("begun", "passed", "limited", "strange"),
                        struct.unpack("=4Q", self.map[:])))

    def close(self):
        self.map.close()
        self.file.close()


class Tables(Case):
    def setUp(self):
        super().setUp()
        self.root = Root(self, store=self.make_store())
        self.table = f"/dev/shm/weir-live-{os.getpid()}"
        self.notes_path = self.path("notes")
        self.notes = Notes(self.notes_path)
        self.processes, self.agents = [], 0

    def tearDown(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        self.notes.close()
        Path(self.table).unlink(missing_ok=True)
        super().tearDown()

    def start(self, log, *command):
        with open(log, "w") as errors:
            process = subprocess.Popen(command, stderr=errors, env=self.env)
        self.processes.append(process)
        return process

    def agent(self, *options):
        self.agents += 1
        self.log = self.path(f"agent{self.agents}")
        return self.start(self.log, WEIR, "agent", "--roots",
                          self.root.address, "--table", self.table, *options)

    def decider(self):
        return self.start(self.path("decider"), BUILD / "test/table_decider",
                          self.table, self.notes_path)

    def end(self, process, by=signal.SIGKILL):
        process.send_signal(by)
        status = process.wait(PATIENCE)
        self.processes.remove(process)
        self.assertEqual(status, -by if by == signal.SIGKILL else 0,
                         Path(self.log).read_text() +
                         Path(self.path("decider")).read_text())

    def has_office(self):
        """The agent reports: before, its end may come too early for the last
        counts, for which it has 100 ms."""
        agent = self.processes[-1]
        for line in "runs the shared table's limiter", "a root is there":
            until(line, lambda: agent.poll() is not None or
                  line in Path(self.log).read_text())
        self.assertIsNone(agent.poll(), Path(self.log).read_text())

    def has_decided(self, more):
        seen = self.notes.look()["begun"]
        until("decisions", lambda: self.notes.look()["begun"] >= seen + more)

    def passed(self, name):
        status, text = self.root.get("/v1/usage?limit=1000")
        self.assertEqual(status, 200, text)
        for use in json.loads(text)["quotas"]:
            if use["name"] == name:
                return use["passed"]
        return 0

    def told(self, name, least):
        """The units that passed, by the root, once they are at least 'least'.
        """
        until(f"{least} units of {name} at the root",
              lambda: self.passed(name) >= least)
        return self.passed(name)

    def begin(self):
        self.ok("quota", "set", "q", "limit=unlimited", root=self.root)
        self.ok("quota", "set", "limited", f"limit={LIMIT}/s", "low_burst=500",
                f"high_burst={BURST}", root=self.root)
        self.ok("quota", "set", "db", "kind=concurrency", "sharing=local",
                "limit=1000", root=self.root)
        agent = self.agent()
        self.has_office()
        return agent, [self.decider() for _ in range(DECIDERS)]

    def test_any_of_them_is_killed(self):
        seed = int(os.environ.get("WEIR_SEED", time.time_ns()))
        print(f"WEIR_SEED={seed}")
        chance = random.Random(seed)
        began = time.monotonic()
        agent, deciders = self.begin()
        self.has_decided(100)
        for _ in range(KILLS):
            self.has_decided(chance.randrange(400))
            i = chance.randrange(DECIDERS + 1)
            if i < DECIDERS:
                self.end(deciders[i])
                deciders[i] = self.decider()
                continue
            self.end(agent)
            self.has_decided(100)  # on the table alone
            agent = self.agent()
            self.has_office()
        self.has_decided(100)
        for decider in deciders:
            self.end(decider)
        seconds = time.monotonic() - began
        self.end(agent, signal.SIGTERM)  # it reports the last counts
        did = self.notes.look()
        # A decider killed between a charge and its note leaves no note.
        passed = self.told("q", did["passed"])
        limited = self.told("limited", did["limited"])
        print(f"{KILLS} killed in {seconds:.1f} s, {self.agents} agents; "
              f"{passed} units, {limited / seconds:.0f}/s of {LIMIT}")
        self.assertEqual(did["strange"], 0)
        self.assertLessEqual(passed, did["begun"])
        self.assertLessEqual(limited, LIMIT * seconds + BURST + DECIDERS)

    def test_an_agent_stands_by(self):
        """Two agents with listeners of their own, on one table."""
        agent, deciders = self.begin()
        other = self.agent("--http", "127.0.0.1:0", "--port-file",
                           self.path("places"))
        until("the listener", lambda: os.path.exists(self.path("places")))
        self.assertNotIn("runs the shared", Path(self.log).read_text())
        self.end(agent)
        self.has_office()
        self.has_decided(100)
        for decider in deciders:
            self.end(decider)
        self.end(other, signal.SIGTERM)
        self.told("q", self.notes.look()["passed"])

    def test_services_go_on_without_an_agent(self):
        """They decide by their table's own counts: after several bursts a
        root's slack is used up."""
        for by in signal.SIGKILL, signal.SIGTERM:
            agent, deciders = self.begin()
            self.has_decided(100)
            self.end(agent, by)
            seen = self.notes.look()["limited"]
            until("units", lambda: self.notes.look()["limited"] >=
                  seen + 4 * BURST)
            for decider in deciders:
                self.end(decider)

    def hold(self, what):
        """A service that is stopped while it has that lock."""
        process = self.start(self.path("holder"), BUILD / "test/table_holder",
                             self.table, what)

        def stopped():
            self.assertIsNone(process.poll(), Path(self.log).read_text())
            stat = Path(f"/proc/{process.pid}/stat").read_text()
            return stat.rpartition(")")[2].split()[0] == "T"
        until("the holder stops", stopped)
        return process

    def ask(self, place, path, name=None):
        request = urllib.request.Request(
            f"http://{place}{path}", headers={"Content-Type":
                                              "application/json"},
            data=json.dumps({"name": name}).encode() if name else None)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def peek_many(self, place, name):
        request = urllib.request.Request(
            f"http://{place}/v1/take", json.dumps({"requests": PEEKS * [
                {"name": name, "peek": True}]}).encode(),
            {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            for reply in json.load(answer)["replies"]:
                self.assertTrue(reply["contended"], reply)

    def test_a_service_is_stopped_with_a_lock(self):
        """The agent answers beside it, and ends by SIGTERM."""
        Path(self.path("decider")).touch()
        for name, limit in ("log", "1000/s"), ("t/*", "1000/s"):
            self.ok("quota", "set", name, f"limit={limit}", "sharing=local",
                    "algorithm=sliding_window", root=self.root)
        contended = 0  # in the table, which outlives its agents
        for what, name in ("log", "log"), ("writer", "t/new"):
            places = self.path(f"places-{what}")
            agent = self.agent("--http", "127.0.0.1:0", "--port-file", places)
            self.has_office()
            until("the listener", lambda: os.path.exists(places))
            place = Path(places).read_text().split("=")[1].strip()
            until("quotas", lambda: self.ask(place, "/readyz")[0] == 200)
            holder = self.hold(what)
            slowest = 0
            for _ in range(100):
                began = time.monotonic()
                status, text = self.ask(place, "/v1/take", name)
                self.assertEqual((status, json.loads(text).get("contended")),
                                 (429, True), text)
                self.assertEqual(self.ask(place, "/healthz")[0], 200)
                slowest = max(slowest, time.monotonic() - began)
            # Each of them may find the lock taken.
            self.peek_many(place, name)
            status, text = self.ask(place, "/metrics")
            contended += 100 + PEEKS
            self.assertIn("weir_agent_contended_requests_total "
                          f"{contended}\n", text)
            print(f"{what}: the slowest take with /healthz {slowest:.4f} s")
            self.assertEqual(self.ask(place, "/v1/status")[0], 200)
            self.end(agent, signal.SIGTERM)
            holder.send_signal(signal.SIGKILL)
            holder.wait(PATIENCE)
            self.processes.remove(holder)

    def test_it_is_refused_with_a_sentence(self):
        def refused(pattern, *options):
            self.fails(pattern, "agent", "--roots", self.root.address,
                       "--table", self.table, *options)

        self.begin()
        refused("made for another memory_max", "--memory-max", "99Ki")
        self.fails("name other roots", "agent", "--table", self.table,
                   "--roots", "127.0.0.1:1")
        os.chmod(self.table, 0o644)
        refused("mode 0600")
        self.fails("No such file", "agent", "--roots", self.root.address,
                   "--table", self.path("none") + "/table")


if __name__ == "__main__":
    unittest.main(verbosity=2)
