#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""attacker.py - one process of an attack: many connections, each of which sends
the bytes of a generator. A connection that the server ends is made anew.

It is started by field.py with a JSON object as its only argument:

    {"attack", "variant"   bytes to send (attacks.py)
     "against", "listener" "root" or "agent", and which of its listeners
     "host", "port",
     "tls"                 true: a handshake first
     "cert"                FILE without .pem and .key; null: no certificate
     "source"              own address; null: any
     "connections"         at once
     "rate"                bytes a second of this process; 0: as many as it can
     "again"               false: a connection that has ended isn't replaced
     "patience"}           seconds for a handshake

It prints one JSON line every 100 ms, with totals since its start: "made"
(connections after their handshake), "failed" (no connection, or no
handshake), "ended" (by the server), "closed" (by the attacker), "standing",
"sent" and "received" (bytes), "last" (the end of the server's bytes on the
connection that it ended last). It runs until its standard input ends.

The generator of a connection yields bytes to send, a number of seconds to
wait, or None: the connection stays open and sends nothing more. When the
generator returns, the connection is closed. A 'deaf' variant reads no
answers."""

import json
import os
import select
import socket
import ssl
import sys
import time

import attacks
import http2

READ, WRITE, ENDED = select.EPOLLIN, select.EPOLLOUT, select.EPOLLRDHUP
GONE = select.EPOLLHUP | select.EPOLLERR | ENDED
TELL_EVERY = 0.1   # seconds
KEPT = 4096        # bytes kept of the end of a server's bytes
TURNS = 16         # pieces of one connection before others have their turn
OPENING_MAX = 64   # handshakes at once of one process
BUDGET = 0.05      # seconds of the rate that are sent at once, at most
PAUSE = 0.05       # seconds after a failed try, before the next one


class Connection:
    def __init__(self, crowd):
        self.crowd, self.said, self.rest = crowd, b"", memoryview(b"")
        self.steps = crowd.attack.steps(crowd.spec)
        self.wake, self.shaken, self.resting = 0, False, False
        self.began = time.monotonic()
        self.socket = socket.socket(crowd.family)
        self.socket.setblocking(False)
        if crowd.source:
            self.socket.bind((crowd.source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.connect_ex((crowd.host, crowd.port))
        self.connected = False
        self.events = WRITE
        self.crowd.poll.register(self.socket, self.events | ENDED)

    def want(self, events):
        if events != self.events:
            self.events = events
            self.crowd.poll.modify(self.socket, events | ENDED)

    # ---- Its events ----

    def handle(self, events):
        """Raises OSError when the server has ended it."""
        if not self.shaken and not self.shake():
            return
        if events & READ and self.crowd.reads:
            self.read()
        elif events & GONE:
            raise ConnectionError("end")
        if self.wake <= time.monotonic():
            self.send()

    def shake(self):
        """Goes on with the handshake; returns whether it is over."""
        if not self.connected:
            self.connect()
        try:
            if self.crowd.context:
                self.socket.do_handshake()
        except ssl.SSLWantReadError:
            self.want(READ)
            return False
        except ssl.SSLWantWriteError:
            self.want(WRITE)
            return False
        self.shaken = True
        self.crowd.counts["made"] += 1
        return True

    def connect(self):
        error = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
        self.connected = True
        if self.crowd.context:
            # The descriptor stays the same.
            self.socket = self.crowd.context.wrap_socket(
                self.socket, server_hostname="localhost",
                do_handshake_on_connect=False)

    def read(self):
        """Reads what has arrived, up to TURNS pieces."""
        try:
            for _ in range(TURNS):
                part = self.socket.recv(65536)
                if not part:
                    raise ConnectionError("end")
                self.crowd.counts["received"] += len(part)
                self.said = (self.said + part)[-KEPT:]
        except (BlockingIOError, ssl.SSLWantReadError,
                ssl.SSLWantWriteError):
            pass

    def send(self):
        for _ in range(TURNS):
            if self.crowd.rate and self.crowd.budget <= 0:
                break
            if not self.rest and not self.next():
                return
            try:
                sent = self.socket.send(self.rest)
            except (BlockingIOError, ssl.SSLWantReadError,
                    ssl.SSLWantWriteError):
                break
            self.crowd.counts["sent"] += sent
            self.crowd.budget -= sent
            self.rest = self.rest[sent:]
        self.want(WRITE | READ if self.crowd.reads else WRITE)

    def next(self):
        """Fetches the next piece; False: none now, or none at all."""
        step = next(self.steps, StopIteration)
        if isinstance(step, bytes):
            self.rest = memoryview(step)
            return True
        if step is StopIteration:
            self.crowd.counts["closed"] += 1
            self.crowd.remove(self)
            return False
        if step is None:
            self.wake = float("inf")
        else:
            self.wake = time.monotonic() + step
        # Epoll reports the end to a connection that doesn't read, too.
        self.want(READ if self.crowd.reads else 0)
        return False


class Crowd:
    def __init__(self, spec):
        self.spec, self.attack = spec, attacks.ATTACKS[spec["attack"]]
        self.reads = spec["variant"] not in self.attack.deaf
        self.host, self.port = spec["host"], spec["port"]
        self.family = socket.AF_INET
        self.source = spec["source"]
        self.wanted, self.again = spec["connections"], spec["again"]
        self.patience = spec["patience"]
        self.context = self.make_context(spec) if spec["tls"] else None
        self.poll = select.epoll()
        self.all = {}  # by descriptor
        self.begun, self.later = 0, 0
        self.rate, self.budget = spec["rate"], 0
        self.paid = time.monotonic()
        self.counts = dict.fromkeys(("made", "failed", "ended", "closed",
                                     "sent", "received"), 0)
        self.last = ""

    @staticmethod
    def make_context(spec):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if spec["listener"] in attacks.HTTP2:
            context.set_alpn_protocols(["h2"])
        if spec["cert"]:
            context.load_cert_chain(spec["cert"] + ".pem",
                                    spec["cert"] + ".key")
        return context

    def fill(self):
        """Makes the missing connections, few of them amid a handshake."""
        if time.monotonic() < self.later:
            return
        opening = sum(not one.shaken for one in self.all.values())
        while len(self.all) < self.wanted and opening < OPENING_MAX and \
                (self.again or self.begun < self.wanted):
            try:
                made = Connection(self)
            except OSError as error:
                self.fail(error)
                return
            self.all[made.socket.fileno()] = made
            self.begun += 1
            opening += 1

    def fail(self, error):
        self.counts["failed"] += 1
        self.last = str(error)
        self.later = time.monotonic() + PAUSE

    def remove(self, connection):
        del self.all[connection.socket.fileno()]
        self.poll.unregister(connection.socket)
        connection.socket.close()

    def step(self, connection, events):
        try:
            connection.handle(events)
        except (OSError, ValueError) as error:
            if connection.shaken:
                self.counts["ended"] += 1
                self.last = http2.goaway(connection.said) or str(error)
            else:
                self.fail(error)
            self.remove(connection)

    def pace(self):
        """Waits until the rate allows bytes to be sent; saves up few."""
        now = time.monotonic()
        self.budget = min(self.budget + (now - self.paid) * self.rate,
                          BUDGET * self.rate)
        self.paid = now
        if self.budget < 0:
            time.sleep(-self.budget / self.rate)

    def turn(self):
        self.fill()
        if self.rate:
            self.pace()
        for descriptor, events in self.poll.poll(0.01):
            self.step(self.all[descriptor], events)
        now = time.monotonic()
        for connection in list(self.all.values()):
            if 0 < connection.wake <= now:
                connection.wake = 0
                self.step(connection, WRITE)
            elif not connection.shaken and \
                    now > connection.began + self.patience:
                self.fail("no handshake")
                self.remove(connection)

    def tell(self):
        standing = sum(one.shaken for one in self.all.values())
        print(json.dumps(self.counts | {"standing": standing,
                                        "last": self.last}), flush=True)


def main():
    crowd = Crowd(json.loads(sys.argv[1]))
    told = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        crowd.turn()
        if time.monotonic() > told + TELL_EVERY:
            told = time.monotonic()
            crowd.tell()


if __name__ == "__main__":
    main()
