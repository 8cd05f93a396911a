# SPDX-License-Identifier: MIT
"""phases.py - figures of a phase from the arrivals that the client processes
wrote (go/load/main.go has the form of the lines)."""

from bisect import bisect_left
from typing import NamedTuple

FIRST = 5  # seconds of a phase that are counted by themselves
SECOND_MS = 1000


class Arrival(NamedTuple):
    process: int
    at_ms: float
    outcome: str  # d denied, s served, t timed out, e another error
    latency_ms: float
    late_ms: float

    @property
    def end_ms(self):
        return self.at_ms + self.latency_ms


def read(process, path):
    """The arrivals of one process's file."""
    with open(path) as f:
        for line in f:
            at, outcome, latency, late = line.split()
            yield Arrival(process, float(at), outcome, float(latency),
                          float(late))


def percentile(sorted_values, share):
    """By nearest rank; None of nothing."""
    if not sorted_values:
        return None
    return sorted_values[max(0, -(-len(sorted_values) * share // 100) - 1)]


def rounded(value, digits=1):
    return None if value is None else round(value, digits)


class Run:
    """All arrivals of a run: one peer, one number of processes."""

    def __init__(self, arrivals, processes):
        self.arrivals = sorted(arrivals, key=lambda a: a.at_ms)
        self.begins = [a.at_ms for a in self.arrivals]
        # Of requests that were let in, in the order of their ends.
        self.ended = sorted((a for a in self.arrivals
                             if a.outcome in "st"), key=lambda a: a.end_ms)
        self.ends = [a.end_ms for a in self.ended]
        self.processes = processes

    def arrived(self, begin_ms, end_ms):
        return self.arrivals[bisect_left(self.begins, begin_ms):
                             bisect_left(self.begins, end_ms)]

    def ending(self, begin_ms, end_ms):
        return self.ended[bisect_left(self.ends, begin_ms):
                          bisect_left(self.ends, end_ms)]

    def p95(self, begin_ms, end_ms):
        return percentile(sorted(a.latency_ms for a in
                                 self.ending(begin_ms, end_ms)), 95)

    def served(self, begin_ms, end_ms):
        return sum(a.outcome == "s" for a in self.ending(begin_ms, end_ms))

    def shares(self, begin_ms, end_ms):
        """(least, greatest) part of a process, of an equal part."""
        counts = [0] * self.processes
        for a in self.ending(begin_ms, end_ms):
            counts[a.process] += a.outcome == "s"
        mean = sum(counts) / self.processes
        if mean == 0:
            return None, None
        return min(counts) / mean, max(counts) / mean

    def figures(self, begin_ms, end_ms, target_ms, window_ms):
        """The figures of [begin, end)."""
        seconds = (end_ms - begin_ms) / SECOND_MS
        arrived = self.arrived(begin_ms, end_ms)
        latencies = sorted(a.latency_ms for a in
                           self.ending(begin_ms, end_ms))
        windows = max(1, round((end_ms - begin_ms) / window_ms))
        edges = [begin_ms + (end_ms - begin_ms) * i / windows
                 for i in range(windows + 1)]
        seen = [p for p in map(self.p95, edges, edges[1:]) if p is not None]
        over = sum(p > target_ms for p in seen)
        first = min(FIRST, seconds)
        least, greatest = self.shares(begin_ms, end_ms)
        ticks = [begin_ms + SECOND_MS * i for i in range(int(seconds))]
        return {
            "seconds": round(seconds, 1),
            "offered": round(len(arrived) / seconds, 1),
            "admitted": round(sum(a.outcome != "d" for a in arrived)
                              / seconds, 1),
            "goodput": round(self.served(begin_ms, end_ms) / seconds, 1),
            "timed_out": sum(a.outcome == "t" for a in arrived),
            "errors": sum(a.outcome == "e" for a in arrived),
            "p50_ms": rounded(percentile(latencies, 50)),
            "p95_ms": rounded(percentile(latencies, 95)),
            "windows": len(seen), "windows_over": over,
            "over_target": rounded(over / len(seen) if seen else None, 4),
            "first_5s": round(self.served(
                begin_ms, begin_ms + first * SECOND_MS) / first, 1),
            "share_min": rounded(least, 3), "share_max": rounded(greatest, 3),
            "late_p99_ms": rounded(percentile(
                sorted(a.late_ms for a in arrived), 99)),
            "from_s": round(begin_ms / SECOND_MS, 1),
            "served_each_s": [self.served(t, t + SECOND_MS) for t in ticks],
            "p95_each_s": [rounded(self.p95(t, t + SECOND_MS))
                           for t in ticks],
        }
