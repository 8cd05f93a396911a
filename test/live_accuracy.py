#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_accuracy.py - a limit holds: three limiters, two roots, three times
the load.

One run with four kinds of quota side by side, each under three times its
limit: one link and a chain of three, by count (10,000/s) and by bytes
(10,000,000/s in weights around 1,000). What passed is within 2 % of the limit
as the mean over any five seconds after the first three. The figures are
printed; a speed is never asserted, only that mean."""

import sys
import time
import unittest

from live_fleet import WINDOW, Fleet, wait_for
from live_witness import Measured

LIMITERS = 3
WARM = 3     # seconds that don't count
RUN = 13     # seconds in all
BOUND = 0.02

# Quota under load -> (limit, weight); chains end at a parent with the limit.
LOADS = {
    "count": (10000, 1),
    "chain/a/b": (10000, 1),
    "bytes": (10000000, 1000),
    "load/a/b": (10000000, 1000),
}


def make_quotas(fleet):
    fleet.set("count", "limit=10000/s")
    fleet.set("chain", "limit=10000/s")
    fleet.set("chain/a", "limit=20000/s", "parent=chain")
    fleet.set("chain/a/b", "limit=50000/s", "parent=chain/a")
    fleet.set("bytes", "limit=10000000/s")
    fleet.set("load", "limit=50000000/s")
    fleet.set("load/a", "limit=20000000/s", "parent=load")
    fleet.set("load/a/b", "limit=10000000/s", "parent=load/a")


def series(fleet, name):
    """Per limiter, the bins as (instant, offered, passed)."""
    return [[(line["at"], line["seen"][name][0], line["seen"][name][1])
             for line in limiter.told("seen")]
            for limiter in fleet.limiters]


def at(bins, instant, column):
    """A count at an instant, straight between two bins."""
    before = max((b for b in bins if b[0] <= instant), default=bins[0])
    after = min((b for b in bins if b[0] > instant), default=bins[-1])
    if after[0] <= before[0]:
        return before[column]
    part = (instant - before[0]) / (after[0] - before[0])
    return before[column] + part * (after[column] - before[column])


def means(fleet, name, start, end, column):
    """The sum's mean over every window, moved on by a tenth of a second."""
    all_bins = series(fleet, name)
    found = []
    first = start
    while first + WINDOW <= end:
        total = sum(at(bins, first + WINDOW, column) - at(bins, first, column)
                    for bins in all_bins)
        found.append(total / WINDOW)
        first += 0.1
    return found


class Accuracy(Measured):
    def setUp(self):
        self.fleet = Fleet()
        self.addCleanup(self.fleet.close)
        self.fleet.add_roots(2)
        make_quotas(self.fleet)

    def test_three_limiters_three_times_the_load(self):
        loads = [f"{name}={3 * limit // weight // LIMITERS}:{weight}"
                 for name, (limit, weight) in LOADS.items()]
        for _ in range(LIMITERS):
            self.fleet.add_limiter(loads)
        self.fleet.wait_linked()
        start = max(limiter.seen()["at"] for limiter in self.fleet.limiters)
        wait_for(RUN)
        end = min(limiter.seen()["at"] for limiter in self.fleet.limiters)
        problems = []
        for name, (limit, _) in LOADS.items():
            offered = means(self.fleet, name, start + WARM, end, 1)
            passed = means(self.fleet, name, start + WARM, end, 2)
            low, high = min(passed) / limit, max(passed) / limit
            times = sum(offered) / len(offered) / limit
            print(f"{name:10} limit {limit:>9,}/s  offered {times:.2f} x  "
                  f"passed {low:.4f} to {high:.4f} of it "
                  f"({len(passed)} windows)", file=sys.stderr)
            if low < 1 - BOUND or high > 1 + BOUND:
                problems.append(name)
        self.assertEqual(self.fleet.failed(), 0)
        self.assert_steady(not problems, f"outside of 2 %: {problems}")

    def test_onset(self):
        """Three limiters begin at once at three times the limit: the bucket
        fills to high_burst and not further (the bound has some slack)."""
        high = 15000
        for name in ("onset1", "onset2", "onset3"):
            self.fleet.set(name, "limit=10000/s")
            limiters = [self.fleet.add_limiter([f"{name}=10000"])
                        for _ in range(LIMITERS)]
            end = time.monotonic() + 1.5
            most = 0
            while time.monotonic() < end:
                for root in self.fleet.roots:
                    fill = root.usage().get(name, {}).get("fill", 0)
                    most = max(most, fill)
                time.sleep(0.02)
            for limiter in limiters:
                limiter.stop()
            print(f"{name}: highest fill {most:,.0f} of {high:,}",
                  file=sys.stderr)
            self.assert_steady(most <= 1.1 * high, f"{name}: {most:,.0f}")


if __name__ == "__main__":
    unittest.main()
