#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_python.py - the Python package against a real root: decisions, waiting
and being interrupted, permits, threads, fork, the two middlewares, and that
ctypes' layout of weir.h is a C compiler's."""

import asyncio
import ctypes
import functools
import gc
import json
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path
from unittest import mock
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from live import BUILD, HERE, SOURCE, Rooted  # noqa: E402

os.environ.setdefault("WEIR_LIBRARY", str(BUILD / "libweir.so.0"))
os.environ.setdefault("WEIR_EXACT_LIBRARY",
                      str(BUILD / "libweir-exact.so.0"))
import weir  # noqa: E402
from weir import _header, _library, asgi, wsgi  # noqa: E402

WEIR_H = SOURCE / "include" / "weir" / "weir.h"


class Header(unittest.TestCase):
    """weir.h is the one source of the declarations."""

    def test_the_package_has_what_declare_makes(self):
        made = subprocess.run([sys.executable, HERE / "python/declare.py",
                               WEIR_H], text=True, capture_output=True)
        self.assertEqual(made.stderr, "")
        self.assertEqual(
            made.stdout, Path(_header.__file__).read_text(),
            "make it anew: declare.py include/weir/weir.h >weir/_header.py")

    def test_the_compiler_agrees(self):
        wanted = {}
        for tag, struct in vars(_header).items():
            if not isinstance(struct, type) or \
                    not issubclass(struct, ctypes.Structure) or \
                    struct is ctypes.Structure:
                continue
            wanted[f"sizeof(struct {tag})"] = ctypes.sizeof(struct)
            for name, kind in struct._fields_:
                wanted[f"offsetof(struct {tag}, {name})"] = \
                    getattr(struct, name).offset
                wanted[f"sizeof(((struct {tag} *)0)->{name})"] = \
                    ctypes.sizeof(kind)
        for enum, prefix in ((_header.Error, "WEIR_"),
                             (_header.Verdict, "WEIR_"),
                             (_header.EventType, "WEIR_EVENT_"),
                             (_header.PermitOutcome, "WEIR_PERMIT_")):
            for one in enum:
                wanted[prefix + one.name] = one.value
        for name in ("NEVER", "NAME_MAX", "WEIGHT_MAX", "DEBT_MAX"):
            wanted["WEIR_" + name] = getattr(_header, name)
        checks = [f'_Static_assert((long long)({what}) == (long long)'
                  f'{number}ull, "{what}");' for what, number in
                  wanted.items()]
        checks = "\n".join(checks)
        done = subprocess.run(
            ["cc", "-std=c11", f"-I{SOURCE / 'include'}", "-x", "c", "-",
             "-fsyntax-only"], text=True, capture_output=True,
            input=f"#include <weir/weir.h>\n{checks}\n")
        self.assertEqual(done.stderr, "")
        self.assertGreater(len(wanted), 100)

    def test_nothing_is_forgotten(self):
        self.assertEqual([field[0] for field in _header.weir_status._fields_],
                         list(weir.Status._fields))

    def test_versions(self):
        self.assertIn(f'version = "{weir.__version__}"',
                      (HERE / "python/pyproject.toml").read_text())


class Case(Rooted):
    def setUp(self):
        self.limiter = self.open()

    def open(self, *arguments, **options):
        limiter = weir.Limiter(*(arguments or [self.roots]), **options)
        self.addCleanup(limiter.close)
        if not arguments:
            self.assertTrue(limiter.ready(60))
        return limiter

    def quota(self, name):
        """A quota with its fields known here; some milliseconds later all
        limiters have them."""
        quota = self.limiter.quota(name)
        self.assertFalse(quota.peek().unknown, name)
        return quota


class Decisions(Case):
    def test_take_peek_charge_refund(self):
        three = self.quota("three")
        reply = three.take(2)
        self.assertTrue(reply)
        self.assertEqual((reply.remaining, reply.fill, reply.quota,
                          reply.retry_after), (1, 2, "three", 0))
        self.assertTrue(three.peek() and three.peek())
        reply = three.take(2)
        self.assertFalse(reply)
        self.assertTrue(0 < reply.retry_after < 3600, reply)
        self.assertFalse(reply.never)
        reply = three.take(4)
        self.assertTrue(reply.never)
        self.assertEqual(reply.retry_after, math.inf)
        three.refund(2)
        three.charge(3)
        self.assertFalse(three.peek())
        self.assertIn("limited: three", repr(three.peek()))

    def test_settle(self):
        for settle, charge in ((self.quota("each/cost").settle,
                                self.quota("each/cost").charge),
                               (functools.partial(self.limiter.settle,
                                                  "each/named"),
                                functools.partial(self.limiter.charge,
                                                  "each/named"))):
            charged = settle(0, 2)
            self.assertEqual(charged, 2)
            charged = settle(charged, 1)
            charge(1)
            self.assertEqual(settle(charged, 2**40), 2**40)
            self.assertEqual(settle(2**40, 0), 0)
            for bad in (-1, 1), (1, 2**40 + 1), (2**64, 1):
                with self.assertRaises(ValueError, msg=bad):
                    settle(*bad)
        for name in "each/cost", "each/named":
            self.assertEqual(self.quota(name).peek().remaining, 3 - 1)
        self.assertFalse(self.limiter.charge("nobody's", 1))
        self.assertEqual(self.limiter.settle("nobody's", 3, 4), 3)

    def test_by_name(self):
        take = self.limiter.take
        self.assertEqual([bool(take("each/a")) for _ in range(4)],
                         [True, True, True, False])
        self.assertTrue(take("each/b"))
        self.assertTrue(take("nobody's").unknown)

    def test_strange_names_are_no_way_round(self):
        self.limiter.take("x" * 255)
        for name in ("", "x" * 65537, "a\nb", "a\0b", "shadow:three",
                     "\udcff"):
            for call in (self.limiter.take, self.limiter.enter,
                         self.limiter.quota):
                with self.assertRaises(ValueError, msg=repr(name)):
                    call(name)

    def test_strange_weights(self):
        three = self.limiter.quota("three")
        for weight in (-1, 2**32 + 1, 2**64, 2**64 + 1):
            for call in (three.take, three.peek, three.reserve, three.wait,
                         three.enter):
                with self.assertRaises(weir.Error) as caught:
                    call(weight)
                self.assertEqual(caught.exception.code,
                                 weir.ErrorCode.EINVAL)
        for units in (-1, 2**40 + 1, 2**64, 2**64 + 1):
            for call in (three.charge, three.refund):
                with self.assertRaises(ValueError):
                    call(units)
        with self.assertRaises(ctypes.ArgumentError):
            three.take(1.5)
        with self.assertRaises(ValueError):
            three.want(-1)
        three.want(5)

    def test_options(self):
        with self.assertRaisesRegex(ValueError, "range"):
            weir.Limiter("no port")
        with self.assertRaisesRegex(weir.Error, "/no/ca.pem.*No such file"):
            weir.Limiter(self.roots, tls_ca="/no/ca.pem")
        with self.assertRaisesRegex(TypeError, "memory_max"):
            weir.Limiter(self.roots, memory=1)
        # ctypes would take 2^32 + 1 for 1, and 7077 for an address.
        for option, value in (
                ("leases_max", 2**32 + 1), ("memory_max", -1),
                ("memory_max", "1"), ("memory_max", None),
                ("leases_max", 1.5), ("lease_priority", 2**63),
                ("lease_priority", -2**63 - 1), ("table_role", 2**32),
                ("roots", 7077), ("name", b"a"), ("name", "a\0b"),
                ("tls_ca", "\udcff")):
            with self.assertRaisesRegex(weir.BadArgument, option):
                weir.Limiter(**{option: value})
        self.open(None, lease_priority=-2**63, name=None).take("q")
        # Of a hundred names one has room; the others go by on_full.
        small = self.open(None, name="small", memory_max=1)
        quotas = [small.quota(f"q{i}") for i in range(100)]
        passed = [bool(quota.take()) for quota in quotas]
        self.assertEqual(passed.count(True), small.status().slots)
        self.assertEqual(self.open(None, exact=True).take("q").unknown, True)

    def test_events(self):
        limiter = self.open()
        readable, _, _ = select.select([limiter], [], [], 60)
        self.assertEqual(readable, [limiter])
        events = list(limiter.events())
        self.assertEqual(events[0].type, weir.EventType.ROOT_UP)
        self.assertIn("root0", events[0].text)
        status = limiter.status()
        self.assertEqual((status.roots, status.roots_up, status.ready),
                         (1, 1, True))
        self.assertTrue(limiter.sync(60))

    def test_never_ready(self):
        limiter = self.open(None)
        self.assertFalse(limiter.ready(0))
        self.assertFalse(limiter.sync(0))
        self.assertTrue(limiter.take("three", 9))


class WithoutRoots(Case):
    """A process without roots, with quotas of its own."""

    def setUp(self):
        self.limiter = self.open(None)

    def test_define(self):
        define = self.limiter.define
        define("r", limit="3/h", low_burst=3, high_burst=3, sharing="local")
        take = self.limiter.take
        self.assertEqual([bool(take("r")) for _ in range(4)],
                         [True, True, True, False])
        self.assertEqual(self.limiter.policy("r"), (False, 3, 3600))
        self.assertIsNone(self.limiter.policy("nobody's"))
        with self.assertRaisesRegex(weir.Error, "'x' is no period"):
            define("r", limit="3/x")
        with self.assertRaises(weir.BadArgument):
            self.open().define("r", limit="3/h")

    def test_adaptive(self):
        self.limiter.define("db", kind="concurrency", sharing="adaptive",
                            classes="sync:observed,bulk:50%")
        db = self.limiter.quota("db")
        with db.enter(klass="bulk"), db.enter(klass="sync") as permit:
            self.assertEqual(permit.reply.quota, "db")
            now = db.adaptive()
            self.assertEqual((now.in_flight, now.reason), (2, "initial"))
            self.assertGreater(now.limit, 0)
        self.assertEqual(db.adaptive().in_flight, 0)
        self.assertEqual(self.limiter.status().adaptive, 1)
        self.assertIsNone(self.limiter.quota("x").adaptive())


class Waiting(Case):
    def test_wait(self):
        slow = self.quota("slow")
        begun = time.monotonic()
        for _ in range(3):
            asked = time.monotonic()
            reply = slow.wait()
            self.assertTrue(reply)
            # None, if this process has paused for so long by itself.
            self.assertTrue(0 <= reply.wait <= 0.02, reply.wait)
            self.assertGreaterEqual(time.monotonic() - asked, reply.wait)
        # A hundredth less: a bucket counts in fractions of its own.
        self.assertGreaterEqual(time.monotonic() - begun, 2 * 0.0198)
        self.assertTrue(slow.wait(2).never)
        full = self.quota("each/full")
        self.assertTrue(full.take(3))
        self.assertFalse(full.wait(timeout=0))

    def test_wait_async(self):
        slow = self.quota("slow")

        async def all_wait():
            return await asyncio.gather(*(slow.wait_async()
                                          for _ in range(5)))

        begun = time.monotonic()
        self.assertTrue(all(asyncio.run(all_wait())))
        # A hundredth less: a bucket counts in fractions of its own.
        self.assertGreaterEqual(time.monotonic() - begun, 4 * 0.0198)

    def test_who_is_interrupted_gives_back(self):
        each = self.quota("each/interrupted")
        self.assertTrue(each.take(3))

        async def cancelled():
            waiting = asyncio.ensure_future(each.wait_async())
            await asyncio.sleep(0)
            self.assertFalse(each.reserve(1, 3600 / 3 * 1.5))
            waiting.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waiting

        asyncio.run(cancelled())
        self.assertLessEqual(each.peek(0).fill, 3)

        def interrupt(*_):
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, interrupt)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        for wait, where, name in (
                (each.wait, time, "sleep"),
                (self.open(None).ready, _library.RELEASES, "weir_ready")):
            sleep = getattr(where, name)

            def alarmed(*arguments, sleep=sleep):
                """Interrupted while it sleeps, not before."""
                signal.setitimer(signal.ITIMER_REAL, 0.01)
                return sleep(*arguments)

            with mock.patch.object(where, name, alarmed), \
                    self.assertRaises(KeyboardInterrupt):
                wait()
        self.assertLessEqual(each.peek(0).fill, 3)

    def test_closed_meanwhile(self):
        each = self.quota("each/closed")
        each.take(3)
        steps = each._wait(1, None)
        self.assertGreater(next(steps), 0)
        self.limiter.close()
        steps.close()
        for call in (each.take, each.enter, self.limiter.status,
                     self.limiter.ready):
            with self.assertRaises(weir.Closed):
                call()
        with self.assertRaises(weir.Closed):
            self.limiter.quota("three")
        each.close()


class Permits(Case):
    def test_enter_and_leave(self):
        two = self.quota("two")
        first, second = two.enter(), self.limiter.enter("two")
        self.assertTrue(first and second and first.in_flight)
        limited = two.enter()
        self.assertFalse(limited or limited.in_flight)
        self.assertEqual(limited.reply.quota, "two")
        with self.assertRaises(weir.Limited) as caught:
            with two.enter():
                self.fail("this isn't run")
        self.assertEqual(caught.exception.reply.quota, "two")
        first.leave()
        first.leave()
        with two.enter():
            self.assertFalse(two.enter())
        second.leave(weir.PermitOutcome.DROPPED)
        self.assertTrue(two.enter(2))

    def test_an_exception_leaves(self):
        two = self.quota("two")
        for kind in (RuntimeError, TimeoutError, KeyboardInterrupt):
            with self.assertRaises(kind):
                with two.enter(2):
                    raise kind
        self.assertTrue(two.enter(2))

    def test_who_is_forgotten_leaves(self):
        two = self.quota("two")
        held = two.enter(2)
        self.assertFalse(two.enter())
        del held
        gc.collect()
        self.assertTrue(two.enter(2))

    def test_one_of_kind_rate_holds_nothing(self):
        permit = self.limiter.enter("each/rate")
        self.assertTrue(permit and not permit.in_flight)

    def test_after_close(self):
        permit = self.limiter.enter("two")
        self.limiter.close()
        permit.leave()


class Outcomes(Case):
    """The outcome of a request that an adaptive quota gets: calls of
    weir_leave() are recorded."""

    KINDS = ((RuntimeError, weir.PermitOutcome.IGNORED),
             (TimeoutError, weir.PermitOutcome.DROPPED),
             (asyncio.TimeoutError, weir.PermitOutcome.DROPPED),
             (KeyboardInterrupt, weir.PermitOutcome.IGNORED))

    def setUp(self):
        super().setUp()
        self.heard = []
        for calls in (_library.HOLDS, _library.RELEASES):
            leave = calls.weir_leave

            def hear(held, outcome, now, leave=leave):
                self.heard.append(outcome)
                leave(held, outcome, now)

            patch = mock.patch.object(calls, "weir_leave", hear)
            patch.start()
            self.addCleanup(patch.stop)

    def hears(self, outcome, call, raises=None):
        """'call' leaves one permit, once, with that outcome."""
        self.heard.clear()
        if raises is None:
            call()
        else:
            with self.assertRaises(raises):
                call()
        self.assertEqual(self.heard, [outcome])

    def test_permits(self):
        def ends(kind):
            with self.limiter.enter("two"):
                if kind is not None:
                    raise kind

        self.hears(weir.PermitOutcome.SUCCESS, lambda: ends(None))
        for kind, outcome in self.KINDS:
            self.hears(outcome, lambda kind=kind: ends(kind), kind)
        for outcome in weir.PermitOutcome:
            self.hears(outcome,
                       lambda: self.limiter.enter("two").leave(outcome))
        self.hears(weir.PermitOutcome.IGNORED,
                   lambda: (self.limiter.enter("two"), gc.collect()))

    def test_asgi(self):
        async def nothing(*_):
            pass

        def ask(limiter, kind=None):
            async def app(scope, receive, send):
                if kind is not None:
                    raise kind

            limited = asgi.RateLimit(app, limiter, lambda _: "two")
            return limited({"type": "http"}, nothing, nothing)

        async def while_handling(limiter):
            try:
                raise TimeoutError
            except TimeoutError:
                await ask(limiter)

        exact = self.open(exact=True)
        self.assertTrue(exact.ready(60))
        for limiter in (self.limiter, exact):
            for asked in (ask, while_handling):
                self.hears(weir.PermitOutcome.SUCCESS,
                           lambda: asyncio.run(asked(limiter)))
            for kind, outcome in self.KINDS[:3]:
                self.hears(outcome,
                           lambda: asyncio.run(ask(limiter, kind)), kind)


    def test_wsgi(self):
        """An application fails when it is called, while its body is read, or
        when the body is closed."""
        class Body:
            def __init__(self, raises):
                self.raises = raises

            def __iter__(self):
                yield b"yes"
                if "read" in self.raises:
                    raise self.raises["read"]

            def close(self):
                if "close" in self.raises:
                    raise self.raises["close"]

        def ask(read_all=True, **raises):
            def app(environ, start_response):
                if "call" in raises:
                    raise raises["call"]
                return Body(raises)

            body = wsgi.RateLimit(app, self.limiter, lambda _: "two")({}, None)
            try:
                parts = iter(body)
                while next(parts, None) is not None and read_all:
                    pass
            finally:
                body.close()

        self.hears(weir.PermitOutcome.SUCCESS, ask)
        self.hears(weir.PermitOutcome.SUCCESS, lambda: ask(read_all=False))
        for kind, outcome in self.KINDS:
            for where in "call", "read", "close":
                self.hears(outcome, lambda: ask(**{where: kind}), kind)
        # The first exception counts.
        self.hears(weir.PermitOutcome.DROPPED,
                   lambda: ask(read=TimeoutError, close=OSError), OSError)


class Threads(Case):
    def test_permits_in_threads(self):
        two, seen, lock = self.quota("two"), [], threading.Lock()
        inside, passed = set(), [0]

        def work(name):
            for _ in range(500):
                permit = two.enter()
                if not permit:
                    continue
                with lock:
                    inside.add(name)
                    seen.append(len(inside))
                    passed[0] += 1
                with lock:
                    inside.remove(name)
                permit.leave()

        self.run_all(work)
        self.assertTrue(0 < passed[0] and max(seen) <= 2, max(seen))
        self.assertTrue(two.enter(2))

    def run_all(self, work):
        failed = []

        def caught(name):
            try:
                work(name)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=caught, args=(name,))
                   for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])

    def test_one_permit_is_left_once(self):
        two = self.quota("two")
        for _ in range(100):
            other, shared = two.enter(), two.enter()
            self.run_all(lambda _: shared.leave())
            self.assertTrue(two.enter())
            self.assertFalse(two.enter(2))
            other.leave()

    def test_closed_under_their_hands(self):
        for _ in range(10):
            limiter = self.open()
            three, begun = limiter.quota("three"), threading.Event()

            def work(_):
                with self.assertRaises(weir.Closed):
                    while True:
                        three.take()
                        limiter.take("each/x")
                        limiter.quota("each/y").close()
                        begun.set()

            closer = threading.Thread(
                target=lambda: (begun.wait(), limiter.close()))
            closer.start()
            self.run_all(work)
            closer.join()


class Forks(Case):
    def child(self, work):
        """Its exit status; 0 if all went well."""
        pid = os.fork()
        if pid:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        status = 1
        try:
            signal.alarm(60)
            status = 0 if work() else 2
        finally:
            os._exit(status)

    def test_a_child_is_a_limiter_of_its_own(self):
        # No other call uses this name before; a local quota's bucket belongs
        # to one process.
        each = self.quota("each/forked")
        permit = self.limiter.enter("two", 2)
        self.assertTrue(each.take(2))

        def work():
            took = [bool(each.take()) for _ in range(2)]
            permit.leave()  # the parent's permit: gives nothing back here
            entered = self.limiter.enter("two", 2)
            ready = self.limiter.ready(60) and self.limiter.sync(60)
            events = [event.type for event in self.limiter.events()]
            self.limiter.close()
            return took == [True, False] and entered and ready and \
                weir.EventType.FORKED in events

        self.assertEqual([self.child(work) for _ in range(3)], [0, 0, 0])
        self.assertFalse(self.limiter.enter("two"))
        self.assertTrue(each.take())
        self.assertFalse(each.take())
        self.assertTrue(self.limiter.sync(60))

    def test_prefork(self):
        """As gunicorn with --preload: open, fork workers, which end by
        sys.exit() while their threads still make requests."""
        program = f"""
import os, sys, threading
sys.path.insert(0, {str(HERE / 'python')!r})
import weir
limiter = weir.Limiter({self.roots!r})
quota = limiter.quota("each/prefork")
assert limiter.ready(60)
workers = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        begun = threading.Event()
        def ask():
            while True:
                quota.take(), begun.set()
        threading.Thread(target=ask, daemon=True).start()
        begun.wait()
        sys.exit(7)
    workers.append(pid)
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in workers]
sys.exit(0 if codes == [7, 7, 7] else f"workers ended by {{codes}}")
"""
        done = subprocess.run([sys.executable, "-c", program], text=True,
                              capture_output=True, timeout=60)
        # A thread may write Closed to standard error at the end.
        self.assertEqual(done.returncode, 0, done.stderr)


def ok(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"yes"]


class Wsgi(Case):
    def ask(self, app, **environ):
        """(status, headers, body iterable)."""
        setup_testing_defaults(environ)
        environ.setdefault("QUERY_STRING", "")
        told = []
        body = app(environ, lambda status, headers, exc_info=None:
                   told.append((status, headers)) or (lambda data: None))
        status, headers = told[0]
        return status, dict(headers), body

    def read(self, body):
        data = b"".join(body)
        if hasattr(body, "close"):
            body.close()
        return data

    def test_rate(self):
        app = validator(wsgi.RateLimit(
            validator(ok), self.limiter,
            lambda environ: environ.get("KEY"), policy='a "b"'))
        for left in (2, 1, 0):
            status, headers, body = self.ask(app, KEY="each/wsgi")
            self.assertEqual((status, self.read(body)), ("200 OK", b"yes"))
            self.assertEqual(headers["RateLimit"], rf'"a \"b\"";r={left}')
            self.assertEqual(headers["RateLimit-Policy"],
                             r'"a \"b\"";q=3;w=3600')
        status, headers, body = self.ask(app, KEY="each/wsgi")
        data = self.read(body)
        self.assertEqual(status, "429 Too Many Requests")
        wait = int(headers["Retry-After"])
        self.assertTrue(1100 < wait < 3600, wait)
        self.assertEqual(headers["RateLimit"], rf'"a \"b\"";r=0;t={wait}')
        self.assertEqual(headers["Content-Type"], "application/problem+json")
        self.assertEqual(int(headers["Content-Length"]), len(data))
        self.assertEqual(json.loads(data)["violated-policies"], ['a "b"'])
        # No quota has that name, or there is no name.
        for environ in ({}, {"KEY": "nobody's"}):
            status, headers, body = self.ask(app, **environ)
            self.assertEqual((status, self.read(body)), ("200 OK", b"yes"))
            self.assertNotIn("RateLimit", headers)
        # A long name is limited as others are; one over its bound is refused.
        for expected in ("200 OK",) * 3 + ("429 Too Many Requests",):
            status, _, body = self.ask(app, KEY="each/" + "x" * 251)
            self.read(body)
            self.assertEqual(status, expected)
        status, _, body = self.ask(app, KEY="each/" + "x" * 65536)
        self.assertEqual((status, self.read(body)), ("400 Bad Request", b""))

    def test_in_flight(self):
        closed = []

        class Body(list):
            def close(self):
                closed.append(self)

        def app(environ, start_response):
            if "FAIL" in environ:
                raise RuntimeError
            start_response("200 OK", [])
            return Body([b"yes"])

        app = wsgi.RateLimit(app, self.limiter, lambda _: "two", status=503)
        first, second = self.ask(app)[2], self.ask(app)[2]
        status, headers, _ = self.ask(app)
        self.assertEqual((status, headers["Retry-After"]),
                         ("503 Service Unavailable", "1"))
        self.assertEqual(headers["RateLimit-Policy"],
                         '"default";q=2;qu="concurrent-requests"')
        self.read(first)
        with self.assertRaises(RuntimeError):
            self.ask(app, FAIL="1")
        self.assertEqual(self.ask(app)[0], "200 OK")
        self.read(second)
        self.assertEqual(len(closed), 2)

    def test_rules(self):
        for rule in ({"policy": "é"}, {"policy": "a\n"}, {"status": 200}):
            with self.assertRaises(ValueError):
                wsgi.RateLimit(ok, self.limiter, str, **rule)

    def test_example(self):
        environ = {**os.environ, "PYTHONPATH": str(HERE / "python")}
        server = subprocess.Popen(
            [sys.executable, HERE / "python/example.py", self.roots, "0"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=environ)
        try:
            url = server.stdout.readline().strip()
            with urllib.request.urlopen(url, timeout=60) as answer:
                self.assertEqual(answer.read(), b"forty-two\n")
        finally:
            server.terminate()
            server.wait()
            server.stdout.close()


class Asgi(Case):
    def ask(self, app, **scope):
        return asyncio.run(self.asked(app, **scope))

    async def asked(self, app, **scope):
        sent = []

        async def send(message):
            sent.append(message)

        async def receive():
            return {"type": "http.request"}

        await app({"type": "http", **scope}, receive, send)
        start = sent[0]
        return (start.get("status"), dict(start.get("headers", ())),
                b"".join(m.get("body", b"") for m in sent))

    @staticmethod
    async def ok(scope, receive, send):
        if scope["type"] != "http":
            return await send({"type": scope["type"]})
        await send({"type": "http.response.start", "status": 200,
                    "headers": [(b"x", b"y")]})
        await send({"type": "http.response.body", "body": b"yes"})

    def test_rate(self):
        for limiter, name in ((self.limiter, "each/asgi"),
                              (self.open(exact=True), "each/asgi-exact")):
            if limiter.exact:
                self.assertTrue(limiter.ready(60))
            app = asgi.RateLimit(self.ok, limiter,
                                 lambda scope: scope.get("key"))
            for left in (2, 1, 0):
                status, headers, body = self.ask(app, key=name)
                self.assertEqual((status, body), (200, b"yes"))
                self.assertEqual(headers, {
                    b"x": b"y",
                    b"ratelimit-policy": b'"default";q=3;w=3600',
                    b"ratelimit": b'"default";r=%d' % left})
            status, headers, body = self.ask(app, key=name)
            self.assertEqual(status, 429)
            self.assertTrue(int(headers[b"retry-after"]) > 1100)
            self.assertEqual(json.loads(body)["status"], 429)
            self.assertEqual(self.ask(app, key="a\n")[0], 400)
            self.assertEqual(self.ask(app)[1], {b"x": b"y"})
            self.assertEqual(self.ask(app, type="lifespan", key=name)[0],
                             None)

    def test_in_flight(self):
        async def all_at_once():
            go = asyncio.Event()

            async def slow(scope, receive, send):
                await go.wait()
                await self.ok(scope, receive, send)

            app = asgi.RateLimit(slow, self.limiter, lambda _: "two")
            asks = [asyncio.ensure_future(self.asked(app))
                    for _ in range(4)]
            first = [await ask for ask in asks[2:]]
            cancelled = asks.pop(0)
            cancelled.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await cancelled
            asks.append(asyncio.ensure_future(self.asked(app)))
            await asyncio.sleep(0)
            go.set()
            return [status for status, _, _ in first], \
                [(await asks[i])[0] for i in (0, -1)]

        self.assertEqual(asyncio.run(all_at_once()),
                         ([429, 429], [200, 200]))
        self.assertTrue(self.limiter.enter("two", 2))


if __name__ == "__main__":
    unittest.main()
