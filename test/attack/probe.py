#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""probe.py HOST PORT tls|plain PATIENCE - asks for /healthz and /readyz in
turn, each on a connection of its own, every EVERY seconds or as soon as the
last one is answered, until its standard input ends. Prints a JSON line for
each: "at" (when it began), "took" (seconds, to the whole answer), "status" (of
HTTP; null: no answer, and "why")."""

import json
import select
import socket
import ssl
import sys
import time

EVERY = 0.02
PATHS = ["/healthz", "/readyz"]


def ask(context, host, port, path, patience):
    """The status; raises OSError."""
    with socket.create_connection((host, port), patience) as raw:
        raw.settimeout(patience)
        # Without it the request waits for the ACK of the handshake's end.
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = context.wrap_socket(raw, server_hostname="localhost") \
            if context else raw
        link.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n"
                     "Connection: close\r\n\r\n".encode())
        said = b""
        while part := link.recv(4096):
            said += part
        if not said.startswith(b"HTTP/1.1 "):
            raise ConnectionError(f"no answer: {said[:80]!r}")
        return int(said[9:12])


def main():
    host, port, kind, patience = sys.argv[1:]
    context = None
    if kind == "tls":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    began, count = time.monotonic(), 0
    while True:
        pause = max(0, began + EVERY - time.monotonic())
        if select.select([sys.stdin], [], [], pause)[0]:
            return
        began = time.monotonic()
        told = {"at": began, "status": None}
        try:
            told["status"] = ask(context, host, int(port),
                                 PATHS[count % len(PATHS)], float(patience))
        except OSError as error:
            told["why"] = str(error)
        count += 1
        told["took"] = time.monotonic() - began
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
