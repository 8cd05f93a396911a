# SPDX-License-Identifier: MIT
"""runs.py - runs of bench/adaptive-peers: client processes with a limiter in
front of a backend of their own, several runs at the same time."""

import os
import subprocess
import time
from typing import NamedTuple

from peers import NotFetched, Peer
from phases import Run, read

REST_S = 1   # between two runs
START_S = 1  # from the command to the first arrival
END_S = 30   # after the last arrival, for a process to end


class Job(NamedTuple):
    peer: str
    processes: int
    arrivals: str
    limits: tuple = ()  # of static, by process


class Failed(NamedTuple):
    """A job that has no figures, and why."""
    note: str


class Live:
    """One run; after its first failure it does nothing more."""

    def __init__(self, bench, backends, job, folder):
        self.bench, self.backends, self.job = bench, backends, job
        self.folder = folder
        folder.mkdir()
        self.backend, self.peer, self.started = None, None, []
        self.failed = None

    def attempt(self, step, *arguments):
        if self.failed is not None:
            return None
        try:
            return step(*arguments)
        except NotFetched as error:
            self.failed = Failed(f"not fetched: {error}")
        except (RuntimeError, AssertionError, OSError,
                subprocess.SubprocessError) as error:
            self.failed = Failed(f"not run: {error}")
        return None

    def start(self, seconds):
        self.backend = self.backends.start()
        job, bench = self.job, self.bench
        self.peer = Peer(bench.tools, bench.roots, self.folder,
                         self.backend.address, self.backends.kind.target_ms)
        with self.backends.elsewhere():
            commands = self.peer.commands(job.peer, job.processes,
                                          job.limits)
            for i, command in enumerate(commands):
                self.started.append(self.client(i, command, seconds))

    def client(self, i, command, seconds):
        processes = self.job.processes
        return subprocess.Popen(
            [*command, "-rate", str(self.backends.rate / processes),
             "-arrivals", self.job.arrivals, "-seconds", str(seconds),
             "-phase", str(i / processes), "-seed",
             str(self.bench.options.seed * 1000 + i), "-out",
             str(self.arrivals_of(i))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=self.bench.environment)

    def arrivals_of(self, i):
        return self.folder / f"arrivals{i}"

    def ready(self):
        for process in self.started:
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("a client process ended at its start")

    def go(self, begin):
        for process in self.started:
            process.stdin.write(f"{int(begin * 1e9)}\n")
            process.stdin.flush()

    def set(self, state):
        self.backend.set(**state)

    def end(self):
        """The Run with the requests of all processes."""
        for process in self.started:
            process.wait(END_S)
            if process.returncode != 0:
                raise RuntimeError("a client process failed")
        return Run([a for i in range(len(self.started))
                    for a in read(i, self.arrivals_of(i))],
                   self.job.processes)

    def close(self):
        for process in self.started:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
        if self.peer is not None:
            self.peer.close()
        if self.backend is not None:
            self.backend.close()


def follow(lives, timeline):
    """Starts all at one instant and moves their backends."""
    begin = time.time() + START_S
    for live in lives:
        live.attempt(live.go, begin)
    for _, seconds, state in timeline:
        time.sleep(max(0, begin - time.time()))
        for live in lives:
            live.attempt(live.set, state)
        begin += seconds
    time.sleep(max(0, begin - time.time()))


def together(bench, backends, jobs, timeline):
    """Runs jobs at the same time; their Runs, or Faileds."""
    lives = [Live(bench, backends, job, bench.new_folder()) for job in jobs]
    seconds = sum(seconds for _, seconds, _ in timeline)
    try:
        for live in lives:
            live.attempt(live.start, seconds)
        for live in lives:
            live.attempt(live.ready)
        follow(lives, timeline)
        ended = [live.attempt(live.end) for live in lives]
        return [live.failed or run for live, run in zip(lives, ended)]
    finally:
        for live in lives:
            live.close()
        time.sleep(REST_S)


def batches(jobs, count, processes_max):
    """Lists of at most 'count' jobs, and of at most 'processes_max' client
    processes if there is more than one job."""
    batch = []
    for job in jobs:
        processes = sum(j.processes for j in batch) + job.processes
        if batch and (len(batch) == count or processes > processes_max):
            yield batch
            batch = []
        batch.append(job)
    if batch:
        yield batch


def load_average():
    return round(os.getloadavg()[0], 1)
