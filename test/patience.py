# SPDX-License-Identifier: MIT
"""patience.py - waiting for what is to happen, as tests do: until it is so, or
for so long that it is a fault. And a port for who needs one beforehand."""

import socket
import time

PATIENCE = 60  # seconds, for anything at all


def until(what, ask, patience=PATIENCE):
    """Asks until the answer is true, and returns it."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        answer = ask()
        if answer:
            return answer
        time.sleep(0.005)
    raise AssertionError(f"{what}: not within {patience} s")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
