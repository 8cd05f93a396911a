#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_memory_libraries.py - memory that fails where other libraries work for a
request: OpenSSL, libpq, hiredis, libmemcached. The rules are live_memory's: an
answer, a refusal for want of memory or the end of the connection, and the
process lives."""

import http.client
import json
import shutil
import ssl
import subprocess
import unittest
from pathlib import Path

from identities import EDIT, Certificates, bearer
from live_memory import (CLOSED, DEEP, DONE, EDITS, REFUSED, Edits, Fault,
                         Memory, ask_http, get, post)
from patience import PATIENCE, free_port, until
from postgres import Postgres

EVERY = (7, 11, 13)  # the primes of the second sweep
FIRST = 200 if DEEP else 20


class Libraries(Memory):
    def sweep(self, process, requests):
        """One allocation of a request, and each k-th from each of the first."""
        self.sweep_each(process, requests)
        for kind, request in requests.items():
            for every in EVERY:
                for first in range(1, FIRST):
                    process.try_one(kind, request, first, every)
        until("good answers", lambda: all(
            request(process.ports)[0] == DONE
            for request in requests.values()))
        self.assertEqual(self.faults, {})


class Tls(Libraries):
    def test_a_handshake_and_a_request(self):
        certificates = Certificates(Path(self.folder))
        credentials = Path(self.path("credentials"))
        credentials.touch(0o600)
        credentials.write_text(f"read,edit token editor {EDIT}\n")
        root = self.add("root", "serve", "--store", self.store, "--listen",
                        "127.0.0.1:0", "--http", "127.0.0.1:0", "--tls-cert",
                        f"{certificates.server}.pem", "--tls-key",
                        f"{certificates.server}.key", "--tls-ca",
                        certificates.ca, "--credentials", credentials)
        context = ssl.create_default_context(cafile=certificates.ca)

        def quotas(at):
            link = http.client.HTTPSConnection(
                "localhost", int(at["http"].rpartition(":")[2]),
                timeout=PATIENCE, context=context)
            try:
                link.request("GET", "/v1/quotas",
                             headers={"Authorization": bearer(EDIT)})
                answer = link.getresponse()
                text = answer.read().decode()
            except (ssl.SSLError, ConnectionError,
                    http.client.HTTPException):
                return CLOSED, None
            finally:
                link.close()
            if answer.status == 503:
                return REFUSED, None
            if answer.status != 200:
                raise Fault(f"{answer.status} {text}")
            return DONE, text
        until("quotas", lambda: quotas(root.ports)[0] == DONE)
        self.sweep(root, {"quotas": quotas})


class Stores(Libraries):
    def exact(self, kind, *command):
        """A quota whose counts are in a server that this starts."""
        if not shutil.which(command[0]):
            self.skipTest(f"no {kind} here")
        port = free_port()
        server = subprocess.Popen(
            [part.format(port=port) for part in command],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        root = self.add_root()
        self.ok("quota", "set", "exact", "limit=1000000/h", "sharing=exact",
                f"store={kind}://127.0.0.1:{port}", "deadline=10s",
                "algorithm=sliding_window", "on_stale=limit",
                root=root.ports["listen"])
        agent = self.add_agent(root)
        take = '{"name": "exact"}'
        until("an exact answer", lambda: json.loads(post("/v1/take", take)(
            agent.ports)[1])["verdict"] == "passed")
        self.sweep(agent, {"exact": lambda at: ask_http(
            at["http"], "POST", "/v1/take", take, (200, 429))})

    def test_redis(self):
        self.exact("redis", "redis-server", "--port", "{port}", "--bind",
                   "127.0.0.1", "--save", "", "--dir", self.folder)

    def test_memcached(self):
        self.exact("memcached", "memcached", "-l", "127.0.0.1", "-p",
                   "{port}", "-u", "nobody")

    def test_postgres(self):
        server = Postgres()
        server.start()
        self.addCleanup(server.close)
        self.store = server.new_database()
        self.assertEqual(self.run_weir("store", "init", self.store).status, 0)
        root = self.add_root()
        for kind, make in EDITS.items():
            edits = Edits(make)
            self.sweep(root, {kind: edits.request})
            limit = json.loads(get("/v1/quotas/edited")(root.ports)[1])
            edits.check(self, limit["limit"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
