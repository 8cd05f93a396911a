# SPDX-License-Identifier: MIT
"""backends.py - the services that bench/adaptive-peers overloads: one program
(go/backend) of several kinds. README.md beside this file describes them."""

import os
import signal
import subprocess
import urllib.request
from contextlib import contextmanager
from typing import NamedTuple

from postgres import Postgres

CALM_S = 120      # for an answer of /control
CAPACITY_S = 5    # for the measurement of an unknown capacity
OVERLOAD = 1.5    # arrivals for each request that such a backend can serve


class Kind(NamedTuple):
    rate: float       # arrivals per second; 0: OVERLOAD times the capacity
    target_ms: int
    window_s: int
    totals: list      # the limits that 'static' tries
    times: dict       # seconds of the phases, and of a try of 'static'
    together: int     # runs that are measured at the same time, at most,
    crowd: int        # and their client processes
    processes: list   # numbers of client processes
    regular: tuple    # peers that also get regular arrivals


# The hang comes before the slowdown, which may leave limits low.
KINDS = {
    "workers": Kind(600, 100, 1, [8, 12, 16, 24, 32],
                    {"start": 8, "steady": 8, "hang": 10, "recovery": 8,
                     "slowdown": 8, "sweep": 4}, 4, 40, [1, 3, 10, 20],
                    ()),
    "article": Kind(75, 200, 15, [8, 9, 10, 11, 12],
                    {"start": 20, "steady": 45, "hang": 10, "recovery": 15,
                     "slowdown": 20, "sweep": 15}, 14, 200,
                    [1, 3, 10, 20], ("weir", "weir-fleet", "static")),
    "postgres": Kind(0, 100, 1, [8, 12, 16, 24],
                     {"start": 6, "steady": 8, "hang": 10, "recovery": 6,
                      "slowdown": 6, "sweep": 4}, 1, 1, [1, 10], ()),
}


@contextmanager
def on_processors(chosen):
    """Programs that this thread starts meanwhile run on these processors."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, chosen)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def processors():
    """(those of the database, those of all others): the last one, so that
    a limiter's own cost doesn't lower the capacity of the database. With one
    processor it is for both."""
    every = os.sched_getaffinity(0)
    last = {max(every)}
    return last, every - last or last


class Backends:
    """The parts that backends of a kind share: program, database, and the rate
    of the arrivals."""

    def __init__(self, program, name, abandoned, stop):
        self.program, self.name = program, name
        self.abandoned, self.stop = abandoned, stop
        self.kind = KINDS[name]
        self.rate, self.capacity = self.kind.rate, None
        self.database = None
        if name == "postgres":
            with on_processors(processors()[0]):
                self.database = Postgres()
                self.database.start()
        try:
            if self.rate == 0:
                self.measure()
        except BaseException:
            self.close()
            raise

    def close(self):
        if self.database is not None:
            self.database.close()

    def measure(self):
        backend = self.start()
        try:
            self.capacity = float(
                backend.get(f"/capacity?for={CAPACITY_S}s"))
        finally:
            backend.close()
        self.rate = OVERLOAD * self.capacity

    def start(self):
        return Backend(self)

    def elsewhere(self):
        """The context in which a run's processes are started."""
        used = processors()[1] if self.database else os.sched_getaffinity(0)
        return on_processors(used)


class Backend:
    def __init__(self, shared):
        self.shared, self.stopped = shared, False
        command = [shared.program, "-kind", shared.name, "-abandoned",
                   shared.abandoned]
        if shared.database is not None:
            command += ["-database", shared.database.url]
        with shared.elsewhere():
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE,
                                            text=True)
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            self.close()
            raise RuntimeError("the backend ended at its start")

    def get(self, path):
        with urllib.request.urlopen(f"http://{self.address}{path}",
                                    timeout=CALM_S) as answer:
            return answer.read().decode()

    def set(self, slow=1, hang=False):
        if self.shared.stop:
            self.freeze(hang)
            hang = False
        if not self.stopped:
            self.get(f"/control?slow={slow}" + ("&hang=true" if hang else ""))

    def freeze(self, hang):
        """Stops the processes of the service, or of its database."""
        if hang == self.stopped:
            return
        self.stopped = hang
        if self.shared.database is None:
            self.process.send_signal(
                signal.SIGSTOP if hang else signal.SIGCONT)
        elif hang:
            self.shared.database.freeze()
        else:
            self.shared.database.thaw()

    def close(self):
        self.freeze(False)
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
