#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""taker.py HOST PORT CERT NAME PER_S - a client of Redis that takes from a
quota through an agent, PER_S times a second over CONNECTIONS connections, until
its standard input ends. CERT: FILE without .pem and .key, for TLS; "": plain
text. It prints lines as live_load.c does, one each 100 ms. When a connection
ends, it connects again."""

import json
import os
import select
import socket
import ssl
import sys
import threading
import time

BIN = 0.1
PATIENCE = 60
# Each waits for its answer before it asks again, so at most this many answers
# are under way when a bin is printed.
CONNECTIONS = 8


class Taker:
    def __init__(self, host, port, cert, name):
        self.address, self.name = (host, int(port)), name
        self.context = None
        if cert:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self.context.check_hostname = False
            self.context.verify_mode = ssl.CERT_NONE
            self.context.load_cert_chain(cert + ".pem", cert + ".key")
        self.link = self.file = None
        self.calls = self.passed = self.failed = 0
        word = name.encode()
        self.line = b"*2\r\n$9\r\nWEIR.TAKE\r\n$%d\r\n%s\r\n" % (len(word),
                                                                 word)

    def connect(self):
        self.link = socket.create_connection(self.address, PATIENCE)
        if self.context:
            self.link = self.context.wrap_socket(self.link,
                                                 server_hostname="localhost")
        self.file = self.link.makefile("rb")

    def ask(self):
        if not self.link:
            self.connect()
        self.link.sendall(self.line)
        head = self.file.readline()
        if head[:1] != b"*":
            raise ConnectionError(head)
        rows = []
        for _ in range(int(head[1:])):
            row = self.file.readline()
            if row[:1] == b"$" and row != b"$-1\r\n":
                self.file.readline()
            rows.append(row)
        return rows[0] == b":0\r\n"

    def take(self):
        self.calls += 1
        try:
            self.passed += self.ask()
        except (OSError, ValueError):
            self.failed += 1
            if self.link:
                self.link.close()
            self.link = None
            time.sleep(BIN)

    def run(self, per_s):
        start = time.monotonic()
        while True:
            due = start + self.calls / per_s
            time.sleep(max(0, due - time.monotonic()))
            self.take()


def tell(takers, at):
    calls, passed, failed = (
        sum(getattr(taker, name) for taker in takers)
        for name in ("calls", "passed", "failed"))
    print(json.dumps({"pid": os.getpid(), "at": at, "seen": {
        takers[0].name: [calls, passed, calls, failed]},
        "roots_up": int(all(taker.link for taker in takers))}), flush=True)


def main():
    takers = [Taker(*sys.argv[1:5]) for _ in range(CONNECTIONS)]
    for taker in takers:
        threading.Thread(target=taker.run, daemon=True, args=(
            int(sys.argv[5]) / CONNECTIONS,)).start()
    while not select.select([sys.stdin], [], [], BIN)[0]:
        tell(takers, time.monotonic())
    os._exit(0)  # The threads may wait for an answer.


if __name__ == "__main__":
    main()
