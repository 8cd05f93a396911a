# SPDX-License-Identifier: MIT
"""patience.py - waiting for an event, as tests do: until it has happened, or
for so long that its absence is a fault. And a free port, for a server that
must be told one beforehand."""

import socket
import time

PATIENCE = 60  # seconds, for any event
# Seconds between two questions: few at first, so that a test is quick, and
# more later, so that it doesn't keep a busy machine busy.
FIRST, LAST, GROWTH = 0.002, 0.05, 1.2


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


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
