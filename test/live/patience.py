# SPDX-License-Identifier: MIT
"""patience.py - waits for an event until it has happened, or for so long that
its absence is a fault; and finds a free port, for a server if its port must be
known before it starts."""

import random
import socket
import time
from pathlib import Path

PATIENCE = 60  # seconds, for any event
# Seconds between two questions: short at first, so that a test is quick, and
# longer later, so that it doesn't load a busy machine.
FIRST, LAST, GROWTH = 0.002, 0.05, 1.2

reserved = []  # sockets; they stay open while this process lives


def until(what, ask, patience=PATIENCE):
    """Asks until the answer is true, and returns it."""
    end = time.monotonic() + patience
    pause = FIRST
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {patience} s; the last "
                                 f"answer: {answer!r}")
        time.sleep(pause)
        pause = min(pause * GROWTH, LAST)


def until_equal(what, wanted, ask, patience=PATIENCE):
    """Asks until the answer is the wanted one."""
    last = None

    def is_wanted():
        nonlocal last
        last = ask()
        return last == wanted
    try:
        until(what, is_wanted, patience)
    except AssertionError:
        raise AssertionError(f"{what}: not within {patience} s; expected "
                             f"{wanted!r}, got {last!r}") from None


def reserve(port):
    """Takes a port for this process, if neither another test nor a listener
    has it. Among tests a socket name in the abstract namespace reserves the
    port; the kernel frees it when the process ends."""
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0weir-test-port-{port}")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    except OSError:
        name.close()
        return False
    reserved.append(name)
    return True


def free_port():
    """A port that stays free, also if it is used later or twice: it is below
    the range from which the kernel chooses, for connections and for port 0."""
    chosen, _ = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range")
                    .read_text().split())
    first = 10000 if chosen > 12000 else 1024
    return until("a free port", lambda: (
        port := random.randrange(first, chosen)) and reserve(port) and port)
