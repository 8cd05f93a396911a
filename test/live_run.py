#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_run.py FILE [--jobs N] [--only NAME,…] [--but NAME,…] - runs the tests
of a file, N at a time.

NAME is Class or Class.method. A live test mostly waits, and has processes,
ports and a folder of its own, so several don't disturb each other. Each test
is a process of its own, and its output is printed in one piece when it has
ended; the tests of a class that starts servers for all of them (setUpClass)
share a process. A test that failed is named at the end, with the command that
repeats it. A process that a test leaves behind is killed, and is a failure."""

import argparse
import importlib.util
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SKIPPED = 77   # the exit status of a file whose tests can't run here
PATIENCE = 10  # seconds for the processes of a test to end
groups = set()  # process groups, one for each process that runs tests


def cases(suite):
    """Every test of a suite."""
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from cases(part)
        else:
            yield part


def load(file):
    """The tests of a file, in its order."""
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return list(cases(unittest.defaultTestLoader.loadTestsFromModule(module)))


def is_named(test, names):
    kind = type(test).__name__
    return kind in names or f"{kind}.{test._testMethodName}" in names


def chosen(tests, only, but):
    return [test for test in tests
            if (not only or is_named(test, only)) and not is_named(test, but)]


def shares_servers(kind):
    return kind.setUpClass.__func__ is not \
        unittest.TestCase.setUpClass.__func__


def jobs_of(tests):
    """Lists of names, a list for each process."""
    shared, jobs = {}, []
    for test in tests:
        kind = type(test)
        name = f"{kind.__name__}.{test._testMethodName}"
        if not shares_servers(kind):
            jobs.append([name])
        elif kind in shared:
            shared[kind].append(name)
        else:
            shared[kind] = [name]
            jobs.append(shared[kind])
    return jobs


def left_behind(group):
    """Kills what is still there of a group whose leader has ended; returns
    whether anything was. A process that is about to end may do so."""
    end = time.monotonic() + PATIENCE
    try:
        while time.monotonic() < end:
            os.killpg(group, 0)
            time.sleep(0.01)
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def run(file, names):
    """The exit status of a process that runs these."""
    # A file and not a pipe, which a process that is left behind keeps open.
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        with subprocess.Popen([sys.executable, file, "-v", *names],
                              stdout=output, stderr=subprocess.STDOUT,
                              start_new_session=True) as process:
            groups.add(process.pid)
            status = process.wait()
        if left_behind(process.pid):
            print("expected no process to be left behind", file=output)
            status = status or 1
        groups.discard(process.pid)
        output.seek(0)
        print(output.read(), file=sys.stderr, flush=True)
    return status


def end(*_):
    """Meson ends a test that hangs."""
    for group in list(groups):
        os.killpg(group, signal.SIGKILL)
    sys.exit(1)


def again(file, names):
    """The command that runs these once more."""
    here = [f"{name}={shlex.quote(os.environ[name])}"
            for name in ("WEIR_SOURCE", "WEIR_BUILD") if name in os.environ]
    return " ".join([*here, "python3", str(file), "-v", *names])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    for option in "--only", "--but":
        parser.add_argument(option, type=lambda text: text.split(","),
                            default=[])
    asked = parser.parse_args()
    tests = load(asked.file)
    for name in asked.only + asked.but:
        if not any(is_named(test, [name]) for test in tests):
            sys.exit(f"live_run.py: {asked.file} has no test {name}")
    jobs = jobs_of(chosen(tests, asked.only, asked.but))
    signal.signal(signal.SIGTERM, end)
    with ThreadPoolExecutor(asked.jobs) as pool:
        statuses = list(pool.map(lambda names: run(asked.file, names), jobs))
    failed = [names for names, status in zip(jobs, statuses)
              if status not in (0, SKIPPED)]
    for names in failed:
        print("failed; to repeat it:", again(asked.file, names),
              file=sys.stderr)
    if failed or not jobs:
        sys.exit(1)
    sys.exit(SKIPPED if set(statuses) == {SKIPPED} else 0)


if __name__ == "__main__":
    main()
