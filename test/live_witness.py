# SPDX-License-Identifier: MIT
"""live_witness.py - a witness of how starved the machine was.

What a fleet passes in five seconds is a figure of the fleet only if its
processes ran. On a machine that others load they are woken late, report late,
and pass what a slower fleet would. So a process that does nothing else notes,
each 10 ms by CLOCK_MONOTONIC, how late it was woken; it has the priority of
those that are measured, and like them sleeps most of the time. It can't know
whether one of them in particular was late, only whether the machine made
sleepers wait; one that nobody made wait for as long as the test went on is no
excuse for a rate that is off. But a program under a sanitizer is some times
slower than the machine, which the witness can't see: there a figure that is off
is always measured anew, and is a failure if it is off three times.

A time was starved when the witness

- was once late by WORST: a limit is promised to 3 % as the mean over five
  seconds, which is 150 ms of it, and on the way of a count (limiter, root,
  root above, and back) more than one may have been late; or
- was late for LOST of the time in all: that much less was offered, or reported
  in time.

What a limit, a share or a probability is by the beginning of a measurement was
learnt in the ten seconds before it; these belong to the time that is asked
about.

A test that measures says so by its class (Measured) and asserts what it
measured by assert_rate() and assert_steady(). Only where these fail, and the
time was starved, it is begun anew with a new fleet, three times in all, and
says so; whatever else fails fails at once. What must be exact is asserted as
ever."""

import atexit
import functools
import json
import os
import select
import subprocess
import sys
import time
import unittest

TICK = 0.01     # seconds
WORST = 0.1     # seconds
LOST = 0.05     # of the time
LEARNT = 10     # seconds
ATTEMPTS = 3
KEPT = 600      # seconds that are remembered
SANITIZED = "WEIR_SANITIZED" in os.environ


class Unsteady(AssertionError):
    """A figure is off that depends on how the machine did."""


def watch():
    """The witness: 'FROM TO' on its input asks for a line; its end ends it."""
    late = []  # (when, by how much), of those late by a tick
    due = time.monotonic() + TICK
    while True:
        asked, _, _ = select.select([sys.stdin], [], [],
                                    max(0, due - time.monotonic()))
        now = time.monotonic()
        if now >= due:
            if now - due > TICK:
                late.append((now, now - due))
            if late and late[0][0] < now - KEPT:
                del late[0]
            due = now + TICK
        if asked:
            line = sys.stdin.readline()
            if not line:
                return
            start, end = map(float, line.split())
            within = [by for at, by in late if start <= at <= end]
            print(json.dumps([max(within, default=0),
                              sum(within) / (end - start)]), flush=True)


class Witness:
    def __init__(self):
        self.windows = []  # (start, end) of what was measured
        self.process = subprocess.Popen(
            [sys.executable, "-S", __file__], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, bufsize=1)
        atexit.register(self.close)
        self.late(0, 1)  # it watches when it has answered
        self.born = time.monotonic()

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def late(self, start, end):
        """(the worst, the part of the time)"""
        self.process.stdin.write(f"{start} {end}\n")
        return json.loads(self.process.stdout.readline())

    def starved(self, begun):
        """By what, if it was, in what was measured or learnt since then; else
        None."""
        windows = self.windows or [(begun, time.monotonic())]
        spans = [(max(start - LEARNT, self.born), end)
                 for start, end in windows]
        worst, lost = map(max, zip(*(self.late(*span) for span in spans)))
        if worst < WORST and lost < LOST:
            return "by a sanitizer" if SANITIZED else None
        return (f"woken late by up to {1000 * worst:.0f} ms, and for "
                f"{100 * lost:.1f} % of the time")


@functools.cache
def witness():
    return Witness()


def note_measured(start, end):
    """What is asserted next may depend on how the machine did then."""
    witness().windows.append((start, end))


def measured(test):
    """A test method that is begun anew as this file's head says."""
    @functools.wraps(test)
    def run(self):
        for left in reversed(range(ATTEMPTS)):
            witness().windows.clear()
            begun = time.monotonic()
            try:
                return test(self)
            except Unsteady as unsteady:
                starved = witness().starved(begun)
                if not starved:
                    raise
                print(f"VOID: {unsteady}; but the machine was starved "
                      f"meanwhile: {starved}", file=sys.stderr, flush=True)
                if left == 0:
                    raise
            self.tearDown()
            self.doCleanups()
            self.setUp()
    return run


class Measured(unittest.TestCase):
    def __init_subclass__(cls, **more):
        super().__init_subclass__(**more)
        for name, value in list(vars(cls).items()):
            if name.startswith("test"):
                setattr(cls, name, measured(value))

    @classmethod
    def setUpClass(cls):
        witness()

    def assert_steady(self, sound, what):
        if not sound:
            raise Unsteady(what)

    def assert_rate(self, rate, wanted, part, what):
        """It is as wanted, give or take so much of it."""
        self.assert_steady(abs(rate - wanted) <= part * wanted,
                           f"{what}: {rate:.0f}/s, not {wanted:.0f}/s")


if __name__ == "__main__":
    watch()
