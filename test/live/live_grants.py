# SPDX-License-Identifier: MIT
"""live_grants.py - helpers of the live tests of leased quotas: the grant of
each lease holder at each instant, and their sum.

Grants are recorded where they are used: by a limiter under load (live_load.c),
which prints its grant in each bin, and by clients of Doorman's (generated gRPC,
in Python) when they have an answer. The sum is checked afterwards: it never
exceeds the capacity.

A limiter's grant is known from its bins alone. The least grant in the bins
around an instant counts, and none if these bins were far apart: between them
the limiter may have given its grant back and got it again. So a machine that
delays a limiter hides grants, but never adds to them."""

import bisect
import json
import subprocess
import sys
import threading
import time
import unittest

from live_doorman import python_client
from live_fleet import Fleet
from patience import until

BIN_MS = 20
SURE = 0.15     # seconds: no grant is lowered and raised again within them
WHOLE = 0.97    # of a capacity
PAUSE = 0.25    # seconds between two requests of a client of Doorman's


def say(text):
    print(text, file=sys.stderr, flush=True)


class Told:
    """The grants of one client: their instants, amounts and ends. Instants
    are of CLOCK_MONOTONIC."""

    def __init__(self):
        self.at, self.capacity, self.until = [], [], []

    def add(self, capacity, expiry):
        now = time.monotonic()
        self.capacity.append(capacity)
        self.until.append(now + expiry - time.time())
        self.at.append(now)

    def has(self, instant):
        """The grant in force at an instant: the last one, if it lasts."""
        i = bisect.bisect_right(self.at, instant) - 1
        if i < 0 or instant >= self.until[i]:
            return 0
        return self.capacity[i]


def granted(limiter):
    """The limiter's grant, by its last bin."""
    seen = limiter.seen()
    return seen["granted"].get("q", 0) if seen else 0


def samples(limiter, last=0):
    """(instants, grants) of the bins in all of its lines, or the last ones."""
    bins = [line for line in limiter.lines[-last:] if "seen" in line and
            line["pid"] == limiter.process.pid]
    return ([line["at"] for line in bins],
            [line["granted"].get("q", 0) for line in bins])


def around(bins, instant):
    """The grants in four bins around an instant; none if the bins are too far
    apart. A bin's grant was read after the bin's "at" and before the next
    bin's: the first of the four was read before the instant, the third after
    it."""
    at, grants = bins
    i = bisect.bisect_right(at, instant)
    if i < 2 or i + 1 >= len(at) or at[i + 1] - at[i - 2] > SURE:
        return []
    return grants[i - 2:i + 2]


def surely(bins, instant):
    """The grant that a limiter had at an instant, at least."""
    return min(around(bins, instant), default=0)


class Client:
    """A process with the generated client; one call at a time."""

    def __init__(self, address):
        self.process = subprocess.Popen(
            [*python_client(), address],
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def call(self, call, **fields):
        line = json.dumps({"call": call, **fields})
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Asking(threading.Thread):
    """Clients of Doorman's at one root, in one process. A late answer is
    ignored."""

    def __init__(self, root, names, wants):
        super().__init__(daemon=True)
        self.root, self.wants = root, wants
        self.told = {name: Told() for name in names}
        self.client = Client(root.listen)
        self.stopped = threading.Event()

    def ask(self, name):
        told = self.told[name]
        answer = self.client.call(
            "GetCapacity", client=name, timeout=0.5, resources=[
                {"id": "q", "wants": self.wants,
                 "has": {"capacity": told.has(time.monotonic())}}])
        for grant in answer.get("resources") or []:
            told.add(grant["capacity"], grant["expiry"])
        return answer

    def run(self):
        while not self.stopped.wait(PAUSE):
            for name in list(self.told):
                self.ask(name)

    def has(self):
        now = time.monotonic()
        return sum(told.has(now) for told in self.told.values())

    def least(self):
        now = time.monotonic()
        return min(told.has(now) for told in self.told.values())

    def pause(self):
        """Ends the requests; a test may still call ask() itself."""
        self.stopped.set()
        if self.is_alive():
            self.join()

    def end(self):
        self.pause()
        self.client.end()


class Judged(unittest.TestCase):
    """A fleet with one leased quota, q, of 'capacity'. 'asking': its clients of
    Doorman's."""

    capacity = None

    def setUp(self):
        self.began = time.monotonic()
        self.asking = []
        self.fleet = Fleet()
        self.addCleanup(self.fleet.close)

    def add_limiter(self, offered, roots=None):
        return self.fleet.add_limiter([f"q={offered}"], BIN_MS, roots=roots)

    def set_everywhere(self, *fields):
        """Sets fields of q, and waits until every root has them."""
        self.fleet.set("q", *fields)
        status, said, errors = self.fleet.weir("quota", "log", "--json")
        self.assertEqual(status, 0, errors)
        epoch = max(entry["epoch"] for entry in json.loads(said))
        until("the edit at every root", lambda: all(
            root.status()["epoch"] >= epoch for root in self.fleet.roots))

    def ask(self, asking):
        self.addCleanup(asking.end)
        self.asking.append(asking)
        asking.start()
        return asking

    # ---- Grants by the last bins and answers ----

    def until(self, what, ask):
        """Waits as until() does, and prints how long it took; a failure shows
        all grants."""
        began = time.monotonic()
        try:
            answer = until(what, ask)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.tell()}") from None
        say(f"{what}: after {time.monotonic() - began:.1f} s")
        return answer

    def until_granted(self, what, wanted):
        """Waits until each limiter has its part in 'wanted', to a thousandth,
        and each client of Doorman's has the amount that it wants."""
        self.until(what, lambda: all(
            abs(granted(limiter) - part) <= 1e-3 * part
            for limiter, part in zip(self.fleet.limiters, wanted)) and all(
            asking.least() > 0.999 * asking.wants for asking in self.asking))

    def until_fair(self, what):
        """Waits until all of the capacity is granted: Doorman's clients have
        the amounts that they want, and limiters equal parts of the rest."""
        count = len(self.fleet.limiters)
        left = self.capacity - sum(asking.wants * len(asking.told)
                                   for asking in self.asking)
        self.until_granted(what, [left / count] * count)

    def until_sampled(self):
        """Waits until each limiter has printed enough bins, from now on, to
        know its grant."""
        start = time.monotonic()
        until("bins of all", lambda: all(
            limiter.seen()["at"] > start + SURE and
            around(samples(limiter, 20), limiter.seen()["at"] - SURE / 2)
            for limiter in self.fleet.limiters))

    # ---- Grants afterwards ----

    def sums(self, start, end):
        """Yields (instant, sum of the grants that are certain)"""
        bins = [samples(limiter) for limiter in self.fleet.limiters]
        told = [told for asking in self.asking
                for told in asking.told.values()]
        step = BIN_MS / 2000
        for i in range(int((end - start) / step)):
            at = start + i * step
            yield at, (sum(surely(each, at) for each in bins) +
                       sum(each.has(at) for each in told))

    def assert_never_over(self, start=None):
        """Checks the sums since the test began, or since 'start'."""
        start = start or self.began
        sums = list(self.sums(start, time.monotonic()))
        at, worst = max(sums, key=lambda entry: entry[1])
        whole = sum(had > WHOLE * self.capacity for _, had in sums)
        say(f"at most {worst:.6f} of {self.capacity} were out; all of it was "
            f"surely out for {whole / len(sums):.0%} of the time")
        if worst > self.capacity * (1 + 1e-9):
            self.fail(f"expected at most {self.capacity} out, got {worst:.3f} "
                      f"{at - start:.1f} s after the start:\n" +
                      self.tell(at))

    def tell(self, at=None):
        """All grants around an instant, as text for people."""
        at = at or time.monotonic()
        lines = []
        for limiter in self.fleet.limiters:
            bins = [f"{t - at:+.3f} {had:.2f}" for t, had in
                    zip(*samples(limiter)) if abs(t - at) < 0.3]
            lines.append(f"{limiter.name}: {', '.join(bins)}")
        for asking in self.asking:
            for name, told in asking.told.items():
                had = [f"{t - at:+.3f} {capacity:.2f} until {end - at:+.3f}"
                       for t, capacity, end in
                       zip(told.at, told.capacity, told.until)
                       if end > at - 1 and at - 5 < t < at + 1]
                lines.append(f"{name}: {', '.join(had)}")
        lines += [f"{root.http} said:\n{root.logged()}"
                  for root in self.fleet.roots]
        return "\n".join(lines)


# ---- Views of a root ----


def master(roots):
    """The root among these that grants the leases, or None."""
    return next((root for root in roots if "This <b>is</b> the master"
                 in root.read("/debug/status")), None)


def has_learned(root):
    """Whether learning is over: the root knows all leases that are out."""
    return "<td>false</td>" in root.read("/debug/resources")


def holders(root):
    """The number of its lease holders, with a grant or a wish."""
    return next(float(line.split()[1]) for line in
                root.read("/metrics").splitlines()
                if line.startswith("weir_lease_holders "))


def grants(root):
    """How many grants it has sent so far, as answers or pushed."""
    return sum(float(line.split()[1]) for line in
               root.read("/metrics").splitlines() if line.startswith(
                   ("weir_lease_grants_total ", "weir_lease_pushes_total ")))
