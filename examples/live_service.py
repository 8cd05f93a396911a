#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_service.py - examples/service.c and what strangers send it. It needs no
root for that."""

import http.client
import os
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(os.environ["WEIR_SOURCE"]) / "test"))
from patience import free_port, until  # noqa: E402

SERVICE = Path(os.environ["WEIR_BUILD"]) / "examples" / "service"


class Service(unittest.TestCase):
    def setUp(self):
        self.address = f"127.0.0.1:{free_port()}"
        process = subprocess.Popen([SERVICE, "--listen", self.address])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        until("the service listens", self.listens)

    def listens(self):
        try:
            return self.ask() == 200
        except OSError:
            return False

    def ask(self, **headers):
        connection = http.client.HTTPConnection(self.address, timeout=60)
        try:
            connection.request("GET", "/", headers=headers)
            return connection.getresponse().status
        finally:
            connection.close()

    def test_clients(self):
        for client in b"alice", "é".encode(), b"x" * 250:
            self.assertEqual(self.ask(**{"X-Client": client}), 200, client)
        # What can't be a quota's name has none, and would pass by every limit.
        for client in b"\xff", b"a\x01b", b"x" * 251, b"x" * 9999:
            self.assertEqual(self.ask(**{"X-Client": client}), 400, client)


if __name__ == "__main__":
    unittest.main()
