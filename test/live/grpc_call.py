# SPDX-License-Identifier: MIT
"""grpc_call.py - a gRPC call by hand: its headers, and its message at a moment
of the test's choice. curl sends both at once."""

import select
import socket
import struct

LINK, CALL = "/weir.v1.Root/Link", "/weir.v1.Root/Call"


class Call:
    """A gRPC call that has begun: a connection of HTTP/2 with one stream. Its
    message is sent later or never. The call ends with its stream or with the
    connection."""

    def __init__(self, who, ca, port, path):
        context = who.context(ca)
        context.set_alpn_protocols(["h2"])
        self.socket = context.wrap_socket(
            socket.create_connection(("127.0.0.1", port)),
            server_hostname="localhost")
        self.buffer = b""
        self.ended = False
        self.begun = False  # the server has read the headers
        self.replies = b""  # messages, each behind its gRPC header
        headers = [(":method", "POST"), (":scheme", "https"),
                   (":path", path),
                   (":authority", "localhost"), ("te", "trailers"),
                   ("content-type", "application/grpc")]
        if who.header:
            headers.append(("authorization", who.header))
        # Literals that are never indexed, without Huffman: RFC 7541, 6.2.3.
        block = b"".join(b"\x10" + bytes([len(name)]) + name.encode() +
                         bytes([len(value)]) + value.encode()
                         for name, value in headers)
        # The ping is answered after the headers before it were read.
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" +
                            self.frame(4, 0, 0) +
                            self.frame(1, 4, 1, block) +
                            self.frame(6, 0, 0, b"have you"))

    @staticmethod
    def frame(kind, flags, stream, payload=b""):
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + \
            struct.pack(">I", stream) + payload

    def send(self, message):
        """Sends the call's only message."""
        self.socket.sendall(self.frame(
            0, 1, 1, struct.pack(">BI", 0, len(message)) + message))

    def look(self):
        """Reads without waiting; returns whether the call has ended."""
        while not self.ended:
            if not self.socket.pending() and \
                    not select.select([self.socket], [], [], 0)[0]:
                break
            part = self.socket.recv(65536)
            self.ended = not part
            self.buffer += part
            while len(self.buffer) >= 9:
                size = int.from_bytes(self.buffer[:3], "big")
                if len(self.buffer) < 9 + size:
                    break
                self.on_frame(self.buffer[3], self.buffer[4],
                              self.buffer[9:9 + size])
                self.buffer = self.buffer[9 + size:]
        return self.ended

    def on_frame(self, kind, flags, payload):
        if kind == 0:
            self.replies += payload
        elif kind == 4 and not flags & 1:
            self.socket.sendall(self.frame(4, 1, 0))
        elif kind == 6 and flags & 1:
            self.begun = True
        elif kind == 6 and not flags & 1:
            self.socket.sendall(self.frame(6, 1, 0, payload))
        elif kind == 3 or kind == 7 or (kind == 1 and flags & 1):
            self.ended = True
