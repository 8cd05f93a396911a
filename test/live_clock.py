#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_clock.py - processes whose clocks are off by a day.

libfaketime stands between a process and its clocks. Nobody's clock is compared
with anybody else's: so a fleet whose roots and limiters are days apart, or
jump by a day under load, holds its limits as ever (within 3 %, as the mean
over any 5 seconds). Wall time is for people (the log of edits has that of
the root where the edit was made) and for certificates: a machine a day behind
refuses one of today, and says why."""

import glob
import json
import os
import sys
import time
import unittest

from live_accuracy import means
from live_fleet import Fleet, Limiter, Root, until, wait_for
from live_witness import Measured

DAY = 86400
LIMIT, OFFERED = 10000, 10000   # the latter by each of three limiters
BOUND = 0.03
WARM, MEASURE = 3, 7            # seconds
ROOT_DOWN, STALE = 2, 4         # enum weir_event_type


def say(text):
    print(text, file=sys.stderr)


def library():
    found = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
    if not found:
        sys.exit("live_clock: libfaketime isn't here; install the package "
                 "'libfaketime' (tools/install-deps.sh check)")
    return found[0]


def clock(offset, monotonic=False):
    """The environment of a process whose wall clock is off by 'offset', as
    libfaketime spells it; its monotonic clock too, if that is said."""
    env = {**os.environ, "LD_PRELOAD": library(), "FAKETIME": offset}
    if not monotonic:
        env["FAKETIME_DONT_FAKE_MONOTONIC"] = "1"
    return env


def jumping_clock(path):
    """One that is off by what the file says now, to a second."""
    env = clock("+0")
    del env["FAKETIME"]
    return {**env, "FAKETIME_TIMESTAMP_FILE": str(path),
            "FAKETIME_CACHE_DURATION": "1"}


class Ahead(Limiter):
    """A limiter whose monotonic clock is ahead, and so its bins: libfaketime
    makes it of the wall clock, so that it is decades ahead."""

    def read(self):
        ahead = time.time() + DAY - time.monotonic()
        for line in self.process.stdout:
            told = json.loads(line)
            told["at"] -= ahead
            self.lines.append(told)


class Clocks(Measured):
    def setUp(self):
        self.fleet = Fleet()
        self.addCleanup(self.fleet.close)

    def add_roots(self, *envs):
        for env in envs:
            self.fleet.add_roots(1, env=env)
        self.fleet.set("q", f"limit={LIMIT}/s")

    def add_limiters(self, *envs, kind=Limiter):
        for env in envs:
            self.fleet.limiters.append(
                kind(self.fleet.addresses(),
                     f"limiter{len(self.fleet.limiters)}", [f"q={OFFERED}"],
                     env=env))
        self.fleet.wait_linked()

    def assert_limit(self, what, meanwhile=lambda: None):
        wait_for(WARM)
        start = time.monotonic()
        meanwhile()
        # On a busy machine that may have taken longer.
        end = max(start + MEASURE, time.monotonic())
        wait_for(max(0, end - time.monotonic()))
        until("the last bins", lambda: all(
            limiter.seen()["at"] >= end for limiter in self.fleet.limiters))
        passed = means(self.fleet, "q", start, end, 2)
        low, high = min(passed) / LIMIT, max(passed) / LIMIT
        say(f"{what}: passed {low:.4f} to {high:.4f} of the limit")
        self.assert_steady(1 - BOUND <= low and high <= 1 + BOUND,
                           f"{what}: {low:.4f} to {high:.4f}")
        self.assertEqual(self.fleet.failed(), 0)
        bad = [line for limiter in self.fleet.limiters
               for line in limiter.told("event")
               if line["event"] in (ROOT_DOWN, STALE)]
        self.assertEqual(bad, [])

    def edit(self, root, text):
        """The epoch of an edit, once every limiter has it."""
        self.fleet.set("q", f"description={text}", root=root)
        epoch = root.status()["epoch"]
        until("the edit with every limiter", lambda: all(
            limiter.seen()["epoch"] >= epoch
            for limiter in self.fleet.limiters))
        return epoch

    def edited_at(self):
        """Epoch -> how far the log's time of it is from ours, in seconds."""
        status, text, said = self.fleet.weir("quota", "log", "--json")
        self.assertEqual(status, 0, said)
        return {entry["epoch"]: entry["at_ms"] / 1000 - time.time()
                for entry in json.loads(text)}


class WallClocks(Clocks):
    def test_a_day_ahead_and_a_day_behind(self):
        self.add_roots(clock("+1d"), clock("-1d"))
        self.add_limiters(clock("+1d"), clock("-1d"), None)
        self.assert_limit("wall clocks a day ahead and a day behind")
        ahead = self.edit(self.fleet.roots[0], "by one who is ahead")
        behind = self.edit(self.fleet.roots[1], "by one who is behind")
        off = self.edited_at()
        self.assertEqual(list(off), sorted(off, reverse=True), "the order")
        self.assertAlmostEqual(off[ahead], DAY, delta=60)
        self.assertAlmostEqual(off[behind], -DAY, delta=60)
        say(f"the log of edits: {off[ahead]:+.0f} s, then "
            f"{off[behind]:+.0f} s; its order is that of the epochs")
        status, _, said = self.fleet.weir("quota", "undo", str(ahead))
        self.assertEqual(status, 2, said)
        self.assertIn("changed since", said)
        self.assertIn(f"(epoch {behind})", said)
        status, _, said = self.fleet.weir("quota", "undo", str(behind))
        self.assertEqual(status, 0, said)

    def test_jumps(self):
        path = self.fleet.folder / "clock"
        path.write_text("+0\n")
        self.add_roots(jumping_clock(path), None)
        self.add_limiters(jumping_clock(path), None, None)
        seen = []

        def jump():
            for offset in ("+1d", "-1d"):
                path.write_text(offset + "\n")
                wait_for(2)   # libfaketime looks once a second
                epoch = self.edit(self.fleet.roots[0], offset)
                seen.append(self.edited_at()[epoch])
        self.assert_limit("wall clocks that jump a day ahead, then two back",
                          jump)
        self.assertAlmostEqual(seen[0], DAY, delta=60)
        self.assertAlmostEqual(seen[1], -DAY, delta=60)


class MonotonicClocks(Clocks):
    """Their zero is nobody's business either, and a crystal may be a percent
    off."""

    def test_decades_ahead(self):
        self.add_roots(clock("+1d", monotonic=True), None)
        self.add_limiters(None, None)
        self.add_limiters(clock("+1d", monotonic=True), kind=Ahead)
        self.assert_limit("monotonic clocks decades ahead")

    def test_a_percent_fast(self):
        # Its own bins are told by a clock that is fast: they aren't judged
        # to the second, so one limiter of three.
        self.add_roots(None, clock("+0 x1.01", monotonic=True))
        self.add_limiters(None, None, None)
        self.assert_limit("a root's clock a percent fast")


class Certificates(Clocks):
    """Each judges by its own clock."""

    def setUp(self):
        super().setUp()
        self.certs = self.fleet.folder / "certs"
        self.cert("ca", "--days", "30")
        self.cert("server", "localhost", "127.0.0.1", "--days", "1")
        self.cert("client", "ops", "--days", "1")

    def cert(self, kind, *words):
        status, _, said = self.fleet.weir("cert", kind, str(self.certs),
                                          *words)
        self.assertEqual(status, 0, said)

    def root(self, env=None):
        """Refuses whoever shows no certificate that it trusts."""
        credentials = self.fleet.folder / "credentials"
        credentials.write_text("edit,take cert *\n")
        credentials.chmod(0o600)
        self.fleet.roots = [Root(
            self.fleet, "--tls-cert", str(self.certs / "localhost.pem"),
            "--tls-key", str(self.certs / "localhost.key"), "--tls-ca",
            str(self.certs / "ca.pem"), "--credentials", str(credentials),
            env=env)]

    def shown(self, env=None):
        return {**(env or os.environ),
                "WEIR_TLS_CA": str(self.certs / "ca.pem"),
                "WEIR_TLS_CERT": str(self.certs / "ops.pem"),
                "WEIR_TLS_KEY": str(self.certs / "ops.key")}

    def assert_refused(self, pattern, env=None):
        """By the command line and by a limiter, both with a reason."""
        status, _, said = self.fleet.weir("status", env=self.shown(env))
        self.assertEqual(status, 2, said)
        self.assertRegex(said, pattern)
        limiter = self.fleet.add_limiter([f"q={OFFERED}"],
                                         env=self.shown(env))
        down = until("a reason", lambda: [
            line["text"] for line in limiter.told("event")
            if line["event"] == ROOT_DOWN])[0]
        self.assertRegex(down, pattern)
        return said.strip()

    def test_right_time(self):
        self.root()
        status, _, said = self.fleet.weir("status", env=self.shown())
        self.assertEqual(status, 0, said)

    def test_a_client_behind(self):
        self.root()
        said = self.assert_refused("valid yet", clock("-1d"))
        say(f"a client a day behind: {said}")

    def test_a_client_ahead(self):
        self.root()
        said = self.assert_refused("expired", clock("+2d"))
        say(f"a client two days ahead: {said}")

    def test_a_root_behind(self):
        self.root(clock("-1d"))
        said = self.assert_refused("certificate")
        logged = self.fleet.roots[0].logged()
        self.assertIn("valid yet", logged)
        say(f"a root a day behind says to a client: {said}")
        for line in logged.splitlines():
            if "valid yet" in line:
                say(f"and in its log: {line}")
                break

    def test_a_root_ahead(self):
        self.root(clock("+2d"))
        said = self.assert_refused("certificate")
        self.assertIn("expired", self.fleet.roots[0].logged())
        say(f"a root two days ahead says to a client: {said}")


if __name__ == "__main__":
    unittest.main()
