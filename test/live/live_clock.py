#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_clock.py - processes with clocks that are off by a day.

libfaketime changes a process' clocks. No program compares its clock with that
of another one: so a fleet with clocks that are days apart, or jump by a day
under load, passes its limit as ever. Wall time is for people (the log of edits
has the time of the root where the edit was made) and for certificates: a
machine with a clock a day behind refuses a certificate made today, and logs
why."""

import glob
import json
import os
import sys
import time
import unittest

from live_fleet import Fleet, Limiter, Root
from patience import PATIENCE, until

DAY = 86400
LIMIT, OFFERED = 10000, 10000   # OFFERED by each of three limiters
PART = 0.1                      # of a rate, in either direction
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
    """The environment that sets a process' wall clock off by 'offset', in
    libfaketime's notation; with 'monotonic' its monotonic clock, too."""
    env = {**os.environ, "LD_PRELOAD": library(), "FAKETIME": offset}
    if not monotonic:
        env["FAKETIME_DONT_FAKE_MONOTONIC"] = "1"
    return env


def jumping_clock(path):
    """A wall clock that is off by the file's present content; libfaketime reads
    it each second."""
    env = clock("+0")
    del env["FAKETIME"]
    return {**env, "FAKETIME_TIMESTAMP_FILE": str(path),
            "FAKETIME_CACHE_DURATION": "1"}


class Ahead(Limiter):
    """A limiter with a monotonic clock decades ahead, because libfaketime
    derives it from the wall clock. The instants of its bins are corrected."""

    def read(self):
        ahead = time.time() + DAY - time.monotonic()
        for line in self.process.stdout:
            told = json.loads(line)
            told["at"] -= ahead
            self.lines.append(told)


class Clocks(unittest.TestCase):
    def setUp(self):
        self.edits = 0
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

    def until_limit(self, what):
        passed = self.fleet.until_rate("q", LIMIT, PART)
        say(f"{what}: passed {passed:.0f} of {LIMIT}/s")

    def moved(self):
        """Events of limiters that lost a root or believe so."""
        return [line for limiter in self.fleet.limiters
                for line in limiter.told("event")
                if line["event"] in (ROOT_DOWN, STALE)]

    def until_unmoved(self, what, act):
        """Repeats 'act' until no limiter has an event meanwhile. A machine that
        is busy for ten seconds loses a link with any clocks; a clock that
        mattered would cost one each time."""
        def unmoved():
            before = self.moved()
            act()
            return self.moved() == before
        until(f"{what} that no limiter notices", unmoved, 3 * PATIENCE)
        self.assertEqual(self.fleet.failed(), 0)

    def edit(self, root, text):
        """Edits; returns the epoch once every limiter has it."""
        self.fleet.set("q", f"description={text}", root=root)
        epoch = root.status()["epoch"]
        until("the edit with every limiter", lambda: all(
            limiter.seen()["epoch"] >= epoch
            for limiter in self.fleet.limiters))
        return epoch

    def edited_at(self):
        """Epoch -> its time in the log, minus this process' time, in seconds.
        """
        status, text, said = self.fleet.weir("quota", "log", "--json")
        self.assertEqual(status, 0, said)
        return {entry["epoch"]: entry["at_ms"] / 1000 - time.time()
                for entry in json.loads(text)}


class WallClocks(Clocks):
    def test_a_day_ahead_and_a_day_behind(self):
        self.add_roots(clock("+1d"), clock("-1d"))
        self.add_limiters(clock("+1d"), clock("-1d"), None)
        what = "wall clocks a day ahead and a day behind"
        self.until_unmoved(what, lambda: self.until_limit(what))
        ahead = self.edit(self.fleet.roots[0], "by a root that is ahead")
        behind = self.edit(self.fleet.roots[1], "by a root that is behind")
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
        for offset, off in ("+1d", DAY), ("-1d", -DAY):
            self.until_unmoved(f"wall clocks that jump to {offset}",
                               lambda: self.jump(path, offset, off))

    def jump(self, path, offset, off):
        """Moves the clock from today to 'offset'."""
        for text, wanted in ("+0", 0), (offset, off):
            path.write_text(text + "\n")
            until(f"a clock at {text}", lambda wanted=wanted: abs(
                self.edited_now() - wanted) < 60)
            self.until_limit(f"wall clocks at {text}")

    def edited_now(self):
        """The log's time of a new edit, minus this process' time, in seconds.
        """
        self.edits += 1
        epoch = self.edit(self.fleet.roots[0], f"edit {self.edits}")
        return self.edited_at()[epoch]


class MonotonicClocks(Clocks):
    """The start of a monotonic clock doesn't matter either, and its rate may be
    a percent off."""

    def test_decades_ahead(self):
        self.add_roots(clock("+1d", monotonic=True), None)
        self.add_limiters(None, None)
        self.add_limiters(clock("+1d", monotonic=True), kind=Ahead)
        what = "monotonic clocks decades ahead"
        self.until_unmoved(what, lambda: self.until_limit(what))

    def test_a_percent_fast(self):
        self.add_roots(None, clock("+0 x1.01", monotonic=True))
        self.add_limiters(None, None, None)
        what = "a root's clock a percent fast"
        self.until_unmoved(what, lambda: self.until_limit(what))


class Certificates(Clocks):
    """Each process checks certificates by its own clock: its own and its
    authorities when it starts, those of its peers when they connect."""

    def setUp(self):
        super().setUp()
        self.certs = self.fleet.folder / "certs"
        self.cert("ca", "--days", "30")

    def make(self, server=1, client=1):
        """Certificates that last so many days."""
        self.cert("server", "localhost", "127.0.0.1", "--days", str(server))
        self.cert("client", "ops", "--days", str(client))

    def cert(self, kind, *words):
        status, _, said = self.fleet.weir("cert", kind, str(self.certs),
                                          *words)
        self.assertEqual(status, 0, said)

    def root(self, env=None):
        """Starts a root that refuses clients without a trusted certificate."""
        self.fleet.roots = [Root(self.fleet, *self.files(), env=env)]

    def files(self):
        credentials = self.fleet.folder / "credentials"
        credentials.write_text("edit,take cert *\n")
        credentials.chmod(0o600)
        return ["--tls-cert", str(self.certs / "localhost.pem"), "--tls-key",
                str(self.certs / "localhost.key"), "--tls-ca",
                str(self.certs / "ca.pem"), "--credentials", str(credentials)]

    def shown(self, env=None):
        return {**(env or os.environ),
                "WEIR_TLS_CA": str(self.certs / "ca.pem"),
                "WEIR_TLS_CERT": str(self.certs / "ops.pem"),
                "WEIR_TLS_KEY": str(self.certs / "ops.key")}

    def assert_refused(self, pattern, env=None):
        """The command line and a limiter are refused, both with a reason."""
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

    def until_logged(self, text):
        """Waits for a line in the root's log, perhaps later than the client's
        error; returns it."""
        return until(f"{text!r} in the root's log", lambda: next(
            (line for line in self.fleet.roots[0].logged().splitlines()
             if text in line), None))

    def assert_ends(self, text, *words, env):
        """The command ends at its start, with a reason and a remedy."""
        status, _, said = self.fleet.weir(*words, env=env)
        self.assertEqual(status, 2, said)
        self.assertIn(text, said)
        self.assertIn("correct the clock", said)
        return said.strip()

    def test_right_time(self):
        self.make()
        self.root()
        status, _, said = self.fleet.weir("status", env=self.shown())
        self.assertEqual(status, 0, said)

    def test_a_client_behind(self):
        self.make()
        self.root()
        for words in ["status"], ["take", "q"]:
            said = self.assert_ends("isn't valid before", *words,
                                    env=self.shown(clock("-1d")))
        say(f"a client a day behind: {said}")

    def test_a_client_ahead(self):
        self.make(server=1, client=9)
        self.root()
        said = self.assert_refused("expired", clock("+2d"))
        say(f"a client two days ahead: {said}")
        for words in ["status"], ["take", "q"]:
            self.assert_ends("expired at", *words,
                             env=self.shown(clock("+10d")))

    def test_a_root_behind(self):
        self.make()
        said = self.assert_ends("isn't valid before", "serve", "--store",
                                self.fleet.store, *self.files(),
                                env=clock("-1d"))
        say(f"a root a day behind: {said}")

    def test_a_root_ahead(self):
        self.make(server=9, client=1)
        self.root(clock("+2d"))
        said = self.assert_refused("certificate")
        self.until_logged("expired")
        say(f"a root two days ahead says to a client: {said}")
        self.assert_ends("expired at", "serve", "--store", self.fleet.store,
                         *self.files(), env=clock("+10d"))


if __name__ == "__main__":
    unittest.main()
