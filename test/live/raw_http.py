# SPDX-License-Identifier: MIT
"""raw_http.py - bytes for a listener of HTTP/1.1, and its answers: requests
that no client library would write."""

import json
import socket

from patience import PATIENCE

HOST = b"Host: localhost\r\n"
TYPE = b"Content-Type: application/json\r\n"


def begin(method, path, *headers):
    """The head of a request."""
    return b"".join([method, b" ", path, b" HTTP/1.1\r\n", HOST, TYPE,
                     *headers, b"\r\n"])


# Requests in which two servers could find different ends, or no end. No body
# is an edit: "x" is no JSON.
REFUSED = [
    (400, begin(b"POST", b"/", b"Content-Length: 1\r\n",
                b"Content-Length: 2\r\n") + b"xx"),
    (400, begin(b"POST", b"/", b"Content-Length: 1\r\n",
                b"Content-Length: 1\r\n") + b"x"),
    (400, begin(b"POST", b"/", b"Content-Length: 1, 1\r\n") + b"x"),
    (400, begin(b"POST", b"/", b"Content-Length: +12\r\n") + b"x" * 12),
    (400, begin(b"POST", b"/", b"Content-Length: -1\r\n") + b"x"),
    (400, begin(b"POST", b"/", b"Content-Length: 0x1\r\n") + b"x"),
    (400, begin(b"POST", b"/", b"Content-Length : 1\r\n") + b"x"),
    (400, begin(b"GET", b"/", b"X-Folded: a\r\n b\r\n")),
    (400, begin(b"GET", b"/", b"X : a\r\n")),
    (400, begin(b"GET", b"/", b"nothing\r\n")),
    (400, begin(b"GET", b"/", HOST)),
    (400, begin(b"GET", b"/", b"X: a\rb\r\n")),
    (400, b"GET / HTTP/1.1\nHost: localhost\n\n"),
    (400, b"GET / HTTP/1.1\r\nHost: localhost\n\r\n"),
    (400, b"GET / HTTP/1.1\r\n\r\n"),
    (400, b"GET  / HTTP/1.1\r\n" + HOST + b"\r\n"),
    (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\r\n"),
    (400, b"*1\r\n$4\r\nPING\r\n\r\n"),
    (505, b"GET / HTTP/2.0\r\n" + HOST + b"\r\n"),
    (411, begin(b"POST", b"/", b"Transfer-Encoding: chunked\r\n") +
     b"1\r\nx\r\n0\r\n\r\n"),
    (411, begin(b"POST", b"/", b"Content-Length: 1\r\n",
                b"Transfer-Encoding: chunked\r\n") + b"0\r\n\r\n"),
    (501, begin(b"POST", b"/", b"Transfer-Encoding: gzip\r\n")),
    (431, begin(b"GET", b"/", b"X: a\r\n" * 64)),
    (414, begin(b"GET", b"/" + b"a" * 13000)),
]


def connect(address):
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), PATIENCE)


def read_answers(link, count=None):
    """[(status, headers, body)] of 'count' answers, or of all until the end."""
    stream, answers = link.makefile("rb"), []
    while count is None or len(answers) < count:
        line = stream.readline()
        if not line:
            break
        status, headers = int(line.split()[1]), {}
        while (line := stream.readline().strip()):
            name, value = line.decode().split(": ", 1)
            headers[name] = value
        body = stream.read(int(headers.get("Content-Length", 0)))
        answers.append((status, headers, body))
    return answers


def exchange(address, data):
    """All answers to these bytes, until the listener ends the connection."""
    with connect(address) as link:
        link.sendall(data)
        return read_answers(link)


def check_strictness(case, address):
    """Each of REFUSED gets a problem, and no request behind it is answered."""
    behind = begin(b"GET", b"/healthz")
    for status, data in REFUSED:
        answers = exchange(address, data + behind)
        case.assertEqual([answer[0] for answer in answers], [status], data)
        check_problem(case, answers[0])
        case.assertEqual(answers[0][1]["Connection"], "close", data)
    # If no body could be read as the next request, the connection stays open.
    answers = exchange(address, begin(b"FOO", b"/") + begin(
        b"GET", b"/healthz", b"Connection: close\r\n"))
    case.assertEqual([answer[0] for answer in answers], [501, 200])
    check_problem(case, answers[0])
    answers = exchange(address, begin(
        b"FOO", b"/", b"Content-Length: 100\r\n") + behind)
    case.assertEqual([answer[0] for answer in answers], [501])


def check_problem(case, answer):
    status, headers, body = answer
    case.assertEqual(headers["Content-Type"], "application/problem+json")
    said = json.loads(body)
    case.assertEqual(said["status"], status)
    case.assertTrue(said["type"] and said["title"] and said["detail"], said)
