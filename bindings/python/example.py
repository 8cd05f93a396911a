#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""example.py [ROOTS [PORT]] - a web server that shares a quota with its other
instances.

    weir serve &
    weir quota set site limit=100/s
    weir quota set 'site/*' limit=3/s parent=site
    weir quota set db kind=concurrency limit=2
    pip install . && ./example.py
    curl -i http://127.0.0.1:8000/"""

import sys
from wsgiref.simple_server import make_server

import weir
import weir.wsgi

ROOTS = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7077"
PORT = int(sys.argv[2]) if len(sys.argv) > 2 else 8000

limiter = weir.Limiter(ROOTS)
db = limiter.quota("db")


def ask_database() -> bytes:
    with db.enter():  # raises weir.Limited if two are in flight
        return b"forty-two\n"


def app(environ, start_response):
    try:
        answer = ask_database()
    except weir.Limited:
        start_response("503 Service Unavailable", [])
        return []
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [answer]


app = weir.wsgi.RateLimit(app, limiter,
                          lambda environ: "site/" + environ["REMOTE_ADDR"])

if __name__ == "__main__":
    server = make_server("127.0.0.1", PORT, app)
    print(f"http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()
