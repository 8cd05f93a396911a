# SPDX-License-Identifier: MIT
"""attacks.py - the bytes of each attack. An attack is an object of ATTACKS: its
text describes it, its cost for the attacker, and the bound that ends it;
its function is the generator of one connection (attacker.py)."""

import itertools
import os
import ssl

import http2
from http2 import (CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM,
                   FRAME_MAX, HEADERS, PING, PRIORITY, RST_STREAM, SETTINGS,
                   WINDOW_UPDATE, frame)

HTTP2 = ("listen", "rls")  # listeners that speak it
PIECE = 16000              # bytes, or a little less, that are sent at once
CALLS = {"listen": b"/weir.v1.Root/Link",
         "rls": b"/envoy.service.ratelimit.v3.RateLimitService/"
                b"ShouldRateLimit"}
HEALTH = b"/grpc.health.v1.Health/Check"
UNKNOWN_FRAME = 0xFA
ATTACKS = {}


class Attack:
    def __init__(self, steps, variants, listeners, connections, deaf, raw,
                 processes, cert):
        self.name, self.about = steps.__name__, steps.__doc__
        self.steps = steps
        self.variants = variants    # the first is the attack itself
        self.listeners = listeners  # "root", "agent" -> their listeners; the
                                    # attack is meant for the first
        self.connections = connections  # at once, of all processes
        self.deaf = deaf            # variants that read no answers
        self.raw = raw              # variants without a handshake of TLS
        self.processes = processes
        self.cert = cert            # name in its certificate


def attack(variants, listeners, connections, deaf=(), raw=(), processes=2,
           cert=None):
    def enter(steps):
        ATTACKS[steps.__name__] = Attack(
            steps, variants, listeners, connections, deaf, raw, processes,
            cert)
        return steps
    return enter


GRPC = {"root": ["listen"], "agent": ["rls"]}
ALL = {"root": ["listen", "http"], "agent": ["http", "resp", "rls"]}
HTTP = {"root": ["http"], "agent": ["http"]}


def repeated(unit):
    """As many units as fit into one piece."""
    return unit * max(1, PIECE // len(unit))


def ids():
    """The stream numbers of a client, each once."""
    return itertools.takewhile(lambda stream: stream < 1 << 31,
                               itertools.count(1, 2))


def block(stream, headers, flags=END_STREAM):
    """A block of headers, in as many frames as it needs."""
    parts = [headers[at:at + FRAME_MAX]
             for at in range(0, len(headers), FRAME_MAX)]
    kinds = [HEADERS] + [CONTINUATION] * (len(parts) - 1)
    ends = [0] * (len(parts) - 1) + [END_HEADERS]
    return b"".join(
        frame(kind, stream, part, end | (flags if kind == HEADERS else 0))
        for kind, part, end in zip(kinds, parts, ends))


# ---- HPACK ----

def bomb_refer():
    """4 KB into the table, then one byte for each 4 KB of decoded header."""
    size = http2.TABLE_SIZE - http2.ENTRY_EXTRA - 1
    enter = http2.call(b"/x", http2.entered(b"x", b"a" * size))
    refer = http2.index(http2.FIRST_DYNAMIC) * 12000
    first = True
    for stream in ids():
        yield block(stream, enter + refer if first else
                    http2.call(b"/x") + refer)
        first = False


def bomb_small():
    """As many headers as fit: 3 bytes each, 32 more in the receiver's memory.
    """
    headers = http2.call(b"/x") + http2.literal(b"a", b"") * 16000
    for stream in ids():
        yield block(stream, headers)


def bomb_continuation():
    """A block that never ends."""
    yield frame(HEADERS, 1, http2.call(b"/x"), END_STREAM)
    part = frame(CONTINUATION, 1, http2.literal(b"a", b"") * 4000)
    while True:
        yield part


def bomb_empty():
    """A block that never ends, of empty frames."""
    yield frame(HEADERS, 1, http2.call(b"/x"), END_STREAM)
    part = repeated(frame(CONTINUATION, 1))
    while True:
        yield part


def bomb_huffman():
    """One header over many frames; 5 bits make a letter."""
    size = 1 << 20
    headers = http2.call(b"/x") + b"\0" + http2.text(b"a") + \
        http2.text(bytes(size), huffman=True)
    for stream in ids():
        yield block(stream, headers)


def bomb_sizes():
    """Changes of the table's size, which cost 1 to 3 bytes each."""
    changes = (http2.table_size(0) + http2.table_size(4096)) * 4000
    for stream in ids():
        yield block(stream, changes + http2.call(b"/x"))


BOMBS = {"refer": bomb_refer, "small": bomb_small,
         "continuation": bomb_continuation, "empty": bomb_empty,
         "huffman": bomb_huffman, "sizes": bomb_sizes}


@attack(list(BOMBS), GRPC, connections=24)
def hpack_bomb(spec):
    """Blocks of headers that are small on the wire and large in memory, or
    never end, over 24 connections without a certificate.

    Costs the attacker: 16 KB a block that is 48 MB decoded ('refer').
    Ended by: WEIR_H2_HEADERS_MAX. Decoding stops there, and the connection
    ends."""
    yield http2.opening()
    yield from BOMBS[spec["variant"]]()


# ---- Frames ----

def with_call(spec, unit):
    """Frames on the stream of a call that doesn't end."""
    yield block(1, http2.call(CALLS[spec["listener"]]), flags=0)
    while True:
        yield unit


def flood_reset(spec):
    """Calls that are cancelled as they begin (rapid reset)."""
    call = http2.call(CALLS[spec["listener"]])
    many = PIECE // (len(call) + 9 + 13)
    streams = ids()
    while True:
        some = list(itertools.islice(streams, many))
        if not some:
            return
        yield b"".join(block(stream, call, flags=0) + frame(
            RST_STREAM, stream, CANCEL.to_bytes(4, "big"))
            for stream in some)


def flood_priority(spec):
    streams = ids()
    while True:
        some = list(itertools.islice(streams, PIECE // 14))
        if not some:
            return
        yield b"".join(frame(PRIORITY, stream, b"\0\0\0\0\x10")
                       for stream in some)


def flood_tiny(spec):
    """One byte a record of TLS, or a segment of TCP."""
    for byte in itertools.cycle(frame(PING, 0, b"weir-pin")):
        yield bytes([byte])


def flood_unfinished(spec):
    """Messages of the greatest length that never end, in a call that needs no
    credential at an agent."""
    call = http2.call(HEALTH)
    data = frame(DATA, 0, bytes(FRAME_MAX))
    for stream in itertools.islice(ids(), 64):
        yield block(stream, call, flags=0)
        yield frame(DATA, stream, b"\0\0\x3f\xff\xff")
        for _ in range((4 << 20) // FRAME_MAX - 1):
            yield data[:5] + stream.to_bytes(4, "big") + data[9:]


FLOODS = {
    "ping": repeated(frame(PING, 0, b"weir-pin")),
    "settings": repeated(frame(SETTINGS, 0)),
    "settings_full": repeated(frame(SETTINGS, 0,
                                    b"\0\x04\0\0\xff\xff" * 20)),
    "window_update": repeated(frame(WINDOW_UPDATE, 0, b"\0\0\0\x01")),
    "unknown": repeated(frame(UNKNOWN_FRAME, 0)),
}
ON_STREAM = {
    "empty_data": repeated(frame(DATA, 1)),
    "one_byte_data": repeated(frame(DATA, 1, b"\0")),
}
MADE = {"reset": flood_reset, "priority": flood_priority,
        "tiny_records": flood_tiny, "unfinished": flood_unfinished}


@attack(["reset", *FLOODS, *ON_STREAM, "priority", "tiny_records",
         "unfinished"], GRPC, connections=24)
def h2_frames(spec):
    """Frames that cost next to nothing and have the receiver do something:
    calls that are cancelled as they begin, PING, SETTINGS, PRIORITY,
    WINDOW_UPDATE, DATA without or with one byte, frames of no known type,
    records of one byte; and messages that never end ('unfinished'); over 24
    connections.

    Costs the attacker: 9 to 30 bytes a frame.
    Ended by: WEIR_H2_WORK_FACTOR: a connection that causes more work than that
    for each byte it sends is ended; and WEIR_RATION_PART: all of them together
    have that part of a processor."""
    variant = spec["variant"]
    yield http2.opening()
    if variant in ON_STREAM:
        yield from with_call(spec, ON_STREAM[variant])
    if variant in MADE:
        yield from MADE[variant](spec)
    while variant in FLOODS:
        yield FLOODS[variant]


# ---- Connections ----

def client_hello():
    """The first bytes of a client of TLS."""
    told, said = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    client = context.wrap_bio(told, said, server_hostname="localhost")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return said.read()


HELLO = client_hello()


@attack(["full", "hello", "churn"], ALL, connections=64,
        raw=["hello", "churn"])
def handshakes(spec):
    """Connections that are made and closed, as fast as they can be: with a
    whole handshake of TLS ('full'), with the first half of one ('hello'), or
    with nothing ('churn', and 'full' in plain text).

    Costs the attacker: a handshake, as much as the server; or three packets
    and, for 'hello', 300 bytes, while the server signs.
    Ended by: WEIR_RATION_PART: handshakes are turns like others, in equal
    parts of each address, behind authenticated peers."""
    if spec["variant"] == "hello":
        yield HELLO
        yield 0.05


@attack(["garbage", "hello"], ALL, connections=64, raw=["garbage", "hello"])
def log_flood(spec):
    """Connections that send bytes that aren't the protocol, each good for a
    line in the log: noise, and a hello cut short.

    Costs the attacker: a connection and 100 bytes for 400 bytes of log.
    Ended by: a line a kind and second, with the number of lines left out."""
    yield b"\x16\x03\x01\x00\x20" + os.urandom(32) \
        if spec["variant"] == "hello" else os.urandom(100)
    yield 0.02


# ---- Slowness ----

HEADS = {
    "listen": http2.opening(),
    "rls": http2.opening(),
    "http": b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    "resp": b"*2\r\n$4\r\nECHO\r\n$16000\r\n",
}
UNREAD = {  # asked for again and again
    "http": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "resp": b"*2\r\n$4\r\nECHO\r\n$1000\r\n" + b"a" * 1000 + b"\r\n",
    "listen": frame(PING, 0, b"weir-pin"),
    "rls": frame(PING, 0, b"weir-pin"),
}
EVENTS = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"


def trickle(data):
    for byte in itertools.chain(data, itertools.repeat(ord("a"))):
        yield bytes([byte])
        yield 0.1


@attack(["head", "half", "unread", "events"], ALL, connections=500,
        deaf=["unread", "events"], raw=["half"])
def loris(spec):
    """Connections that take as much time as they may: the head of a request
    byte by byte ('head'), half a handshake ('half'), requests whose answers
    aren't read ('unread'), a stream of events that isn't read ('events').

    Costs the attacker: a socket and ten bytes a second.
    Ended by: WEIR_UNAUTHENTICATED_MAX and WEIR_TLS_HANDSHAKE_MAX seconds;
    WEIR_CONN_SLOW_MAX and WEIR_STREAM_QUEUE_MAX for answers;
    WEIR_PAGE_STREAMS_MAX for streams."""
    variant, listener = spec["variant"], spec["listener"]
    if variant == "head":
        yield from trickle(HEADS[listener])
    if variant == "half":
        yield HELLO[:len(HELLO) // 2]
        yield None
    if variant == "events":
        yield EVENTS
        yield None
    if listener in HTTP2:
        yield http2.opening()
    piece = repeated(UNREAD[listener])
    while True:
        yield piece


@attack(["idle", "shaken"], ALL, connections=1200, raw=["idle"])
def idle(spec):
    """Connections that send nothing, with or without a handshake, as many as
    the attacker can have.

    Costs the attacker: a socket each.
    Ended by: the ration: the address with most connections loses its oldest;
    and a descriptor is kept in reserve (io/accept.h)."""
    yield None


# ---- HTTP ----

BODY = b"x" * 65536


@attack(["import", "small"], HTTP, connections=60)
def bodies(spec):
    """Requests with bodies as large as their path takes, without a
    credential, over 60 connections.

    Costs the attacker: its bytes.
    Ended by: the role, which is checked before the body is read."""
    path, size = (b"/v1/quotas:import", 64 << 20) \
        if spec["variant"] == "import" else (b"/v1/take", 64 << 10)
    yield (b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
           b"application/json\r\nContent-Length: %d\r\n\r\n" % (path, size))
    for _ in range(size // len(BODY) - 1):
        yield BODY
    yield None


# ---- Lies ----

LIE = 1 << 62        # units
PACE = 1 << 40       # units in 2^33 ns, the most that a report may hold
SESSION, SLOT = 7, 1


def to_root(body):
    """A message of the link: DATA on its stream."""
    return frame(DATA, 1, http2.message(
        http2.number(1, SESSION) + http2.piece(*body)))


def hello():
    return to_root((2, http2.number(1, 1) + http2.piece(2, os.urandom(16)) +
                    http2.piece(3, b"liar")))


def report(spec, number, passed, pace, fill):
    """A report; the first one announces the quota."""
    announce = http2.piece(6, http2.number(1, SLOT) +
                           http2.piece(2, spec["quota"].encode()) +
                           http2.number(3, spec["created"]) +
                           http2.number(6, http2.zigzag(fill)))
    counts = http2.packed(1, SLOT) + http2.packed(2, http2.zigzag(passed))
    if pace:
        counts += http2.packed(7, 0) + http2.packed(8, pace)
    return to_root((3, http2.number(1, number) +
                    http2.number(2, spec["created"]) +
                    (announce if number == 1 else b"") +
                    http2.piece(7, counts)))


@attack(["total", "pace", "fill"], {"root": ["listen"]}, connections=1,
        cert="limiter")
def liar(spec):
    """A limiter with the role 'take' that claims to have passed 2^62 units
    ('total'), to go on passing as many as a report can hold ('pace'), or to
    have seen a bucket that full before ('fill', at a root just started).

    Costs the attacker: a credential, and one report.
    Ended by: max_debt, the quota's field: it bounds one limiter's part of a
    fill."""
    lie = {"passed": LIE if spec["variant"] == "total" else 1,
           "pace": PACE if spec["variant"] == "pace" else 0,
           "fill": LIE if spec["variant"] == "fill" else 0}
    yield http2.opening() + block(1, http2.call(CALLS["listen"]), flags=0) + \
        hello()
    yield 0.2
    for number in itertools.count(1):
        yield report(spec, number, **lie)
        yield 0.2
