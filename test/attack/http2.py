# SPDX-License-Identifier: MIT
"""http2.py - frames of HTTP/2 (RFC 9113), blocks of HPACK (RFC 7541) and
messages of gRPC and protobuf, made by hand: an attacker sends bytes that no
library would make. Nothing here is compressed unless its function says so."""

import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = range(5)
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(6, 10)
END_STREAM, END_HEADERS = 1, 4
CANCEL = 8         # an error code, of RST_STREAM

FRAME_MAX = 16384  # bytes of a payload, unless the peer announces more
FIRST_DYNAMIC = 62  # the index of the newest entry of HPACK's dynamic table
TABLE_SIZE = 4096   # bytes of that table, unless the peer announces less
ENTRY_EXTRA = 32    # bytes that an entry takes beside its texts

ERRORS = ["NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR",
          "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED",
          "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL",
          "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM",
          "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED"]


# ---- Frames ----

def frame(kind, stream, payload=b"", flags=0):
    return struct.pack(">I", len(payload))[1:] + \
        struct.pack(">BBI", kind, flags, stream) + payload


def opening():
    """The first bytes of a client."""
    return PREFACE + frame(SETTINGS, 0)


def goaway(data):
    """The error of the GOAWAY at the end of a connection, and its text for
    people; None without such a frame. 'data' may begin amid a frame, so the
    frame is searched by its head."""
    head = frame(GOAWAY, 0)[3:]  # behind the size
    for at in range(len(data) - 16, -1, -1):
        size = int.from_bytes(data[at:at + 3], "big")
        if data[at + 3:at + 9] == head and 8 <= size < 1024:
            error = int.from_bytes(data[at + 13:at + 17], "big")
            if error < len(ERRORS):
                text = data[at + 17:at + 9 + size].decode(errors="replace")
                return f"{ERRORS[error]} {text}".strip()
    return None


# ---- HPACK ----

def integer(value, bits, first=0):
    """An integer with a prefix of so many bits; 'first' has the byte's higher
    bits."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([first | value])
    out, value = bytearray([first | most]), value - most
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    out.append(value)
    return bytes(out)


def text(value, huffman=False):
    """A text; with 'huffman' the bytes are sent as codes, unchecked."""
    return integer(len(value), 7, 128 if huffman else 0) + value


def literal(name, value):
    """A header that isn't entered into the table."""
    return b"\0" + text(name) + text(value)


def entered(name, value):
    """A header for the table, where it becomes FIRST_DYNAMIC."""
    return b"\x40" + text(name) + text(value)


def index(number):
    return integer(number, 7, 128)


def table_size(size):
    return integer(size, 5, 32)


def call(path, *more):
    """The headers of a call of gRPC."""
    return b"".join([
        literal(b":method", b"POST"), literal(b":scheme", b"http"),
        literal(b":path", path), literal(b":authority", b"localhost"),
        literal(b"content-type", b"application/grpc"),
        literal(b"te", b"trailers"), *more])


# ---- gRPC and protobuf ----

def message(payload):
    return struct.pack(">BI", 0, len(payload)) + payload


def varint(value):
    value %= 1 << 64
    out = bytearray()
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    out.append(value)
    return bytes(out)


def zigzag(value):
    return (value << 1) ^ (value >> 63)


def number(field, value):
    return varint(field << 3) + varint(value)


def piece(field, payload):
    return varint(field << 3 | 2) + varint(len(payload)) + payload


def packed(field, *values):
    return piece(field, b"".join(varint(value) for value in values))
