#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_exact.py - exact quotas from end to end: `weir take` in many processes
with a real root, a real Redis and a real memcached. Deadlines are as long as
they can be, so that a busy machine doesn't look like a dead store. Fixed
windows are months: fewer than one run in a million of a test of two seconds
crosses the end of a month."""

import json
import os
import shutil
import socket
import subprocess
import unittest

from live_cli import WEIR, Case, Root
from patience import PATIENCE, free_port, until

PROCESSES = 4
MONTHS = ("algorithm=fixed_window", "window=month")
LONG = "deadline=10s"  # the longest deadline


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), PATIENCE).close()
        return True
    except OSError:
        return False


class Exact(Case):
    def setUp(self):
        super().setUp()
        self.root = Root(self, store=self.make_store())
        self.port = free_port()
        self.uri = None
        self.server = None

    def tearDown(self):
        self.stop_server()
        super().tearDown()

    def stop_server(self):
        if self.server:
            self.server.kill()
            self.server.wait()
        self.server = None

    def start_server(self, kind):
        programs = {
            "redis": ["redis-server", "--port", str(self.port), "--bind",
                      "127.0.0.1", "--save", "", "--dir", self.folder],
            "memcached": ["memcached", "-l", "127.0.0.1", "-p",
                          str(self.port), "-u", "nobody"],
        }
        if not shutil.which(programs[kind][0]):
            self.skipTest(f"no {kind} here")
        self.server = subprocess.Popen(programs[kind],
                                       stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
        self.uri = f"{kind}://127.0.0.1:{self.port}"
        until(kind, lambda: answers(self.port))

    def set(self, name, *fields):
        self.ok("quota", "set", name, "sharing=exact", f"store={self.uri}",
                *fields, root=self.root)

    def take_together(self, name, count):
        """Units that passed, in processes that ask at the same time."""
        env = dict(self.env, WEIR_ROOTS=self.root.address)
        takers = [subprocess.Popen(
            [WEIR, "take", "--json", "-n", str(count), name,
             f"--timeout={PATIENCE}s"], env=env, stdout=subprocess.PIPE,
            text=True) for _ in range(PROCESSES)]
        return sum(json.loads(taker.communicate()[0])["passed"]
                   for taker in takers)

    def reply(self, name, *options):
        done = self.run_weir("take", "--json", *options, name, root=self.root)
        return json.loads(done.out)

    def take_the_rest(self, name):
        """Takes until the store refuses; returns how many passed."""
        replies = []

        def refused():
            replies.append(self.reply(name))
            return replies[-1]["exact"] and \
                replies[-1]["verdict"] == "limited"
        until("a refusal by the store", refused)
        return sum(reply["verdict"] != "limited" for reply in replies)

    def check_exact(self, *fields):
        """A process that isn't connected to its store yet uses on_stale, which
        is limit: so all units that pass are the store's. A process that
        connects late leaves units for later ones."""
        self.set("calls", "limit=100/day", LONG, "on_stale=limit",
                 *fields)
        passed = self.take_together("calls", 60)
        self.assertEqual(passed + self.take_the_rest("calls"), 100)
        reply = self.reply("calls")
        self.assertEqual((reply["verdict"], reply["exact"], reply["stale"]),
                         ("limited", True, False))
        said = self.run_weir("take", "calls", root=self.root).out
        self.assertIn(f"counted in {self.uri}", said)

    def test_redis_admits_exactly_the_limit(self):
        self.start_server("redis")
        self.check_exact("algorithm=sliding_log")

    def test_memcached_admits_exactly_the_limit(self):
        self.start_server("memcached")
        self.check_exact("algorithm=token_bucket", "high_burst=100")

    def test_a_root_admits_exactly_the_limit(self):
        self.uri = "root"
        self.check_exact("algorithm=sliding_log")

    def test_a_root_knows_time_zones(self):
        self.uri = "root"
        self.set("zoned", "limit=7/month", *MONTHS, "tz=Asia/Kolkata",
                 LONG)
        self.assertEqual(self.take_together("zoned", 5), 7)
        self.assertNotIn("time zone", self.root.logged())

    def test_fleets_with_prefixes_share_a_store(self):
        self.start_server("redis")
        self.set("calls", "limit=5/month", *MONTHS, LONG,
                 "on_stale=limit")
        for prefix in ("one", "two"):
            self.env["WEIR_STORE_PREFIX"] = prefix
            self.assertEqual(self.take_the_rest("calls"), 5)

    def test_what_a_root_has_been_asked_is_in_its_metrics(self):
        self.uri = "root"
        self.set("calls", "limit=5/month", *MONTHS, LONG,
                 "on_stale=limit")
        self.assertEqual(self.take_the_rest("calls"), 5)
        metrics = self.root.get("/metrics")[1]
        self.assertIn("\nweir_exact_requests_total 6\n", metrics)
        self.assertIn("\nweir_exact_requests_refused_total 0\n", metrics)
        self.assertIn("\nweir_exact_requests_dropped_total 0\n", metrics)
        self.assertIn("\nweir_bucket_states 1\n", metrics)
        self.assertRegex(metrics, r"\nweir_bucket_state_bytes [1-9][0-9]*\n")

    def test_an_edit_carries_what_a_root_has_counted(self):
        self.uri = "root"
        self.set("calls", "limit=5/month", *MONTHS, LONG,
                 "on_stale=limit")
        self.assertEqual(self.reply("calls", "-n", "9")["passed"], 5)
        self.set("calls", "limit=7/month", *MONTHS, LONG,
                 "on_stale=limit")
        self.assertEqual(self.reply("calls", "-n", "9")["passed"], 2)

    def test_a_chain_of_two_stores_and_a_local_limit(self):
        """When one quota of the chain refuses, no other one is charged."""
        self.start_server("redis")
        self.set("all", "limit=7/month", *MONTHS, LONG)
        self.set("all/one", "limit=100/month", *MONTHS, LONG,
                 "parent=all")
        self.assertEqual(self.take_together("all/one", 10), 7)
        self.set("all", "limit=1000/month", *MONTHS, LONG)
        self.assertEqual(self.reply("all/one", "--peek")["remaining"], 93)

    def test_who_holds_is_in_flight(self):
        self.start_server("redis")
        self.set("pool", "kind=concurrency", "limit=2", LONG,
                 "on_stale=limit", "permit_timeout=1h")
        env = dict(self.env, WEIR_ROOTS=self.root.address)
        holder = subprocess.Popen(
            [WEIR, "take", "--json", "--in-flight=1h", "-w2", "pool",
             f"--timeout={PATIENCE}s"], env=env, stdout=subprocess.PIPE,
            text=True)
        self.addCleanup(holder.kill)
        said = ""
        while not said.endswith("}\n"):
            said += holder.stdout.readline()
        self.assertTrue(json.loads(said)["exact"])
        reply = self.reply("pool", "--in-flight=0s")
        self.assertEqual((reply["verdict"], reply["exact"], reply["fill"]),
                         ("limited", True, 2))
        holder.kill()
        holder.communicate()
        self.assertEqual(self.reply("pool")["verdict"], "limited")
        self.set("pool", "kind=concurrency", "limit=3", LONG,
                 "on_stale=limit", "permit_timeout=1h")
        self.assertEqual(self.reply("pool", "--in-flight=0s")["verdict"],
                         "passed")
        self.assertEqual(self.reply("pool", "--peek")["fill"], 2)

    def test_a_dead_store_and_its_return(self):
        self.start_server("redis")
        fields = ("limit=5/month", *MONTHS, LONG)
        self.set("pass", *fields, "on_stale=pass")
        self.set("limit", *fields, "on_stale=limit")
        self.set("shared", *fields, "on_stale=share")
        self.stop_server()
        self.assertEqual(self.reply("pass", "-n", "20")["passed"], 20)
        self.assertEqual(self.reply("limit", "-n", "20")["passed"], 0)
        self.assertEqual(self.reply("shared", "-n", "20")["passed"], 5)
        self.assertTrue(self.reply("limit")["stale"])
        self.start_server("redis")
        until("answers", lambda: self.reply("limit")["exact"])
        self.assertEqual(self.reply("shared", "-n", "20")["passed"], 5)

    def test_a_store_without_a_password_file(self):
        """An error names the missing file, and no output has the password."""
        self.start_server("redis")
        subprocess.run(["redis-cli", "-p", str(self.port), "config", "set",
                        "requirepass", "hush-hush"], check=True,
                       stdout=subprocess.DEVNULL)
        self.set("safe", "limit=5/month", *MONTHS, LONG,
                 "on_stale=limit")
        self.assertEqual(self.reply("safe", "-n", "9")["passed"], 0)
        secrets = self.path("secrets")
        with open(secrets, "w", opener=lambda path, flags:
                  os.open(path, flags, 0o600)) as file:
            file.write(f"127.0.0.1:{self.port} - hush-hush\n")
        self.env["WEIR_STORE_SECRETS"] = secrets
        self.assertEqual(self.reply("safe", "-n", "9")["passed"], 5)
        self.assertNotIn("hush", self.root.logged())


if __name__ == "__main__":
    unittest.main(verbosity=1)
