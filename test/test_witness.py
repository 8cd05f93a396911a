#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_witness.py - the witness of the live tests, and who is heard by it: a
figure that is off is measured again only where the machine was starved, three
times at most, and nothing else ever is."""

import contextlib
import io
import signal
import time
import unittest
from unittest import mock

import live_witness
from live_witness import LOST, WORST, Measured, Unsteady, witness


class Subject(Measured):
    """Fails as it is told, once an entry; counts its lives."""
    fails = []
    lives = []

    def setUp(self):
        self.addCleanup(self.lives.append, "ended")

    def test(self):
        self.lives.append("run")
        if self.fails:
            raise self.fails.pop(0)


def outcome(starved, *fails):
    """(whether it passed, what it went through)"""
    Subject.fails, Subject.lives = list(fails), []
    with mock.patch.object(live_witness.Witness, "starved",
                           lambda self, begun: starved), \
            contextlib.redirect_stderr(io.StringIO()):
        result = unittest.TestResult()
        Subject("test").run(result)
    return result.wasSuccessful(), Subject.lives.count("run")


class Heard(unittest.TestCase):
    def test_what_is_off_on_a_starved_machine_is_measured_again(self):
        self.assertEqual(outcome("yes", Unsteady()), (True, 2))
        self.assertEqual(outcome("yes", Unsteady(), Unsteady()), (True, 3))
        self.assertEqual(Subject.lives, ["run", "ended"] * 3)

    def test_not_a_fourth_time(self):
        self.assertEqual(outcome("yes", *[Unsteady()] * 4), (False, 3))

    def test_what_is_off_on_a_sound_machine_fails_at_once(self):
        self.assertEqual(outcome(None, Unsteady()), (False, 1))

    def test_whatever_else_fails_fails_at_once(self):
        for error in AssertionError("a count"), OSError():
            self.assertEqual(outcome("yes", error), (False, 1))

    def test_a_rate(self):
        subject = Subject("test")
        subject.assert_rate(104, 100, 0.05, "a rate")
        with self.assertRaises(Unsteady):
            subject.assert_rate(94, 100, 0.05, "a rate")


class Seen(unittest.TestCase):
    def test_it_knows_how_late_it_was(self):
        """It is stopped itself, and nobody else."""
        stalled = witness()
        begun = time.monotonic()
        stalled.process.send_signal(signal.SIGSTOP)
        time.sleep(3 * WORST)  # the stall that is to be seen
        stalled.process.send_signal(signal.SIGCONT)
        end = time.monotonic()
        worst = 0
        while worst < 2 * WORST:  # until it has run again
            now = time.monotonic()
            worst, lost = stalled.late(begun, now)
            time.sleep(live_witness.TICK)
            self.assertLess(now, end + 30, f"late by {worst} s, it says")
        self.assertGreater(lost, 0)
        self.assertIn("ms", stalled.starved(begun))

    def test_what_was_learnt_before_belongs_to_it(self):
        asked = []
        said = live_witness.Witness
        with mock.patch.object(said, "late", lambda self, start, end:
                               asked.append((start, end)) or (0, LOST / 2)), \
                mock.patch.object(witness(), "windows", [(95, 100)]), \
                mock.patch.object(witness(), "born", 1):
            for sanitized, said in (False, None), (True, "by a sanitizer"):
                with mock.patch.object(live_witness, "SANITIZED", sanitized):
                    self.assertEqual(witness().starved(0), said)
        self.assertEqual(asked, [(85, 100)] * 2)


if __name__ == "__main__":
    unittest.main()
