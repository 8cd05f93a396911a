#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_measured.py - the long form of live_attack.py: each attack for
WEIR_ATTACK_SECONDS, with figures that must hold meanwhile, on a machine that
does nothing else (the suite "long"). A sanitizer makes all of it several times
as slow; WEIR_ATTACK_SLOW widens the bounds on speed by that factor."""

import json
import os
import sys
import unittest
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent),
                str(Path(__file__).parents[1] / "live")]
import attacks  # noqa: E402
from attack import broken, measure  # noqa: E402
from field import SLOW, Field  # noqa: E402
from live_attack import Crowd  # noqa: E402

SECONDS = int(os.environ.get("WEIR_ATTACK_SECONDS", "10"))
LIMITERS = 1000
BACK_MAX = 5 * SLOW     # seconds
KINDS = [("root", False), ("root", True), ("agent", False), ("agent", True)]


class Measured(unittest.TestCase):
    def measured(self, name, against, tls):
        """Each variant, at the first of the attack's listeners."""
        attack = attacks.ATTACKS[name]
        if against not in attack.listeners:
            return
        for variant in attack.variants:
            with self.subTest(variant, against=against, tls=tls):
                said = measure(name, against, tls, SECONDS, variant)
                print(f"{name} {variant} {against} "
                      f"{'tls' if tls else 'plain'}: {json.dumps(said)}",
                      file=sys.stderr, flush=True)
                self.assertEqual(broken(said), [])

    def each(self, name):
        for against, tls in KINDS:
            self.measured(name, against, tls)

    def test_hpack_bomb(self):
        self.each("hpack_bomb")

    def test_h2_frames(self):
        self.each("h2_frames")

    def test_handshakes(self):
        self.each("handshakes")

    def test_log_flood(self):
        self.each("log_flood")

    def test_loris(self):
        self.each("loris")

    def test_idle(self):
        self.each("idle")

    def test_bodies(self):
        self.each("bodies")

    def back_beside(self, name):
        """LIMITERS come back beside an attack, within BACK_MAX seconds."""
        field = Field(tls=True)
        self.addCleanup(field.close)
        crowd = Crowd(field, LIMITERS)
        self.addCleanup(crowd.stop)
        took = crowd.come_back(field.attack(name))
        print(f"{name}: {LIMITERS} limiters back after {took:.1f} s",
              file=sys.stderr)
        self.assertLess(took, BACK_MAX)

    def test_limiters_are_back_beside_hpack_bomb(self):
        self.back_beside("hpack_bomb")

    def test_limiters_are_back_beside_handshakes(self):
        self.back_beside("handshakes")


if __name__ == "__main__":
    unittest.main(verbosity=2)
