#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_service.py - examples/service.c and invalid requests of its clients. It
needs no root for that."""

import http.client
import os
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(os.environ["WEIR_SOURCE"]) / "test/live"))
from patience import PATIENCE, until  # noqa: E402

SERVICE = Path(os.environ["WEIR_BUILD"]) / "examples" / "service"


LISTENS = "0A"  # in /proc/net/tcp


def port_of(process):
    """The port of the service, by the system, or None. It listens on port 0: a
    port that was free a moment ago might be another process's by now."""
    if process.poll() is not None:
        raise AssertionError(f"it has ended by {process.returncode}")
    mine = set()
    for file in Path(f"/proc/{process.pid}/fd").iterdir():
        try:
            mine.add(os.readlink(file))
        except FileNotFoundError:
            pass  # it was closed meanwhile
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, *rest = line.split()
        if state == LISTENS and f"socket:[{rest[5]}]" in mine:
            return int(local.split(":")[1], 16)
    return None


class Service(unittest.TestCase):
    def setUp(self):
        process = subprocess.Popen([SERVICE, "--listen", "127.0.0.1:0"])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.port = until("the service listens", lambda: port_of(process))

    def ask(self, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port,
                                                timeout=PATIENCE)
        try:
            connection.request("GET", "/", headers=headers)
            return connection.getresponse().status
        finally:
            connection.close()

    def test_clients(self):
        for client in b"alice", "é".encode(), b"x" * 250:
            self.assertEqual(self.ask(**{"X-Client": client}), 200, client)
        # An invalid name has no quota, and would pass every limit.
        for client in b"\xff", b"a\x01b", b"x" * 251, b"x" * 9999:
            self.assertEqual(self.ask(**{"X-Client": client}), 400, client)


if __name__ == "__main__":
    unittest.main()
