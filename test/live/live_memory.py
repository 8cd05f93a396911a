#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_memory.py - memory that fails: allocations of a root, of an agent and of
a program with libweir fail, one by one and each k-th, under requests of every
kind.

A request is answered, refused because there is no memory, or its connection is
closed; the process lives; an edit that was answered is kept, and one that was
refused isn't there. Afterwards everything works as before, and counts agree.

WEIR_DEEP=1: every allocation of every request, and every prime below
PRIMES_BELOW."""

import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import unittest
from pathlib import Path

import plain_grpc
from failing_memory import FAILED, FailingMemory, describe, read_map
from live_agent import JSON, Resp
from live_cli import WEIR, Case
from live_fleet import LOAD, Fleet
from patience import free_port, until, until_equal
from plain_grpc import field

DEEP = bool(os.environ.get("WEIR_DEEP"))
EACH = 5000  # allocations of one request that fail, each alone, at most
PRIMES_BELOW = 100 if DEEP else 12
CALL = "/weir.v1.Root/Call"
CAPACITY = "/doorman.Capacity/GetCapacity"
RLS = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
RLQS = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/" \
    "StreamRateLimitQuotas"
HEALTH = "/grpc.health.v1.Health/Check"
RESOURCE_EXHAUSTED, UNAVAILABLE = 8, 14
PATIENCE = 10  # seconds for an answer; none takes a second
# Outcomes of a request; any other is a fault.
DONE, REFUSED, CLOSED = "done", "refused", "closed"
FAULT, DIED = "fault", "died"


def primes(below):
    return [n for n in range(2, below)
            if all(n % k for k in range(2, int(n ** 0.5) + 1))]


def members(value, path=""):
    """The paths of all members of a JSON value."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield f"{path}.{name}"
            yield from members(member, f"{path}.{name}")
    elif isinstance(value, list) and value:
        yield from members(value[0], f"{path}[]")


def shape(answer):
    """What every good answer of a kind has: the members of an object, the
    names of metrics, the end of a page."""
    if not isinstance(answer, str):
        return set()
    if answer.startswith("# HELP"):
        return set(re.findall("^[a-z_]+", answer, re.MULTILINE))
    if answer.startswith("<"):
        return set(re.findall("</[a-z]+>", answer))
    try:
        return set(members(json.loads(answer)))
    except ValueError:
        return set()


# ---- Requests ----


class Fault(Exception):
    """An answer that is neither right nor a refusal for want of memory."""


def ask_http(address, method, path, body=None, wanted=(200,), token=None):
    """Returns the outcome and the answer's body, if it is done."""
    headers = JSON | ({"Authorization": f"Bearer {token}"} if token else {})
    link = http.client.HTTPConnection(address, timeout=PATIENCE)
    try:
        link.request(method, path, body, headers)
        answer = link.getresponse()
        text = answer.read().decode()
    except (ConnectionError, http.client.HTTPException):
        return CLOSED, None
    finally:
        link.close()
    if answer.status == 503:
        return REFUSED, None
    if answer.status not in wanted:
        raise Fault(f"{method} {path}: {answer.status} {text}")
    try:
        if "json" in answer.getheader("Content-Type"):
            json.loads(text)
    except ValueError:
        raise Fault(f"{method} {path}: no JSON: {text}") from None
    return DONE, text


def ask_events(address, path):
    """A stream of events, up to its first."""
    host, port = address.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), PATIENCE) as link:
            link.sendall(f"GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: "
                         "text/event-stream\r\n\r\n".encode())
            got = b""
            while b"data:" not in got:
                part = link.recv(65536)
                if not part:
                    return CLOSED, None
                got += part
                if got.startswith(b"HTTP/1.1 503"):
                    return REFUSED, None
                if len(got) > 12 and not got.startswith(b"HTTP/1.1 200"):
                    raise Fault(f"{path}: {got}")
    except ConnectionError:
        return CLOSED, None
    return DONE, None


def ask_grpc(address, path, *messages):
    status, text, answers = plain_grpc.call(address, path, *messages)
    if status is None:
        return CLOSED, None
    if status in (RESOURCE_EXHAUSTED, UNAVAILABLE):
        return REFUSED, None
    if status != 0 or not answers:
        raise Fault(f"{path}: {status} {text} {answers}")
    return DONE, answers


def ask_call(address, method, path, body=""):
    """An API request on the gRPC port, as the command line makes it."""
    outcome, answers = ask_grpc(address, CALL, field(1, method) +
                                field(2, path) + field(3, body))
    if outcome != DONE:
        return outcome, None
    status = dict(plain_grpc.read(answers[0])).get(1)
    if status == 503:
        return REFUSED, None
    if status not in (200, 201):
        raise Fault(f"Call {method} {path}: {answers}")
    text = b"".join(value for answer in answers
                    for index, value in plain_grpc.read(answer) if index == 2)
    json.loads(text)
    return DONE, text.decode()


def ask_resp(address, *words, wanted=None, before=()):
    """'before': commands that are sent first, on the same connection."""
    try:
        link = Resp(address)
    except ConnectionError:
        return CLOSED, None
    try:
        for command in before:
            if link.ask(*command).startswith("-OOM "):
                return REFUSED, None
        got = link.ask(*words)
    except (EOFError, ConnectionError):
        return CLOSED, None
    finally:
        link.close()
    if isinstance(got, str) and got.startswith("-"):
        if got.startswith("-OOM "):
            return REFUSED, None
        raise Fault(f"{words}: {got}")
    if wanted is not None and got != wanted:
        raise Fault(f"{words}: {got}")
    return DONE, got


def descriptor(*pairs):
    return b"".join(field(1, field(1, key) + field(2, value))
                    for key, value in pairs)


LEASE = field(1, "client") + field(2, field(1, "leased") + field(2, 1) +
                                   field(4, 10.0))
LIMIT = field(1, "shop") + field(2, descriptor(("path", "/cart")))
USAGE = field(1, "shop") + field(2, field(1, descriptor(("path", "/cart"))) +
                                 field(2, field(1, 1)) + field(3, 5))
BY_JSON = json.dumps({"domain": "shop", "descriptors": [
    {"entries": [{"key": "path", "value": "/cart"}]}]})


def get(path):
    return lambda at: ask_http(at["http"], "GET", path)


def post(path, body):
    return lambda at: ask_http(at["http"], "POST", path, body, (200, 429))


def resp(*words):
    return lambda at: ask_resp(at["resp"], *words)


# Kind of request -> a function that makes one at these listeners.
OF_BOTH = {
    "healthz": get("/healthz"),
    "status": get("/v1/status"),
    "usage": get("/v1/usage"),
    "live": get("/v1/live?watch=q"),
    "recent": get("/v1/recent?name=q"),
    "metrics": get("/metrics"),
    "page": get("/"),
    "events": lambda at: ask_events(at["http"], "/v1/events"),
    "resp ping": resp("PING"),
    "resp hello": resp("HELLO", "3"),
    "resp take": resp("WEIR.TAKE", "q"),
    "resp exec": lambda at: ask_resp(
        at["resp"], "EXEC", before=(["MULTI"], ["WEIR.PEEK", "q"])),
    "resp throttle": resp("CL.THROTTLE", "k", 5, 9, 60),
}
OF_ROOT = OF_BOTH | {
    "quotas": get("/v1/quotas"),
    "export": get("/v1/quotas:export"),
    "log": get("/v1/log"),
    "debug": get("/debug/status"),
    "call": lambda at: ask_call(at["listen"], "GET", "/v1/quotas/q"),
    "doorman": lambda at: ask_grpc(at["listen"], CAPACITY, LEASE),
}
OF_AGENT = OF_BOTH | {
    "take": post("/v1/take", '{"name": "q"}'),
    "enter": post("/v1/enter", '{"name": "permits"}'),
    "json": post("/json", BY_JSON),
    "rls": lambda at: ask_grpc(at["rls"], RLS, LIMIT),
    "rlqs": lambda at: ask_grpc(at["rls"], RLQS, USAGE),
    "health": lambda at: ask_grpc(at["rls"], HEALTH, b""),
}


class Edits:
    """Edits of one quota, and which of them may be in the store."""

    def __init__(self, make):
        self.make = make
        self.number = self.acknowledged = 0
        self.unanswered = set()

    def request(self, at):
        self.number += 1
        outcome, answer = self.make(at, json.dumps(
            {"limit": f"{self.number}/h"}))
        if outcome == DONE:
            self.acknowledged = self.number
        elif outcome == CLOSED:
            self.unanswered.add(self.number)
        return outcome, answer

    def check(self, case, limit):
        """'limit' is what a root has."""
        number = int(limit.removesuffix("/h"))
        case.assertGreaterEqual(number, self.acknowledged)
        if number > self.acknowledged:
            case.assertIn(number, self.unanswered)


EDITED = "/v1/quotas/edited"
EDITS = {
    "edit by HTTP": lambda at, body: ask_http(at["http"], "PATCH", EDITED,
                                              body, (200, 201)),
    "edit by Call": lambda at, body: ask_call(at["listen"], "PATCH", EDITED,
                                              body),
}


# ---- A process whose memory fails ----


class Process:
    """A `weir serve` or `weir agent` whose allocations a test lets fail."""

    def __init__(self, case, name, *arguments):
        self.case, self.name, self.arguments = case, name, arguments
        self.memory = FailingMemory(case.path(f"{name}.memory"))
        self.log = case.path(f"{name}.log")
        self.shapes = {}  # kind -> what a good answer has
        self.start()

    def learn(self, requests):
        """Makes each request twice while memory is good. The first may change
        what others show; the second shows what a good answer has."""
        for _ in range(2):
            for kind, request in requests.items():
                outcome, answer = request(self.ports)
                if outcome != DONE:
                    raise AssertionError(f"{self.name}, {kind}: {outcome}")
                self.shapes[kind] = shape(answer)

    def start(self):
        ports = Path(self.case.path(f"{self.name}.ports"))
        ports.unlink(missing_ok=True)
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(
                [WEIR, *self.arguments, "--port-file", ports], stderr=log,
                env=self.memory.env(self.case.env))
        until(f"{self.name}'s port file", lambda: ports.exists() or
              self.process.poll() is not None)
        self.check_alive()
        self.ports = dict(line.split("=", 1) for line in
                          ports.read_text().split())
        self.map = read_map(self.process.pid)

    def sites(self, last=3):
        """Where allocations failed, for people."""
        return "\n".join(describe(self.map, frames) for frames in
                         self.memory.sites()[-last:])

    def check_alive(self):
        status = self.process.poll()
        if status is not None:
            said = Path(self.log).read_text()[-3000:]
            raise AssertionError(f"{self.name} ended with {status}:\n{said}\n"
                                 f"{self.sites()}")

    def try_one(self, kind, request, first, every=0):
        """One request while allocations fail; returns its outcome, and how
        many failed."""
        self.memory.fail(first, every)
        said = ""
        try:
            outcome, answer = request(self.ports)
        except Exception as error:
            outcome, answer, said = FAULT, None, f"{error!r}"
        failed = self.memory.stop()
        if self.process.poll() is not None:
            outcome = DIED
            said += f" ended with {self.process.poll()}: " + \
                Path(self.log).read_text()[-600:]
        elif outcome == DONE and self.shapes[kind] - shape(answer):
            outcome = FAULT
            said = f"without {self.shapes[kind] - shape(answer)}"
        if outcome in (FAULT, DIED):
            self.case.note_fault(
                self, f"{self.name}, {kind}: {outcome}, {said}",
                f"allocation {first} each {every}, {failed} failed")
        if outcome == DIED:
            self.start()
        return outcome, failed

    def close(self):
        """Ends it; with a sanitizer it then reports what it has lost."""
        if self.process.poll() is None:
            self.process.terminate()
        status = self.process.wait(60)
        self.memory.close()
        if status != 0:
            raise AssertionError(Path(self.log).read_text()[-5000:])


class Memory(Case):
    def setUp(self):
        super().setUp()
        self.processes, self.faults = [], {}
        self.store = self.make_store()

    def tearDown(self):
        for process in self.processes:
            process.close()
        super().tearDown()

    def note_fault(self, process, what, where):
        key = re.sub(r"[0-9]+|/tmp/\S+", "#", what)[:200]
        self.faults[key] = self.faults.get(key, 0) + 1
        if self.faults[key] == 1:
            print(f"FAULT {what[:600]}\n  {where}\n{process.sites()}",
                  flush=True)

    def add(self, name, *arguments):
        self.processes.append(Process(self, name, *arguments))
        return self.processes[-1]

    def add_root(self):
        root = self.add("root", "serve", "--store", self.store, "--listen",
                        f"127.0.0.1:{free_port()}", "--http", "127.0.0.1:0",
                        "--resp",
                        "127.0.0.1:0")
        for quota in (["q", "limit=1000000/h", "low_burst=1000000",
                       "high_burst=1000000"],
                      ["permits", "kind=concurrency", "limit=100000"],
                      ["shop/*", "limit=1000/s"],
                      ["leased", "limit=100/s", "sharing=leased"]):
            self.ok("quota", "set", *quota, root=root.ports["listen"])
        return root

    def add_agent(self, root):
        agent = self.add("agent", "agent", "--roots", root.ports["listen"],
                         "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0",
                         "--rls", "127.0.0.1:0")
        until("ready", lambda: "ready: the quotas" in
              Path(agent.log).read_text())
        return agent

    def sweep_each(self, process, requests):
        """Each allocation of a request fails alone, until the request makes
        fewer."""
        process.learn(requests)
        for kind, request in requests.items():
            outcomes = dict.fromkeys([DONE, REFUSED, CLOSED, FAULT, DIED], 0)
            for n in range(1, EACH + 1):
                outcome, failed = process.try_one(kind, request, n)
                outcomes[outcome] += 1
                if failed == 0:
                    break
            print(process.name, kind, n, outcomes)
            self.check_good(process, {kind: request})

    def sweep_primes(self, process, requests):
        process.learn(requests)
        for k in primes(PRIMES_BELOW):
            outcomes = dict.fromkeys([DONE, REFUSED, CLOSED, FAULT, DIED], 0)
            for kind, request in requests.items():
                outcome, _ = process.try_one(kind, request, k, k)
                outcomes[outcome] += 1
            print(process.name, "every", k, outcomes)
        self.check_good(process, requests)

    def check_good(self, process, requests):
        for kind, request in requests.items():
            self.assertEqual(request(process.ports)[0], DONE,
                             (process.name, kind))


class Each(Memory):
    def test_root(self):
        root = self.add_root()
        self.sweep_each(root, OF_ROOT)
        self.assertEqual(self.faults, {})

    def test_agent(self):
        agent = self.add_agent(self.add_root())
        self.sweep_each(agent, OF_AGENT)
        self.assertEqual(self.faults, {})


    def test_edits(self):
        """Acknowledged edits are kept, refused ones aren't made."""
        root = self.add_root()
        for kind, make in EDITS.items():
            edits = Edits(make)
            self.sweep_each(root, {kind: edits.request})
            self.check_edits(root, edits)
        self.assertEqual(self.faults, {})

    def check_edits(self, root, edits):
        """By the root itself, and after it was killed."""
        edits.check(self, self.limit(root))
        root.process.kill()
        root.process.wait()
        root.start()
        edits.check(self, self.limit(root))

    def limit(self, root):
        return json.loads(until("the quota", lambda: get(EDITED)(
            root.ports))[1])["limit"]


class Tokens(Memory):
    GOOD, WRONG = "a-token-that-is-known", "a-token-that-is-wrong"

    def test_root(self):
        """A known token is never refused as unknown, and a wrong one never
        taken for the one of the request before."""
        credentials = Path(self.path("credentials"))
        credentials.touch(0o600)
        credentials.write_text(f"read token reader {self.GOOD}\n")
        root = self.add("root", "serve", "--store", self.store, "--listen",
                        "127.0.0.1:0", "--http", "127.0.0.1:0",
                        "--credentials", credentials)

        def good(at):
            return ask_http(at["http"], "GET", "/v1/quotas", token=self.GOOD)

        def wrong(at):
            return ask_http(at["http"], "GET", "/v1/quotas", wanted=(401,),
                            token=self.WRONG)
        until("ready", lambda: get("/readyz")(root.ports)[0] == DONE)
        for n in range(1, EACH):
            self.check_good(root, {"good": good})
            root.shapes["wrong"] = set()
            _, failed = root.try_one("wrong", wrong, n)
            if failed == 0:
                break
        self.sweep_each(root, {"good": good})
        self.assertEqual(self.faults, {})


class Library(unittest.TestCase):
    """A program with libweir."""

    def setUp(self):
        self.fleet = Fleet()
        self.addCleanup(self.fleet.close)
        self.fleet.add_roots(2)
        self.fleet.set("q", "limit=1000000/h", "low_burst=1000000",
                       "high_burst=1000000")
        self.memory = FailingMemory(self.fleet.folder / "memory")
        self.addCleanup(self.memory.close)

    def test_counts_agree(self):
        """One root dies and comes back while memory fails: the program goes
        on, and afterwards the other root has each unit."""
        root, other = self.fleet.roots
        limiter = self.fleet.add_limiter(["q=2000"], ready=True,
                                         env=self.memory.env())
        self.fleet.wait_linked()
        for k in primes(8):
            self.memory.fail(k, k)
            other.kill()
            other.start()
            until("allocations that fail", lambda: self.memory.get(FAILED) > 2)
            self.memory.stop()
            self.assertIsNone(limiter.process.poll())
            self.fleet.wait_linked()
        limiter.tell("rest")
        until("the last bin", lambda: limiter.told("rest"))
        _, passed, _, lost = limiter.seen()["seen"]["q"]
        self.assertEqual(lost, 0)
        until_equal("the root's count", passed,
                    lambda: root.usage().get("q", {}).get("passed"))

    def test_open(self):
        """Each allocation from the program's start on fails alone."""
        for n in range(1, EACH):
            self.memory.fail(n)
            done = subprocess.run(
                [LOAD, self.fleet.addresses(), "opener", "1000", "q=10"],
                stdin=subprocess.DEVNULL, text=True, capture_output=True,
                env=self.memory.env(), timeout=PATIENCE)
            failed = self.memory.stop()
            self.assertGreaterEqual(done.returncode, 0, (n, done.stderr))
            if failed == 0:
                break


class Primes(Memory):
    def test_root(self):
        root = self.add_root()
        self.sweep_primes(root, OF_ROOT)
        self.assertEqual(self.faults, {})

    def test_agent(self):
        agent = self.add_agent(self.add_root())
        self.sweep_primes(agent, OF_AGENT)
        self.assertEqual(self.faults, {})


if __name__ == "__main__":
    unittest.main(verbosity=2)
