# SPDX-License-Identifier: MIT
"""plain_grpc.py - gRPC calls without TLS, by hand: no library that retries, or
that hides how a call ended. libnghttp2 decodes the headers of answers."""

import ctypes
import socket
import struct

from grpc_call import Call

PATIENCE = 10  # seconds for an answer
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
END_STREAM, ACK, END_HEADERS = 1, 1, 4
EMIT, FINAL = 2, 1  # nghttp2_hd_inflate_flag


class Header(ctypes.Structure):
    """nghttp2_nv"""
    _fields_ = [("name", ctypes.POINTER(ctypes.c_char)),
                ("value", ctypes.POINTER(ctypes.c_char)),
                ("name_len", ctypes.c_size_t),
                ("value_len", ctypes.c_size_t), ("flags", ctypes.c_uint8)]


class Inflater:
    """HPACK of one direction of a connection."""

    def __init__(self):
        self.library = ctypes.CDLL("libnghttp2.so.14")
        self.library.nghttp2_hd_inflate_hd2.restype = ctypes.c_ssize_t
        self.state = ctypes.c_void_p()
        self.library.nghttp2_hd_inflate_new(ctypes.byref(self.state))

    def headers(self, block):
        found = {}
        while True:
            header, flags = Header(), ctypes.c_int()
            used = self.library.nghttp2_hd_inflate_hd2(
                self.state, ctypes.byref(header), ctypes.byref(flags), block,
                ctypes.c_size_t(len(block)), 1)
            if used < 0:
                raise ValueError(f"no HPACK: {used}")
            block = block[used:]
            if flags.value & EMIT:
                found[header.name[:header.name_len].decode()] = \
                    header.value[:header.value_len].decode()
            if flags.value & FINAL or not (used or flags.value & EMIT):
                self.library.nghttp2_hd_inflate_end_headers(self.state)
                return found

    def close(self):
        self.library.nghttp2_hd_inflate_del(self.state)


def call(address, path, *messages):
    """Makes one call on a connection of its own. Returns (grpc-status,
    grpc-message, messages); the status is None if the stream was reset or the
    connection ended before."""
    host, port = address.rsplit(":", 1)
    inflater = Inflater()
    headers = [(":method", "POST"), (":scheme", "http"), (":path", path),
               (":authority", address), ("te", "trailers"),
               ("content-type", "application/grpc")]
    # Literals that are never indexed, without Huffman: RFC 7541, 6.2.3.
    block = b"".join(b"\x10" + bytes([len(name)]) + name.encode() +
                     bytes([len(value)]) + value.encode()
                     for name, value in headers)
    body = b"".join(struct.pack(">BI", 0, len(message)) + message
                    for message in messages)
    try:
        with socket.create_connection((host, int(port)), PATIENCE) as link:
            link.sendall(PREFACE + Call.frame(SETTINGS, 0, 0) +
                         Call.frame(HEADERS, END_HEADERS, 1, block) +
                         Call.frame(DATA, END_STREAM, 1, body))
            return receive(link, inflater)
    except ConnectionError:
        return None, "", []
    finally:
        inflater.close()


def receive(link, inflater):
    stream, body = link.makefile("rb"), b""
    while True:
        head = stream.read(9)
        if len(head) < 9:
            return None, "", []
        kind, flags = head[3], head[4]
        payload = stream.read(int.from_bytes(head[:3], "big"))
        if kind == DATA:
            body += payload
        elif kind == HEADERS:
            found = inflater.headers(payload)
            if flags & END_STREAM:
                return (int(found["grpc-status"]),
                        found.get("grpc-message", ""), parts(body))
        elif kind == SETTINGS and not flags & ACK:
            link.sendall(Call.frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            link.sendall(Call.frame(PING, ACK, 0, payload))
        elif kind == RST_STREAM:
            return None, "", []


def parts(body):
    """The messages in a stream's bytes."""
    found = []
    while body:
        size, = struct.unpack_from(">xI", body)
        found.append(body[5:5 + size])
        body = body[5 + size:]
    return found


# ---- protobuf, by hand ----


def number(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(index, value):
    """A field of bytes, a text, a whole number or a double."""
    if isinstance(value, float):
        return number(index << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return number(index << 3) + number(value)
    value = value.encode() if isinstance(value, str) else value
    return number(index << 3 | 2) + number(len(value)) + value


def read(message):
    """[(field, value)]"""
    found, at = [], 0

    def next_number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(message):
        key = next_number()
        if key & 7 == 0:
            found.append((key >> 3, next_number()))
            continue
        size = {1: 8, 5: 4}.get(key & 7) or next_number()
        found.append((key >> 3, message[at:at + size]))
        at += size
    return found
