#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""agent_probe.py watch ADDRESS PID_FILE | busy ADDRESS - two clients of an
agent that is killed and stopped, each until its standard input ends.

watch asks /healthz each EVERY seconds, over a new connection, and prints a line
of JSON for each answer:

    {"start", "end", "own", "status"}

in seconds of CLOCK_MONOTONIC; status is 0 if there was no answer. 'own' leaves
out the time in which the kernel let other processes run instead of this one, or
of the agent's loop; it is the kernel's account of how long a thread was
runnable and didn't run. PID_FILE has the number of the agent's process.

busy gives the agent's loop work that reads the table: peeks at quotas with a
locked state, and the pages that list quotas. It charges nothing."""

import json
import select
import socket
import sys
import time
from pathlib import Path

EVERY = 0.02
PATIENCE = 30  # seconds
PEEKS = 100    # of a request, at each of two quotas


def waited(pid):
    """Seconds for which a process's first thread was runnable and waited; 0 if
    there is no such process."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0


def ask(address, path, body=None):
    """The status of the answer, once all of it has come; 0: none came."""
    host, port = address.rsplit(":", 1)
    head = [f"{'POST' if body else 'GET'} {path} HTTP/1.1", f"Host: {address}",
            "Connection: close"]
    if body:
        head += ["Content-Type: application/json",
                 f"Content-Length: {len(body)}"]
    try:
        with socket.create_connection((host, int(port)), PATIENCE) as link:
            link.sendall("\r\n".join([*head, "", body or ""]).encode())
            return int(link.makefile("rb").read().split()[1])
    except (OSError, IndexError):
        return 0


def probe(address, pid_file):
    pid = pid_file.read_text()
    own, agent = waited("self"), waited(pid)
    start = time.monotonic()
    status = ask(address, "/healthz")
    end = time.monotonic()
    away = waited("self") - own + max(0, waited(pid) - agent)
    return {"start": start, "end": end, "own": max(0, end - start - away),
            "status": status}


def work(address):
    ask(address, "/v1/take", json.dumps({"requests": [
        {"name": name, "peek": True} for name in ("log", "window")
        for _ in range(PEEKS)]}))
    ask(address, "/v1/usage")
    ask(address, "/metrics")


def main():
    mode, address = sys.argv[1:3]
    while not select.select([sys.stdin], [], [], EVERY)[0]:
        if mode == "watch":
            print(json.dumps(probe(address, Path(sys.argv[3]))), flush=True)
        else:
            work(address)


if __name__ == "__main__":
    main()
