#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_agent_start.py - an agent before the first quotas: what each of its
ports answers, and how a snapshot of the quotas takes their place when all roots
are dead.
Limits are per day, so that a bucket doesn't leak a unit during a test."""

import http.client
import json
import os
import signal
import unittest
from pathlib import Path

from live_agent import JSON, Agents
from patience import PATIENCE, free_port, until

ASKED = {"domain": "shop", "descriptors": [
    {"entries": [{"key": "path", "value": "/cart"}]}]}


class Start(Agents):
    def setUp(self):
        super().setUp()
        self.live = self.root.address
        self.gone = f"127.0.0.1:{free_port()}"
        self.file = self.path("quotas.snapshot")

    def start(self, roots, *options):
        """Starts an agent; returns its ports."""
        self.root.address = roots
        try:
            places = self.agent("--http", "127.0.0.1:0", "--resp",
                                "127.0.0.1:0", "--rls", "127.0.0.1:0",
                                *options, ready=False)
        finally:
            self.root.address = self.live
        return {kind: at[0] for kind, at in places.items()}

    def kill(self):
        agent = self.agents.pop()[0]
        agent.send_signal(signal.SIGKILL)
        agent.wait(PATIENCE)
        os.unlink(self.path(f"places{len(self.agents)}"))

    @staticmethod
    def ask(at, method, path, body=None):
        """(status, the answer)."""
        host, port = at["http"].rsplit(":", 1)
        link = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
        link.request(method, path, json.dumps(body) if body else None, JSON)
        answer = link.getresponse()
        text = answer.read().decode()
        link.close()
        return answer.status, text

    def take(self, at, name):
        return self.ask(at, "POST", "/v1/take", {"name": name})[0]

    def metric(self, at, name):
        for line in self.ask(at, "GET", "/metrics")[1].splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        self.fail(name)

    def test_refused_before_quotas(self):
        at = self.start(self.gone)
        link = self.resp(at["resp"])
        self.assertEqual(self.take(at, "site"), 503)
        self.assertEqual(self.ask(at, "POST", "/v1/enter",
                                  {"name": "site"})[0], 503)
        self.assertEqual(self.ask(at, "POST", "/json", ASKED)[0], 503)
        status, text = self.ask(at, "GET", "/readyz")
        self.assertEqual(status, 503)
        self.assertIn("requests are refused", text)
        self.assertEqual(self.ask(at, "GET", "/healthz")[0], 200)
        for words in ("WEIR.TAKE", "site"), ("WEIR.PEEK", "site"):
            self.assertTrue(link.ask(*words).startswith("-TRYAGAIN no root"))
        # The keys of this process need no quotas.
        self.assertEqual([link.ask("CL.THROTTLE", "k", 1, 1, 86400)[0]
                          for _ in range(3)], [0, 0, 1])
        for protocol, count in ("http", 3), ("resp", 2):
            self.assertEqual(self.metric(
                at, 'weir_agent_errors_total{protocol="%s",'
                'kind="not_ready"}' % protocol), count)

    def test_keys_of_the_fleet(self):
        at = self.start(self.gone, "--resp-sharing", "counted")
        link = self.resp(at["resp"])
        self.assertTrue(link.ask("CL.THROTTLE", "k", 1, 1, 86400)
                        .startswith("-TRYAGAIN no root"))

    def test_passed_before_quotas(self):
        at = self.start(self.gone, "--before-quotas", "pass")
        link = self.resp(at["resp"])
        self.assertEqual(self.take(at, "site"), 200)
        self.assertEqual(self.ask(at, "POST", "/json", ASKED)[0], 200)
        self.assertEqual(link.ask("WEIR.TAKE", "site")[0], 0)
        status, text = self.ask(at, "GET", "/readyz")
        self.assertEqual(status, 503)
        self.assertIn("passes", text)
        self.assertIn("--before-quotas pass: every request passes",
                      self.logged())

    def test_options(self):
        for options, says in (
                (["--before-quotas", "open"], "refuse or pass, not 'open'"),
                (["--table", self.path("t"), "--snapshot", self.file],
                 "goes without --table"),
                (["--snapshot", ""], "--snapshot: the path of a file")):
            done = self.run_weir("agent", *options, root=self.gone)
            self.assertEqual(done.status, 2, done.err)
            self.assertIn(says, done.err)

    def keep(self):
        """Lets an agent write a snapshot of a quota of 2, and kills it."""
        self.quota("site", "limit=1/day", "high_burst=2",
                   "algorithm=token_bucket", "on_stale=share")
        self.quota("user/*", "limit=1/day", "high_burst=1",
                   "algorithm=token_bucket")
        self.start(self.live, "--snapshot", self.file)
        until("the snapshot", lambda: os.path.exists(self.file))
        self.kill()

    def test_limits_hold_from_the_snapshot(self):
        self.keep()
        self.root.process.send_signal(signal.SIGKILL)
        self.root.process.wait(PATIENCE)
        at = self.start(self.gone, "--snapshot", self.file)
        until("ready", lambda: self.ask(at, "GET", "/readyz")[0] == 200)
        self.assertEqual([self.take(at, "site") for _ in range(3)],
                         [200, 200, 429])
        for name in "user/ann", "user/" + "b" * 300:
            self.assertEqual([self.take(at, name) for _ in range(2)],
                             [200, 429])
        self.assertEqual(self.take(at, "nobody"), 200)
        self.assertIn("are in force until a root answers", self.logged())
        self.assertIn("ready: the quotas of a root, or of the snapshot, are",
                      self.logged())
        # Killed again, nothing is lost.
        self.kill()
        at = self.start(self.gone, "--snapshot", self.file)
        until("ready", lambda: self.ask(at, "GET", "/readyz")[0] == 200)
        self.assertEqual(self.take(at, "site"), 200)

    def test_a_root_replaces_the_snapshot(self):
        self.keep()
        self.ok("quota", "rm", "site", root=self.root)
        self.quota("new", "limit=0")
        at = self.start(self.live, "--snapshot", self.file)
        until("the new quota", lambda: self.take(at, "new") == 429)
        self.assertEqual([self.take(at, "site") for _ in range(4)], [200] * 4)
        # And it is kept: the root's epoch is that of the next start.
        def kept():
            found = self.start(self.gone, "--snapshot", self.file)
            until("ready", lambda: self.ask(found, "GET", "/readyz")[0] == 200)
            same = self.take(found, "new") == 429
            self.kill()
            return same
        until("the new set is kept", kept)

    def test_a_damaged_snapshot_is_none(self):
        self.keep()
        whole = Path(self.file).read_bytes()
        middle = len(whole) // 2
        for bytes_, says in (
                (whole[:-9], "is cut short"), (b"", "is cut short"),
                (whole[:middle] + bytes([whole[middle] ^ 1]) +
                 whole[middle + 1:], "isn't used"),
                (b"x" * 100, "isn't one of Weir")):
            Path(self.file).write_bytes(bytes_)
            at = self.start(self.gone, "--snapshot", self.file)
            until("the log says so", lambda: says in self.logged())
            self.assertEqual(self.take(at, "site"), 503)
            self.assertEqual(self.ask(at, "GET", "/readyz")[0], 503)
            self.kill()

    def test_a_snapshot_that_cant_be_written(self):
        """As on a full disk: the agent goes on, and says so once."""
        self.quota("site", "limit=0")
        at = self.start(self.live, "--snapshot", "/dev/full/quotas")
        until("the log says so",
              lambda: "no new snapshot of the quotas" in self.logged())
        until("the quota", lambda: self.take(at, "site") == 429)
        self.assertEqual(self.ask(at, "GET", "/readyz")[0], 200)


if __name__ == "__main__":
    unittest.main(verbosity=2)
