#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_run.py FILE [--jobs N] [--only NAME,…] [--but NAME,…] - runs the tests
of a file, N at a time.

NAME is Class or Class.method. A live test mostly waits, and has processes,
ports and a folder of its own, so several don't disturb each other. Each test
is a process of its own, and its output is printed in one piece when it has
ended. The tests of a class that starts servers for all of them (setUpClass)
share a process, and so do classes with the same attribute PROCESS. A test that
failed is named at the end, with the command that repeats it.

$TMPDIR of a test is a folder that is removed when the test has ended, however
it ended. A process that a test leaves behind is killed, and is a failure; so is
a file, if the test has not failed anyway.

The processes are forks of this one, which has loaded the file's imports:
starting Python and importing anew took more of a processor than most tests. In
a fork the file is executed as from a command line, as __main__. This process
has no threads: none can hold a lock during a fork."""

import argparse
import gc
import importlib.util
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
import types
import unittest
from pathlib import Path

SKIPPED = 77   # the exit status of a file if its tests can't run here
PATIENCE = 10  # seconds for the processes of a test to end
# ThreadSanitizer's runtime creates this file and removes it at once, before
# main(): a SIGKILL between the two leaves it.
TSAN_FILE = "tsan.rodata."
groups = {}    # process groups, by processes that run tests -> their $TMPDIR


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
    """The names of tests, a list for each process."""
    shared, jobs = {}, []
    for test in tests:
        kind = type(test)
        name = f"{kind.__name__}.{test._testMethodName}"
        if not shares_servers(kind):
            jobs.append([name])
            continue
        process = getattr(kind, "PROCESS", kind)
        if process in shared:
            shared[process].append(name)
        else:
            shared[process] = [name]
            jobs.append(shared[process])
    return jobs


def left_behind(group):
    """Kills the rest of a process group after its leader's end; returns whether
    there was any. Processes have PATIENCE seconds to end by themselves."""
    end = time.monotonic() + PATIENCE
    try:
        while time.monotonic() < end:
            os.killpg(group, 0)
            time.sleep(0.01)
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def remove(folder):
    """Removes a folder; killed processes may write to it until they end."""
    end = time.monotonic() + PATIENCE
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder) or time.monotonic() > end:
            return
        time.sleep(0.01)


def become(file, code, names, output, folder):
    """Turns this process into `python3 FILE -v NAME…`."""
    os.setsid()
    os.environ["TMPDIR"] = folder
    tempfile.tempdir = None  # Have it read $TMPDIR again.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for stream in sys.stdout, sys.stderr:
        os.dup2(output.fileno(), stream.fileno())
    sys.argv = [str(file), "-v", *names]
    main = types.ModuleType("__main__")
    main.__file__ = str(file)
    sys.modules["__main__"] = main
    exec(code, main.__dict__)
    sys.exit(0)


class Process:
    """A process that runs tests of a file; it starts at once."""

    def __init__(self, file, code, names):
        # A file: a pipe would be kept open by a process left behind.
        self.output = tempfile.TemporaryFile("w+", errors="replace")
        self.folder = tempfile.mkdtemp(prefix="weir-test-")
        # Servers that run as another user have folders inside.
        os.chmod(self.folder, 0o711)
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            become(file, code, names, self.output, self.folder)
        groups[self.pid] = self.folder

    def ended(self, status):
        """Prints its output; returns its exit status."""
        if left_behind(self.pid):
            print("expected no process to be left behind", file=self.output)
            status = status or 1
        files = sorted(name for name in os.listdir(self.folder)
                       if not name.startswith(TSAN_FILE))
        if files and status in (0, SKIPPED):
            print(f"expected no file to be left behind in $TMPDIR; got "
                  f"{files}", file=self.output)
            status = 1
        remove(self.folder)
        del groups[self.pid]
        self.output.seek(0)
        print(self.output.read(), file=sys.stderr, flush=True)
        self.output.close()
        return status


def run_all(file, jobs, width):
    """Runs a process for each list of names, 'width' at a time; returns their
    exit statuses."""
    code = compile(file.read_bytes(), str(file), "exec")
    gc.freeze()  # Spares the forks a scan of the objects loaded so far.
    statuses, running = [None] * len(jobs), {}
    waiting = list(enumerate(jobs))
    while waiting or running:
        while waiting and len(running) < width:
            number, names = waiting.pop(0)
            process = Process(file, code, names)
            running[process.pid] = number, process
        pid, status = os.wait()
        number, process = running.pop(pid)
        statuses[number] = process.ended(os.waitstatus_to_exitcode(status))
    return statuses


def end(*_):
    """On SIGTERM, by which Meson ends a test that hangs: kills all."""
    for group in list(groups):
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            os.kill(group, signal.SIGKILL)  # It has no group yet.
    for folder in groups.values():
        remove(folder)
    sys.exit(1)


def again(file, names):
    """The command that runs these tests once more."""
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
    statuses = run_all(asked.file, jobs, asked.jobs)
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
