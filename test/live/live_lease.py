#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_lease.py - a leased quota among processes: a root that grants leases,
three limiters, three times the load.

Each limiter is granted its part, and the sum never exceeds the limit; each
passes its grant. The sharing of the running fleet is changed and changed back;
leases outlive their root, and end; a second root on the store, a child of
fork() and the command line get their parts; and the next master continues after
the first one is killed, elected by a lock on a file or by etcd.

How exactly the limit is kept, in any second and while the sharing changes, is
asserted in virtual time by test_limiter_lease.c."""

import json
import socket
import threading
import time
import unittest

from live_etcd import Etcd
from live_grants import (Judged, granted, grants, has_learned, holders,
                         master, say)
from patience import until

LIMITERS = 3
LIMIT = 3000
PART = 0.1      # of a rate, in either direction
IDLE = 30       # seconds after which an unused grant is given back anyway
ELSEWHERE = 17  # enum weir_event_type


class Leases(Judged):
    capacity = LIMIT

    def setUp(self):
        super().setUp()
        self.fleet.add_roots(1)

    def set(self, sharing, *fields):
        # No other master has leased anything: there is nothing to learn.
        learning = "0s" if sharing == "leased" else ""
        self.fleet.set("q", f"limit={LIMIT}/s", f"sharing={sharing}",
                       "on_stale=limit", f"learning={learning}", *fields)

    def load(self):
        for _ in range(LIMITERS):
            self.add_limiter(3 * LIMIT // LIMITERS)
        self.fleet.wait_linked()

    def until_passing(self, what):
        """Waits until each limiter passes something, from now on."""
        before = [limiter.seen()["seen"]["q"][1]
                  for limiter in self.fleet.limiters]
        self.until(what, lambda: all(
            limiter.seen()["seen"]["q"][1] > passed
            for limiter, passed in zip(self.fleet.limiters, before)))

    def none_granted(self):
        return not any("q" in limiter.seen()["granted"]
                       for limiter in self.fleet.limiters)

    def test_the_limit_holds(self):
        self.set("leased")
        self.load()
        self.until_fair("fair parts")
        third = LIMIT / LIMITERS

        def each_passes_a_third():
            start = time.monotonic()
            passed = [self.fleet.means(["q"], start, [limiter])["q"][1]
                      for limiter in self.fleet.limiters]
            say(f"passed a second, of {third:.0f}: "
                f"{', '.join(f'{rate:.0f}' for rate in passed)}")
            return all(abs(rate - third) <= PART * third for rate in passed)
        self.until("each passes a third", each_passes_a_third)
        self.assert_never_over()
        self.assertEqual(self.fleet.failed(), 0)

    def test_the_sharing_is_changed_under_load(self):
        self.set("counted")
        self.load()
        self.until_passing("counted")
        for _ in range(2):
            self.set("leased")
            self.until_fair("leased")
            leased = time.monotonic()
            self.until_passing("leased units pass")
            self.until_sampled()
            self.assert_never_over(leased)
            self.set("counted")
            self.until("counted", self.none_granted)
            self.until_passing("counted units pass")
        self.fleet.until_rate("q", LIMIT, PART)
        self.assertEqual(self.fleet.failed(), 0)

    def test_a_root_that_dies_leaves_its_leases(self):
        self.set("leased", "lease=4s", "refresh=500ms")
        self.load()
        self.until_fair("fair parts")
        self.fleet.roots[0].kill()
        killed = time.monotonic()
        # Bins that began after the kill: the leases were renewed within half
        # a second before it, and have seconds left.
        self.until("a bin after the kill", lambda: all(
            limiter.seen()["at"] > killed for limiter in self.fleet.limiters))
        for limiter in self.fleet.limiters:
            first = next(line for line in limiter.told("seen")
                         if line["at"] > killed)
            self.assertAlmostEqual(first["granted"].get("q", 0),
                                   LIMIT / LIMITERS, delta=1)
        self.until_passing("they pass their grants")
        self.until("the leases are over", lambda: not any(
            map(granted, self.fleet.limiters)))
        passed = [limiter.seen()["seen"]["q"]
                  for limiter in self.fleet.limiters]
        self.until("takes", lambda: all(
            limiter.seen()["seen"]["q"][0] > offered + LIMIT // 4
            for limiter, (offered, *_) in zip(self.fleet.limiters, passed)))
        self.assertEqual([limiter.seen()["seen"]["q"][1]
                          for limiter in self.fleet.limiters],
                         [before for _, before, *_ in passed],
                         "passed without a lease")
        self.fleet.roots[0].start()
        self.until_fair("leases again")
        self.until_passing("and it passes")
        self.assert_never_over()

    def test_two_roots_on_one_store(self):
        """Without an election both would lease out the whole limit, so the
        second root stands by. Its limiter has no lease until the first root is
        killed and the leases of that one are over."""
        until("the first hands out", lambda: "hands out leases" in
              self.fleet.roots[0].logged())
        self.fleet.add_roots(1)
        first, second = self.fleet.roots
        until("the second stands by", lambda: "another root on this store "
              "does" in second.logged())
        self.assertNotIn("hands out leases", second.logged())
        self.fleet.set("q", f"limit={LIMIT}/s", "sharing=leased", "lease=1s",
                       "refresh=200ms", "on_stale=limit")
        for root in self.fleet.roots:
            self.add_limiter(LIMIT, roots=root.listen)
        self.fleet.wait_linked(1)
        self.until("the second limiter knows that leases are elsewhere",
                   lambda: any(line["event"] == ELSEWHERE for line in
                               self.fleet.limiters[1].told("event")))
        self.until_granted("leases of the first", [LIMIT, 0])
        self.until_sampled()
        first.kill()
        until("the second hands out", lambda: "hands out leases" in
              second.logged())
        self.until_granted("leases of the second", [0, LIMIT])
        before = self.fleet.limiters[1].seen()["seen"]["q"][1]
        self.until("its limiter passes", lambda: self.fleet.limiters[1].seen()[
            "seen"]["q"][1] > before)
        self.until_sampled()
        self.assert_never_over()

    def test_a_child_of_fork_has_a_lease_of_its_own(self):
        self.set("leased")
        limiter = self.add_limiter(1000)
        self.fleet.wait_linked()
        self.until("a lease", lambda: granted(limiter) > 900)
        limiter.tell("fork")
        child = until("a child", lambda: next(
            (line["pid"] for line in list(limiter.lines) if "seen" in line
             and line["pid"] != limiter.process.pid), None))
        self.until("the child has its own", lambda: limiter.seen(child)[
            "granted"].get("q", 0) > 900 and granted(limiter) > 900)
        before = limiter.seen(child)["seen"]["q"][1]
        self.until("child passes", lambda: limiter.seen(child)["seen"]["q"][1] >
                   before)

    def test_a_handle_that_is_closed_at_once(self):
        """A process opens a handle, uses it once and closes it, in
        microseconds: it gives the grant for that use back, long before the
        lease is over or the quota counts as unused."""
        self.set("leased", "lease=10m")
        self.fleet.set("other", "limit=1000/s")
        limiter = self.fleet.add_limiter(["other=10"])
        self.fleet.wait_linked()
        root = self.fleet.roots[0]
        until("the limiter's quotas", lambda: limiter.seen()["epoch"] >=
              root.status()["epoch"])
        for _ in range(5):
            before = grants(root)
            limiter.tell("once q")
            self.until("a grant", lambda: grants(root) > before)
            until("no lease is out", lambda: holders(root) == 0, IDLE / 2)

    def test_the_command_line_takes(self):
        self.set("leased")
        status, said, errors = self.fleet.weir("take", "q", "--json")
        self.assertEqual(status, 0, errors)
        reply = json.loads(said)
        say(f"weir take: granted {reply['granted']:.1f}/s")
        self.assertGreater(reply["granted"], 0)


class NextMaster(Judged):
    """Two roots; a lock on a file makes one of them the master."""

    capacity = LIMIT

    def election(self):
        return "--election", f"file:{self.fleet.folder / 'lock'}"

    def setUp(self):
        super().setUp()
        self.fleet.add_roots(2, *self.election())
        self.set("0s")

    def set(self, learning):
        self.set_everywhere(f"limit={LIMIT}/s", "sharing=leased",
                            "on_stale=limit", "lease=10m", "refresh=200ms",
                            f"learning={learning}")

    def told_again(self):
        """Waits for some more answers, so that both limiters have the roster
        token of all lease holders. It comes with the first answer after half a
        second without a new holder. Each of two limiters has half of these
        answers, a fifth of a second apart."""
        before = sum(map(grants, self.fleet.roots))
        self.until("a roster token", lambda: sum(map(
            grants, self.fleet.roots)) >= before + 20)

    def test_it_knows_when_it_has_heard_all(self):
        for _ in range(2):
            self.add_limiter(LIMIT)
        self.fleet.wait_linked()
        self.until_fair("leases of the first one")
        # Learning by time would last a day: a next master that has learned
        # has received the claims of all.
        self.set("24h")
        self.told_again()
        first = self.until("a master", lambda: master(self.fleet.roots))
        first.kill()
        left = [root for root in self.fleet.roots if root is not first]
        second = self.until("the next master", lambda: master(left))
        self.until("all claims", lambda: has_learned(second))
        self.add_limiter(LIMIT)
        self.until_fair("a new limiter has its own")
        self.until_sampled()
        self.assert_never_over()


class NextMasterByEtcd(NextMaster):
    """Two roots; etcd makes one of them the master."""

    def election(self):
        etcd = Etcd(self.fleet.folder)
        self.addCleanup(etcd.kill)
        etcd.start()
        return ("--election", "etcd", "--etcd-endpoints", etcd.at,
                "--election-ttl", "2s")


class Valve:
    """Relays connections to a port; while it is shut, answers wait."""

    def __init__(self, port):
        self.port, self.sockets = port, []
        self.is_open = threading.Event()
        self.is_open.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.at = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.start(self.accept)

    def start(self, work, *arguments):
        threading.Thread(target=work, args=arguments, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                return
            self.sockets += [near, far]
            self.start(self.carry, near, far, False)
            self.start(self.carry, far, near, True)

    def carry(self, source, to, waits):
        try:
            while data := source.recv(65536):
                if waits:
                    self.is_open.wait()
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        self.is_open.set()
        for one in self.listener, *self.sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()


class SilentEtcd(Judged):
    """The etcd of a root doesn't answer for a while, much less than the ttl.
    The root stays the master, and no limiter waits for a write that its lease
    doesn't need."""

    capacity = LIMIT

    def set(self, sharing):
        self.fleet.set("q", f"limit={LIMIT}/s", f"sharing={sharing}",
                       "on_stale=limit",
                       "learning=0s" if sharing == "leased" else "learning=")

    def test_leases_without_an_answer(self):
        etcd = Etcd(self.fleet.folder)
        self.addCleanup(etcd.kill)
        etcd.start()
        valve = Valve(etcd.port)
        self.addCleanup(valve.close)
        self.fleet.add_roots(1, "--election", "etcd", "--etcd-endpoints",
                             valve.at, "--election-ttl", "10m")
        root = self.fleet.roots[0]
        until("a master", lambda: "hands out leases" in root.logged())
        self.set("counted")
        for _ in range(LIMITERS):
            self.add_limiter(LIMIT // LIMITERS)
        self.fleet.wait_linked()
        valve.is_open.clear()
        self.set("leased")
        self.until_fair("all have their lease while etcd is silent")
        late = self.add_limiter(100)
        self.until("a new limiter has its own while etcd is silent",
                   lambda: granted(late) > 90)
        valve.is_open.set()
        self.until_sampled()
        self.assert_never_over()
        self.assertEqual(root.logged().count("hands out leases"), 1,
                         root.logged())
        self.assertNotIn("hands out no leases", root.logged())


if __name__ == "__main__":
    unittest.main()
