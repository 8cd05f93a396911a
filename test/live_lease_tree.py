#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_lease_tree.py - a tree of leases, among processes: a root, two regional
and four leaf servers, and at each leaf a limiter of libweir under load and
clients of Doorman's (generated gRPC, in Python), all of one quota.

            top
          /     \\
        east    west          SIGKILL, and back
        / \\     /  \\
      e1   e2  w1   w2        w1 is stopped, and goes on

What each is granted at each instant is written down where it is used: by the
client of Doorman's when it has an answer, by the limiter twenty times a second.
What all have together is judged afterwards: it is never over the capacity, and
but for mishaps it is all of it, in fair parts."""

import bisect
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

from live_doorman import Client
from live_fleet import BUILD, WINDOW, Fleet, until, wait_for
from live_witness import Measured

CAPACITY = 1000
OFFERED = 300         # units a second, by each limiter
WANTS = 50            # by each client of Doorman's
CLIENTS = 3           # of Doorman's, at each leaf
FAIR = (CAPACITY - 4 * CLIENTS * WANTS) / 4  # what is left for each limiter
LEASE = 4             # seconds
BIN_MS = 50
WHOLE = 0.97          # of the capacity, or of what is wanted
# One for each program: they run beside each other.
FOLDER = BUILD / "test" / f"doorman-{Path(sys.argv[0]).stem}"
HERE = Path(__file__).parent


def say(text):
    print(text, file=sys.stderr, flush=True)


class Told:
    """What one client was told, when, and until when: instants of
    CLOCK_MONOTONIC."""

    def __init__(self):
        self.at, self.capacity, self.until = [], [], []

    def add(self, capacity, expiry):
        now = time.monotonic()
        self.capacity.append(capacity)
        self.until.append(now + expiry - time.time())
        self.at.append(now)

    def has(self, instant):
        """At that instant; one who was told of less has no more."""
        i = bisect.bisect_right(self.at, instant) - 1
        if i < 0 or instant >= self.until[i]:
            return 0
        return self.capacity[i]


class Asking(threading.Thread):
    """Clients of Doorman's at one leaf, in one process of generated code; each
    asks twice a second. An answer that is late is none."""

    def __init__(self, leaf, names):
        super().__init__(daemon=True)
        self.leaf = leaf
        self.told = {name: Told() for name in names}
        self.client = Client(["/usr/bin/python3", FOLDER / "client.py"],
                             leaf.listen)
        self.stopped = threading.Event()

    def ask(self, name):
        told = self.told[name]
        answer = self.client.call(
            "GetCapacity", client=name, timeout=0.5, resources=[
                {"id": "q", "wants": WANTS,
                 "has": {"capacity": told.has(time.monotonic())}}])
        for grant in answer.get("resources") or []:
            told.add(grant["capacity"], grant["expiry"])
        return answer

    def run(self):
        while not self.stopped.wait(0.5):
            for name in list(self.told):
                self.ask(name)

    def has(self):
        now = time.monotonic()
        return sum(told.has(now) for told in self.told.values())

    def end(self):
        self.stopped.set()
        self.join()
        self.client.end()


def granted(limiter):
    """Of the limiter, by its last bin."""
    seen = limiter.seen()
    return seen["granted"].get("q", 0) if seen else 0


def samples(limiter):
    bins = limiter.told("seen")
    return ([line["at"] for line in bins],
            [line["granted"].get("q", 0) for line in bins])


def surely(bins, instant):
    """What the limiter had all around an instant, a bin before and one after
    included: in between it may have had less for a moment."""
    at, grants = bins
    i = bisect.bisect_right(at, instant)
    return min(grants[max(i - 2, 0):i + 2], default=0)


class Judged(Measured):
    """A fleet of both kinds, of one quota. 'asking': Doorman's clients; 'fair':
    each limiter's part of what those leave."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        subprocess.run(["sh", HERE / "doorman" / "build.sh", FOLDER,
                        "python"], check=True, stdout=subprocess.DEVNULL)

    def sums(self, start, end):
        """(instant, what all surely had), each half a bin."""
        bins = [samples(limiter) for limiter in self.fleet.limiters]
        told = [told for asking in self.asking
                for told in asking.told.values()]
        step = BIN_MS / 2000
        for i in range(int((end - start) / step)):
            at = start + i * step
            yield at, (sum(surely(each, at) for each in bins) +
                       sum(each.has(at) for each in told))

    def until_fair(self, what):
        """Each limiter and each client of Doorman's has its part."""
        def fair():
            clients = [told.has(time.monotonic()) for asking in self.asking
                       for told in asking.told.values()]
            grants = [granted(limiter) for limiter in self.fleet.limiters]
            return (min(clients) > 0.99 * WANTS and
                    min(grants) > 0.9 * self.fair and
                    max(grants) < 1.1 * self.fair)
        began = time.monotonic()
        until(what, fair)
        say(f"{what}: fair parts after {time.monotonic() - began:.1f} s")

    def assert_never_over(self, start):
        worst, at = max((had, at) for at, had in
                        self.sums(start, time.monotonic()))
        say(f"at most {worst:.6f} of {CAPACITY} were out, "
            f"{at - start:.1f} s after the start")
        if worst > CAPACITY * (1 + 1e-9):
            self.fail(f"{worst:.3f} were out:\n" + self.around(at))

    def around(self, at):
        """Who had what then, for people."""
        lines = []
        for limiter in self.fleet.limiters:
            bins = [f"{t - at:+.3f} {had:.2f}" for t, had in
                    zip(*samples(limiter)) if abs(t - at) < 0.5]
            lines.append(f"{limiter.name}: {', '.join(bins)}")
        for asking in self.asking:
            for name, told in asking.told.items():
                had = [f"{t - at:+.3f} {capacity:.2f} until {end - at:+.3f}"
                       for t, capacity, end in
                       zip(told.at, told.capacity, told.until)
                       if end > at - 1 and t < at + 1]
                lines.append(f"{name}: {', '.join(had)}")
        return "\n".join(lines)

    def assert_whole(self):
        start = time.monotonic()
        wait_for(WINDOW)
        sums = [had for _, had in self.sums(start, time.monotonic())]
        mean = sum(sums) / len(sums)
        say(f"in use over {WINDOW} s: {100 * mean / CAPACITY:.2f} % of the "
            "capacity")
        self.assert_steady(mean > WHOLE * CAPACITY, f"{mean:.0f} in use")


class Tree(Judged):
    fair = FAIR

    def setUp(self):
        self.fleet = Fleet()
        self.addCleanup(self.fleet.close)
        self.asking = []
        self.fleet.add_roots(1)
        top = self.fleet.roots[:1]
        self.regions = [self.fleet.add_region(name, 1, above=top)[0]
                        for name in ("east", "west")]
        self.leaves = [
            self.fleet.add_region(f"{region.region[0]}{i}", 1,
                                  above=[region])[0]
            for region in self.regions for i in (1, 2)]

    def load(self):
        # Nobody has a lease of another master: it needn't hear of any first.
        self.fleet.set("q", f"limit={CAPACITY}/s", "sharing=leased",
                       "on_stale=closed", f"lease={LEASE}s", "refresh=1s",
                       "learning=0s")
        for leaf in self.leaves:
            self.fleet.add_limiter([f"q={OFFERED}"], BIN_MS,
                                   roots=leaf.listen)
            self.ask(leaf, *(f"{leaf.region}-{i}" for i in range(CLIENTS)))

    def ask(self, leaf, *names):
        asking = Asking(leaf, names)
        self.addCleanup(asking.end)
        self.asking.append(asking)
        asking.start()
        return asking

    # ---- What all have ----

    def has(self, leaves=None):
        """What those at some leaves have, by the last that is known."""
        places = [i for i, leaf in enumerate(self.leaves)
                  if leaves is None or leaf in leaves]
        return sum(granted(self.fleet.limiters[i]) for i in places) + sum(
            asking.has() for asking in self.asking
            if leaves is None or asking.leaf in leaves)

    def until_has(self, what, wanted, leaves=None):
        began = time.monotonic()
        until(what, lambda: self.has(leaves) > WHOLE * wanted)
        say(f"{what}: all of {wanted:.0f} after "
            f"{time.monotonic() - began:.1f} s")

    # ---- The story ----

    def newcomer(self):
        """Who comes to the full tree needn't wait for others' refresh."""
        leaf = self.leaves[-1]
        began = time.monotonic()
        asking = Asking(leaf, ["late"])
        self.addCleanup(asking.client.end)
        asks = 0
        while asking.has() < 0.99 * WANTS:
            asking.ask("late")
            asks += 1
            self.assertLess(time.monotonic() - began, LEASE,
                            "others' leases are over by now")
        say(f"a newcomer has its part after "
            f"{1000 * (time.monotonic() - began):.0f} ms and {asks} asks")
        # Who gives back has stopped using it before he says so.
        asking.told["late"].add(0, 0)
        asking.client.call("ReleaseCapacity", client="late", resources=["q"])
        self.asking.append(asking)

    def lose_a_region(self):
        east, west = self.leaves[:2], self.leaves[2:]
        self.regions[0].kill()
        until("the leases in the east are over", lambda: self.has(east) == 0)
        self.until_has("the region in the east killed",
                       2 * (OFFERED + CLIENTS * WANTS), west)
        self.regions[0].start()

    def stop_a_leaf(self):
        leaf = self.leaves[2]
        others = [each for each in self.leaves if each is not leaf]
        leaf.process.send_signal(signal.SIGSTOP)
        self.addCleanup(os.kill, leaf.process.pid, signal.SIGCONT)
        until("its clients have nothing", lambda: self.has([leaf]) == 0)
        self.until_has("a leaf stopped", CAPACITY, others)
        leaf.process.send_signal(signal.SIGCONT)

    def test_the_tree(self):
        start = time.monotonic()
        self.load()
        self.until_fair("all begin")
        self.assert_whole()
        self.newcomer()
        self.lose_a_region()
        late = self.asking.pop()
        self.until_fair("it is back")
        self.stop_a_leaf()
        self.until_fair("it goes on")
        self.asking.append(late)
        self.assert_never_over(start)
        self.assertEqual(self.fleet.failed(), 0)


if __name__ == "__main__":
    unittest.main()
