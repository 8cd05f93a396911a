#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_versions.py - limiters of other versions at a root of today. Such a
limiter is written here by hand, on HTTP/2 and proto/weir.proto: a hello, and
the names in the quotas that it is sent."""

import os
import socket
import struct
import unittest

from live_fleet import Fleet
from patience import PATIENCE, until

# enum Feature of weir.proto
BASE, CONCURRENCY, LEASED, ADAPTIVE = 1 << 0, 1 << 1, 1 << 8, 1 << 10
SCOPE, FLEET = 47, 2  # a field of its Quota, and of enum Scope


def number(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(tag, value):
    if isinstance(value, int):
        return number(tag << 3) + number(value)
    return number(tag << 3 | 2) + number(len(value)) + value


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + \
        struct.pack(">I", stream) + payload


class Peer:
    """A limiter with a link to a root, in plain text."""

    def __init__(self, address, name, features):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), PATIENCE)
        headers = [(":method", "POST"), (":scheme", "http"),
                   (":path", "/weir.v1.Root/Link"), (":authority", address),
                   ("te", "trailers"), ("content-type", "application/grpc")]
        block = b"".join(b"\x10" + bytes([len(key)]) + key.encode() +
                         bytes([len(value)]) + value.encode()
                         for key, value in headers)
        hello = field(1, 1) + field(2, os.urandom(16)) + field(3, name)
        if features:
            hello += field(8, features)
        message = field(1, 1) + field(2, hello)
        self.socket.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) +
            frame(1, 4, 1, block) +
            frame(0, 0, 1, struct.pack(">BI", 0, len(message)) + message))
        self.socket.settimeout(0.01)
        self.bytes = b""
        self.ended = False

    def look(self):
        """All that the root has sent."""
        try:
            part = self.socket.recv(65536)
            self.ended = self.ended or not part
            self.bytes += part
        except TimeoutError:
            pass
        return self.bytes

    def has(self, name):
        """Whether a quota of that name came: field 1 of a Quota, which is field
        1 of a Change, and has field 10 (kind); a removal has none."""
        return field(1, name) in self.look()


class Versions(unittest.TestCase):
    def setUp(self):
        self.fleet = Fleet()
        self.addCleanup(self.fleet.close)
        self.fleet.add_roots(1)
        self.root = self.fleet.roots[0]

    def peer(self, name, features):
        peer = Peer(self.root.listen, name, features)
        self.addCleanup(peer.socket.close)
        return peer

    def test_an_older_limiter(self):
        """It is sent all quotas but the one that it doesn't understand, and its
        link stays."""
        self.fleet.set("first", "limit=5/s")
        self.fleet.set("shared_out", "limit=500/s", "sharing=leased")
        old = self.peer(b"old", BASE)
        silent = self.peer(b"silent", 0)
        self.fleet.set("last", "limit=5/s")
        for peer in old, silent:
            until("the last quota", lambda: peer.has(b"last"))
            self.assertTrue(peer.has(b"first"))
        self.assertTrue(silent.has(b"shared_out"))
        # A removal stands for it: a name and an epoch, in field 2 of a change.
        removal = field(1, b"shared_out") + field(2, 2)
        self.assertIn(field(2, removal), old.look())
        self.assertNotIn(field(1, b"shared_out") + field(6, 2), old.look())
        line = until("a warning", lambda: [
            line for line in self.root.logged().splitlines()
            if "'old'" in line and "'sharing: leased'" in line])
        self.fleet.set("shared_out", "limit=600/s")
        self.fleet.set("after", "limit=5/s")
        until("a later quota", lambda: old.has(b"after"))
        self.assertFalse(old.ended)
        self.assertEqual(1, len([
            line for line in self.root.logged().splitlines()
            if "understand" in line]))
        self.assertEqual(1, len(line))
        self.assertIn("weir_withheld_changes_total 2\n",
                      self.root.read("/metrics"))

    def test_a_limiter_without_scopes(self):
        """It is sent a limit of the whole fleet, as a quota whose unknown
        field it skips, and so limits alone: without the quota it would let all
        pass. It has no part of the fleet's limit."""
        old = self.peer(b"old", BASE | CONCURRENCY | ADAPTIVE)
        self.fleet.set("db", "kind=concurrency", "sharing=adaptive",
                       "scope=fleet")
        self.fleet.set("last", "limit=5/s")
        until("the last quota", lambda: old.has(b"last"))
        self.assertTrue(old.has(b"db"))
        self.assertIn(field(SCOPE, FLEET), old.look())
        self.assertNotIn("understand", self.root.logged())
        self.assertIn("weir_withheld_changes_total 0\n",
                      self.root.read("/metrics"))
        view = self.root.get("/v1/fleet", name="db")
        self.assertEqual((view["leads"], view["members"]), (True, []))


if __name__ == "__main__":
    unittest.main(verbosity=2)
