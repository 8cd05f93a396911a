#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_roots.py - a fleet through failures of its roots, their store and their
peers, and through edits of quotas.

Real roots and limiters under load. Each step waits for an event, until a
deadline. Assertions are exact (the calls that passed, the roots' counts), or
about a rate that the fleet settles on, however late. How accurate a rate is,
and how soon a fleet settles, is asserted in virtual time: test_fleet,
test_stalls, test_region."""

import math
import os
import random
import socket
import sqlite3
import sys
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from live_fleet import Fleet, Limiter
from patience import until, until_equal

ROOT_DOWN, STALE, FRESH, FORKED = 2, 4, 5, 9   # enum weir_event_type
# Tolerance of a rate. Buckets are small, so that the fleet settles soon: the
# units left in them are less than this part of a window's units.
PART = 0.1
SMALL = ("low_burst=100ms", "high_burst=200ms")
# Standard deviations between two frequencies that should be equal: they differ
# by more in 2 of 10^9 cases.
DEVIATIONS = 6


def say(text):
    print(text, file=sys.stderr)


def rest(limiters):
    """Ends the load; then seen() has the final counts."""
    for limiter in limiters:
        limiter.tell("rest")
    until("the limiters' last bins", lambda: all(
        limiter.told("rest") for limiter in limiters))


def passed_by(limiters, name):
    return sum(limiter.seen()["seen"][name][1] for limiter in limiters)


def until_counted(roots, name, passed):
    """Waits until each of the roots has counted exactly that."""
    until_equal(f"the roots' counts of {name}", [passed] * len(roots),
                lambda: [root.usage().get(name, {}).get("passed")
                         for root in roots])


class StaleBins:
    """A limiter's bins from its STALE on, until the latest one.

    The event comes after the table has changed: takes between two bins after
    it use on_stale alone."""

    def __init__(self, limiter):
        lines = list(limiter.lines)
        marks = [at for at, line in enumerate(lines)
                 if line.get("event") in (STALE, FRESH)]
        is_stale = marks and lines[marks[-1]]["event"] == STALE
        self.bins = [line["seen"] for line in lines[marks[-1]:]
                     if "seen" in line][1:] if is_stale else []

    def span(self, name, first=0, last=-1):
        """(offered, passed) between two bins."""
        before, after = self.bins[first][name], self.bins[last][name]
        return after[0] - before[0], after[1] - before[1]

    def has(self, calls):
        """Whether both halves() of each quota have at least so many calls."""
        return bool(self.bins) and all(
            min(offered for offered, _ in self.halves(name)) >= least
            for name, least in calls.items())

    def halves(self, name):
        """(offered, passed) of the first half of the calls, and of the second,
        cut at the nearest end of a bin. Each call weighs 1."""
        half = (self.bins[0][name][2] + self.bins[-1][name][2]) / 2
        middle = min(range(len(self.bins)),
                     key=lambda at: abs(self.bins[at][name][2] - half))
        return self.span(name, 0, middle), self.span(name, middle, -1)


class Case(unittest.TestCase):
    OPTIONS = ("--report-interval", "200ms")
    ROOTS = 2

    def setUp(self):
        self.fleet = Fleet()
        self.addCleanup(self.fleet.close)
        self.fleet.add_roots(self.ROOTS, *self.OPTIONS)

    def limiter(self, *loads, roots=None):
        """A limiter that waits for the quotas and the roots' counts before its
        first take, so that roots count each take."""
        roots = roots or self.fleet.roots
        limiter = Limiter(",".join(root.listen for root in roots),
                          f"limiter{len(self.fleet.limiters)}", loads, 50,
                          ready=True)
        self.fleet.limiters.append(limiter)
        return limiter

    def load(self, *loads, limiters=3):
        made = [self.limiter(*loads) for _ in range(limiters)]
        self.fleet.wait_linked()
        return made

    def until_stale(self, limiters):
        """Waits until each uses on_stale, and has made some calls of each quota
        since then, many of 'hold', to check its frequency."""
        calls = {"pass": 100, "idle": 100, "limit": 100, "hold": 1000}

        def spans():
            found = [StaleBins(limiter) for limiter in limiters]
            return all(span.has(calls) for span in found) and found
        return until("every limiter goes by on_stale", spans)

    def assert_passed(self, spans, name):
        for offered, passed in (span.span(name) for span in spans):
            self.assertEqual(passed, offered, f"{name}: all should pass")

    def assert_limited(self, spans, name):
        for offered, passed in (span.span(name) for span in spans):
            self.assertEqual(passed, 0,
                             f"{name}: of {offered} none should pass")

    def assert_held(self, spans, name):
        """Some calls pass, with the same frequency in both halves."""
        for first, second in (span.halves(name) for span in spans):
            said = f"{name}: (offered, passed) were {first}, then {second}"
            for offered, passed in (first, second):
                self.assertGreater(passed, 0, said)
                self.assertLess(passed, offered, said)
            deviation = math.sqrt((1 / first[0] + 1 / second[0]) / 4)
            self.assertLess(abs(first[1] / first[0] - second[1] / second[0]),
                            DEVIATIONS * deviation, said)

    def assert_epochs_rise(self):
        for limiter in self.fleet.limiters:
            epochs = [line["epoch"] for line in limiter.told("seen")]
            self.assertEqual(epochs, sorted(epochs), "an epoch went back")

    def assert_no_link_lost(self, limiters):
        for limiter in limiters:
            self.assertEqual([line for line in limiter.told("event")
                              if line["event"] == ROOT_DOWN], [])

    def assert_all_answered(self):
        self.assertEqual(self.fleet.failed(), 0, "takes without a verdict")


class Roots(Case):
    # Quota -> (limit, weight), each under three times its limit: one link and
    # a chain of three, by count and by bytes. The limit is that of the chain's
    # last parent, or of its first child.
    LOADS = {"count": (4000, 1), "chain/a/b": (4000, 1),
             "bytes": (4000000, 1000), "load/a/b": (4000000, 1000)}

    def set_quotas(self):
        for name, limit in (("count", 4000), ("chain", 4000),
                            ("bytes", 4000000), ("load", 20000000)):
            self.fleet.set(name, f"limit={limit}/s", *SMALL)
        for name, limit in (("chain/a", 8000), ("chain/a/b", 20000),
                            ("load/a", 8000000), ("load/a/b", 4000000)):
            self.fleet.set(name, f"limit={limit}/s", *SMALL,
                           f"parent={name.rpartition('/')[0]}")

    def test_killed_and_restarted(self):
        self.set_quotas()
        limits = {name: limit for name, (limit, _) in self.LOADS.items()}
        self.load(*[f"{name}={limit // weight}:{weight}"
                    for name, (limit, weight) in self.LOADS.items()])
        first, second = self.fleet.roots
        self.fleet.until_rates(limits, PART)
        first.kill()
        self.fleet.wait_linked(1)
        self.fleet.until_rates(limits, PART)
        first.start()
        self.fleet.wait_linked(2)
        self.fleet.until_rates(limits, PART)
        rest(self.fleet.limiters)
        for name in limits:
            until_counted([second], name,
                          passed_by(self.fleet.limiters, name))
        self.assert_all_answered()

    def test_one_budget(self):
        """The others get exactly the units that one limiter left in a bucket
        that hardly leaks. That also holds with a single cold root, which has
        the fill from the first limiter."""
        budget = 3000
        self.fleet.set("q", "limit=1/h", f"low_burst={budget}",
                       f"high_burst={budget}")
        root, other = self.fleet.roots
        first = self.limiter("q=5000")
        until("a part of the budget", lambda: first.seen() and
              passed_by([first], "q") > 500)
        rest([first])
        root.kill()
        until_counted([other], "q", passed_by([first], "q"))
        root.start()
        self.fleet.wait_linked(2)
        # Less than a unit leaks in an hour.
        until_equal("the restarted root's fill", passed_by([first], "q"),
                    lambda: math.ceil(root.usage().get("q", {"fill": 0})
                                      ["fill"]))
        other.kill()
        second = self.limiter("q=5000")
        until("the rest of the budget", lambda: second.seen() and
              passed_by([first, second], "q") >= budget)
        third = self.limiter("q=5000")
        until("refusals", lambda: third.seen() and
              third.seen()["seen"]["q"][0] > 1000)
        rest([second, third])
        self.assertEqual(passed_by([first, second], "q"), budget)
        self.assertEqual(passed_by([third], "q"), 0)
        until_counted([root], "q", passed_by([second], "q"))
        self.assert_all_answered()


class Stale(Case):
    OPTIONS = ("--report-interval", "200ms", "--stale-after", "1s")
    MODES = ("pass", "limit", "share", "hold")

    def test_both_killed(self):
        for mode in self.MODES:
            self.fleet.set(mode, "limit=3000/s", f"on_stale={mode}", *SMALL)
        # A quota that never refused anything.
        self.fleet.set("idle", "limit=1000000/s", "on_stale=hold")
        # Several limiters learn their parts of the staleness share from the
        # roots, as well as the machine allows: test_stalls checks that. One
        # alone has all of it (an equal part at least: tally_correction.c).
        limiters = self.load(*[f"{mode}=9000" for mode in self.MODES],
                             "idle=300", limiters=1)
        limits = dict.fromkeys(self.MODES, 3000)
        self.fleet.until_rates(limits, PART)
        for root in self.fleet.roots:
            root.kill()
        until("every limiter has lost its roots", lambda: not any(
            limiter.up() for limiter in limiters))
        spans = self.until_stale(limiters)
        self.assert_passed(spans, "pass")
        self.assert_passed(spans, "idle")
        self.assert_limited(spans, "limit")
        self.assert_held(spans, "hold")
        self.fleet.until_rate("share", 3000, PART)

        self.fleet.roots[0].start()
        until("every limiter is fresh", lambda: all(
            limiter.up() == 1 and not limiter.seen()["stale"]
            for limiter in limiters))
        self.fleet.until_rates(limits, PART)
        for limiter in limiters:
            self.assertIn(FRESH, [line["event"]
                                  for line in limiter.told("event")])
        self.assert_all_answered()


class Edits(Case):
    def test_in_force(self):
        self.fleet.set("above", "limit=unlimited")
        self.fleet.set("gate", "limit=unlimited")
        self.fleet.set("gate/child", "limit=unlimited", "parent=above")
        self.load("gate=1000", "gate/child=1000")
        for quota, edited in (("gate", "gate"), ("gate/child", "above")):
            took = max(self.edit(quota, edited, passed)
                       for passed in (False, True) * 3)
            say(f"edit of {edited}, in force on {quota} in every limiter: "
                f"{1000 * took:.0f} ms after the start of `weir quota set` "
                "(slowest of 6)")
        self.assert_all_answered()

    def edit(self, quota, edited, passed):
        """Edits; returns the seconds until every limiter decides by it."""
        begun = time.monotonic()
        self.fleet.set(edited, "limit=" + ("unlimited" if passed else "0"))
        return max(until(f"the edit of {edited} decides on {quota}",
                         lambda: limiter.flip(quota, passed, begun))
                   for limiter in self.fleet.limiters) - begun


class Lowered(Case):
    ROOTS = 1

    def test_the_lower_limit_passes(self):
        """A full bucket of the former limit would drain for 1,000 seconds at
        the new one, much longer than the test waits."""
        self.fleet.set("q", "limit=10000/s")
        self.load("q=15000", limiters=2)
        self.fleet.until_rate("q", 10000, PART)
        self.fleet.set("q", "limit=10/s")
        self.fleet.until_rate("q", 10, 0.5)
        self.fleet.set("q", "limit=10000/s")
        self.fleet.until_rate("q", 10000, PART)
        self.assert_all_answered()


class Store(Case):
    def test_locked_and_removed(self):
        self.fleet.set("q", "limit=5000/s", *SMALL)
        self.load("q=5000")
        epoch = self.fleet.roots[0].status()["epoch"]
        other = sqlite3.connect(self.fleet.db, isolation_level=None)
        self.addCleanup(other.close)
        other.execute("BEGIN EXCLUSIVE")
        self.assert_edits_fail("locked", r"locked")
        other.execute("ROLLBACK")
        epoch = self.assert_edits_work("unlocked", epoch)

        away = self.fleet.folder / "away.db"
        os.rename(self.fleet.db, away)
        self.assert_edits_fail("moved away", r"quotas\.db")
        os.rename(away, self.fleet.db)
        self.assert_edits_work("back", epoch)
        self.assert_epochs_rise()
        self.assert_all_answered()

    def assert_edits_fail(self, what, pattern):
        """Edits fail at every root, and limits hold meanwhile."""
        def edit(root):
            return self.fleet.weir("quota", "set", "q", "limit=1/s",
                                   root=root)
        with ThreadPoolExecutor() as pool:
            edits = pool.map(edit, self.fleet.roots)
            self.fleet.until_rate("q", 5000, PART)
            for status, _, said in edits:
                self.assertEqual(status, 2, said)
                self.assertRegex(said, pattern)
        say(f"store {what}: an edit says: {said.strip()}")
        for root in self.fleet.roots:
            status, read, _ = self.fleet.weir("quota", "get", "q", root=root)
            self.assertEqual(status, 0)
            self.assertIn("5000/s", read)

    def assert_edits_work(self, what, epoch):
        until("an edit again", lambda: self.fleet.weir(
            "quota", "set", "q", f"description={what}")[0] == 0)
        now = self.fleet.roots[0].status()["epoch"]
        self.assertGreater(now, epoch)
        until_equal("the epoch of roots and limiters", {now}, lambda: {
            *(root.status()["epoch"] for root in self.fleet.roots),
            *(limiter.seen()["epoch"] for limiter in self.fleet.limiters)})
        return now


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class GarbageIn(Case):
    ROOTS = 1

    def test_speakers_of_other_things(self):
        self.fleet.set("q", "limit=5000/s", *SMALL)
        self.load("q=5000")
        seed = int(os.environ.get("WEIR_SEED", time.time_ns()))
        say(f"WEIR_SEED={seed}")
        chance = random.Random(seed)
        root = self.fleet.roots[0]
        for port in (root.listen, root.http):
            for _ in range(50):
                self.speak(port, chance.randbytes(chance.randrange(1, 4096)))
                self.speak(port, PREFACE + chance.randbytes(512))
            self.speak(port, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.speak(port, b"GET /" + b"a" * 200000)
            self.speak(port, PREFACE[:10])
        # Open and silent connections, as a scanner makes them.
        idle = [socket.create_connection(root.listen.split(":"))
                for _ in range(20)]
        self.fleet.until_rate("q", 5000, PART)
        for connection in idle:
            connection.close()
        self.assertIsNone(root.process.poll(), root.logged())
        self.assertTrue(root.status()["ready"])
        self.assert_no_link_lost(self.fleet.limiters)
        self.assert_all_answered()

    def speak(self, port, content):
        with socket.create_connection(port.split(":"), timeout=5) as peer:
            try:
                peer.sendall(content)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(65536):
                    pass
            except OSError:
                pass   # the root may end the connection


class Babbler:
    """A server that answers every client with noise."""

    def __init__(self, content):
        self.content, self.clients = content, 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.socket.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                peer, _ = self.socket.accept()
            except OSError:
                return
            self.clients += 1
            with peer:
                try:
                    peer.sendall(self.content)
                    peer.settimeout(1)
                    while peer.recv(65536):
                        pass
                except OSError:
                    pass

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


class GarbageOut(Case):
    ROOTS = 1
    SPEECH = {
        "noise": os.urandom(4096),
        "HTTP/1": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n"
                  b"Connection: close\r\n\r\n",
        # A SETTINGS frame, then a frame of an absurd length.
        "HTTP/2": b"\0\0\0\4\0\0\0\0\0" + b"\xff" * 64,
    }

    def test_a_root_that_is_none(self):
        """Such a server has no effect beside a good root; alone it counts as no
        root."""
        self.fleet.set("q", "limit=3000/s", *SMALL)
        good = self.fleet.roots[0].listen
        babblers = {}
        for name, content in self.SPEECH.items():
            babblers[name] = Babbler(content)
            self.addCleanup(babblers[name].close)
            bad = babblers[name].address
            self.fleet.add_limiter(["q=3000"], roots=f"{bad},{good}")
            self.fleet.add_limiter(["nothing=1000"], roots=bad)
        both = self.fleet.limiters[::2]
        alone = self.fleet.limiters[1::2]
        for limiter, (name, babbler) in zip(alone, babblers.items()):
            events = until("an event about it", lambda: [
                line for line in limiter.told("event")
                if line["event"] == ROOT_DOWN])
            until("two tries", lambda: babbler.clients >= 2)
            say(f"a root that speaks {name}: {events[0]['text']}")
        until("the good root", lambda: all(limiter.up() == 1
                                           for limiter in both))
        self.fleet.until_rate("q", 3000, PART, both)
        rest(alone)
        for limiter in alone:
            offered, passed = limiter.seen()["seen"]["nothing"][:2]
            self.assertGreater(offered, 0)
            self.assertEqual(passed, offered)
        self.assert_all_answered()


class Child:
    """The lines of a limiter's child, with a limiter's methods."""

    def __init__(self, parent, pid):
        self.parent, self.pid = parent, pid

    def seen(self):
        return self.parent.seen(self.pid)

    def told(self, key):
        return self.parent.told(key, self.pid)

    def rates(self, name, start, end):
        return self.parent.rates(name, start, end, self.pid)


class Fork(Case):
    def test_child_is_a_limiter_of_its_own(self):
        self.fleet.set("q", "limit=1000000/s")
        self.fleet.set("tight", "limit=1000/s", *SMALL)
        self.load("q=1000", "tight=1000", limiters=1)
        parent = self.fleet.limiters[0]
        before = self.connected()
        parent.tell("fork")
        until("two limiters", lambda: len(self.connected()) == 2)
        self.assertLess(before, self.connected())
        child = Child(parent, until("the child's bins", lambda: next(
            (line["pid"] for line in list(parent.lines)
             if line["pid"] != parent.process.pid and "seen" in line), None)))
        until("the child's roots", lambda: child.seen()["roots_up"] == 2)
        self.fleet.until_rates({"tight": 1000}, PART, [parent, child])
        parent.tell("rest")
        until("both rest", lambda: parent.told("rest") and child.told("rest"))
        # Inherited counts aren't counted twice.
        for name in ("q", "tight"):
            until_counted(self.fleet.roots, name,
                          passed_by([parent, child], name))
        for of in (parent, child):
            self.assertEqual({name: counts[3] for name, counts
                              in of.seen()["seen"].items()},
                             {"q": 0, "tight": 0}, "takes without a verdict")
        self.assert_no_link_lost([parent])
        self.assertIn(FORKED, [line["event"] for line in child.told("event")])

    def connected(self):
        return {limiter["incarnation"] for limiter in
                self.fleet.roots[0].status()["limiters"]
                if limiter["connected"]}


if __name__ == "__main__":
    unittest.main()
