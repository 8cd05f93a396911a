# SPDX-License-Identifier: MIT
"""Weir enforces rate limits across all processes of a fleet.

    limiter = weir.Limiter("10.0.0.1:7077,10.0.0.2:7077")
    put = limiter.quota("s3/put")
    if not put.take():
        return 429

Decisions are made in this process's memory; calls that wait for the network
say so. Every object may be used by any thread. After os.fork() a child goes on
with the inherited objects and becomes a limiter of its own at its first call,
so a server may open a limiter before it forks its workers.

Being limited is an answer and no exception: a Reply or a Permit is true if it
passed. Times are seconds. An argument that is out of range is an Error that is
a ValueError, too; the ranges are in weir.h, of which this is a thin
wrapper."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import math
import time
import weakref
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Any, NamedTuple, Optional, Union

from . import _header, _library
from ._header import Error as ErrorCode
from ._header import (DEBT_MAX, EventType, NAME_MAX, NEVER, PermitOutcome,
                      WEIGHT_MAX)

__all__ = ["Adaptive", "BadArgument", "Closed", "Error", "ErrorCode", "Event",
           "EventType", "Limited", "Limiter", "NAME_MAX", "Permit",
           "PermitOutcome", "Policy", "Quota", "Reply", "Status", "WEIGHT_MAX"]
__version__ = _header.VERSION

# Seconds. Longer waits are split; sleep() has its bounds.
LONG = 3600.0


class Error(Exception):
    """An error of libweir. Its text says what to do about it."""

    def __init__(self, code: int, detail: str = "") -> None:
        self.code = ErrorCode(code)
        text = _library.HOLDS.weir_strerror(code).decode()
        super().__init__(f"{text}: {detail}" if detail else text)


class BadArgument(Error, ValueError):
    """EINVAL or ENAME."""


class Closed(Error):
    """The limiter, or the quota, was closed."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.ECLOSED)


class Limited(Exception):
    """`with quota.enter():` was limited; 'reply' has the quota."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        super().__init__(f"limited by {reply.quota}")


def _check(code: int, detail: str = "") -> None:
    if code in (ErrorCode.EINVAL, ErrorCode.ENAME):
        raise BadArgument(code, detail)
    if code < 0:
        raise Error(code, detail)


def _seconds(duration: int) -> float:
    return math.inf if duration == NEVER else duration / 1e9


def _nanoseconds(seconds: Optional[float]) -> int:
    """None is for ever."""
    if seconds is None or seconds >= NEVER / 1e9:
        return NEVER
    return max(0, int(seconds * 1e9))


def _weight(weight: int) -> int:
    # ctypes would take it modulo 2^64.
    if not 0 <= weight <= WEIGHT_MAX:
        raise BadArgument(ErrorCode.EINVAL, f"a weight of {weight}")
    return weight


def _units(units: int) -> int:
    if not 0 <= units <= DEBT_MAX:
        raise BadArgument(ErrorCode.EINVAL, f"{units} units")
    return units


def _name(name: str) -> bytes:
    """An invalid name has no quota, and would pass: as an error it is no way
    around the limits for a client that chooses a part of the name."""
    try:
        data = name.encode()
    except UnicodeEncodeError as error:
        raise BadArgument(ErrorCode.ENAME, repr(name)) from error
    if not _library.HOLDS.weir_name_is_valid(data, len(data)):
        raise BadArgument(ErrorCode.ENAME, repr(name))
    return data


def _option(name: str, value: object) -> Union[bytes, int, None]:
    """The value as its field's type. ctypes itself would take an integer
    modulo the field's size, and an integer for a text as the text's
    address."""
    if OPTIONS[name] is ctypes.c_char_p:
        if value is None:
            return None
        if isinstance(value, str) and "\0" not in value:
            try:
                return value.encode()
            except UnicodeEncodeError:
                pass
    elif isinstance(value, int) and OPTIONS[name](value).value == value:
        return value
    raise BadArgument(ErrorCode.EINVAL, f"{name}={value!r}")


@lru_cache(maxsize=1024)
def _class(name: str) -> int:
    """The number of a class of requests; "" is none."""
    data = name.encode()
    return int(_library.HOLDS.weir_class(data, len(data))) if data else 0


_RETRY_AFTER: Any = _header.weir_reply.retry_after
_WAIT: Any = _header.weir_reply.wait
_QUOTA: Any = _header.weir_reply.quota


class Reply(_header.weir_reply):
    """A decision and its details: true if it passed. It has the fields of
    struct weir_reply, with times in seconds (math.inf: never) and 'quota' a
    text."""

    unknown: bool
    never: bool
    stale: bool
    shadow: bool
    exact: bool
    full: bool
    contended: bool
    leased: bool
    granted: float
    fill: int
    remaining: int
    level: int

    def __bool__(self) -> bool:
        return bool(self.verdict == 0)

    @property
    def retry_after(self) -> float:
        return _seconds(_RETRY_AFTER.__get__(self))

    @property
    def wait(self) -> float:
        return _seconds(_WAIT.__get__(self))

    @property
    def quota(self) -> str:
        name: bytes = _QUOTA.__get__(self)
        return name.decode()

    def _add_wait(self, seconds: float) -> None:
        _WAIT.__set__(self, _WAIT.__get__(self) + _nanoseconds(seconds))

    def __repr__(self) -> str:
        if self:
            return f"<passed: {self.quota or 'no quota'}>"
        return f"<limited: {self.quota}, {self.retry_after:.3f} s>"


class Permit:
    """The result of an enter(), in flight until it is left: true if it passed.

    As a context manager it is left at the end of the block, and raises Limited
    at the beginning if it didn't pass. An exception makes the outcome IGNORED,
    a TimeoutError DROPPED. A permit without references is left as well."""

    __slots__ = ("reply", "_limiter", "_held", "__weakref__")

    def __init__(self, limiter: Limiter, held: _header.weir_permit,
                 reply: Reply) -> None:
        self.reply = reply
        self._limiter = limiter
        # Taken out by the thread that leaves: a second thread finds none.
        self._held = [held]

    def __bool__(self) -> bool:
        return bool(self.reply)

    @property
    def in_flight(self) -> bool:
        """Whether there are units in flight to give back: not if it was limited
        or left, or if no quota of the chain is of kind concurrency."""
        return any(any(held.words) for held in self._held)

    def leave(self, outcome: PermitOutcome = PermitOutcome.SUCCESS) -> None:
        """Gives the units back; a second call has no effect."""
        try:
            held = self._held.pop()
        except IndexError:
            return
        native = self._limiter._native
        if native is not None:
            native.calls.weir_leave(held, outcome, 0)

    def __enter__(self) -> Permit:
        if not self:
            raise Limited(self.reply)
        return self

    def __exit__(self, kind: Optional[type[BaseException]],
                 value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if kind is None:
            self.leave()
        elif issubclass(kind, (TimeoutError, asyncio.TimeoutError)):
            self.leave(PermitOutcome.DROPPED)
        else:
            self.leave(PermitOutcome.IGNORED)

    def __del__(self) -> None:
        self.leave(PermitOutcome.IGNORED)


@dataclass(frozen=True)
class Event:
    """News for an operator."""
    type: EventType
    count: int
    text: str


class Policy(NamedTuple):
    """A quota's limit: 'quantity' units in flight, or in 'window' seconds (0:
    they don't come back)."""
    concurrency: bool
    quantity: int
    window: float


@dataclass(frozen=True)
class Adaptive:
    """The state of an adaptive quota in this process: struct weir_adaptive."""
    limit: float
    before: float
    reason: str
    latency: float
    windows: int
    in_flight: int
    overdue: int
    lost: int
    fleet: bool
    alone: bool


class Status(NamedTuple):
    """As struct weir_status."""
    roots: int
    roots_up: int
    roots_there: int
    few_roots: bool
    epoch: int
    slots: int
    slots_used: int
    memory: int
    memory_max: int
    lacking: int
    on_full: int
    ready: bool
    stale: bool
    unknown: int
    overflowed: int
    reports: int
    adaptive: int
    adaptive_overflowed: int
    waiting: int
    contended: int
    overflowed_age: int
    growth_failed: bool


class Limiter:
    """A table of quotas and a thread that exchanges counts with the roots.

    Never waits for a root nor fails because none answers: until one does,
    everything passes. 'roots' is "HOST:PORT,…" or "_weir._tcp.NAME" (SRV
    records), None: none. The other options are those of struct weir_options.
    With 'exact' libweir-exact is loaded, for quotas of sharing=exact; each
    decision may then wait for a store.

    close() sends the pending reports; so does the end of a `with`, of the
    program, and of the last reference. Calls in progress are finished, and
    later calls raise Closed."""

    def __init__(self, roots: Optional[str] = None, *, exact: bool = False,
                 **options: Any) -> None:
        self._native: Optional[_library.Native] = None
        self.exact = exact
        made = self._options(roots, options)
        weir = ctypes.c_void_p()
        code = _library.HOLDS.weir_open(made, weir)
        if code in (ErrorCode.ETLS, ErrorCode.ECREDENTIAL, ErrorCode.ETABLE):
            raise Error(code, _library.why_not(made))
        _check(code)
        self._native = _library.Native(
            weir, _library.RELEASES if exact else _library.HOLDS)
        _LIMITERS.add(self)

    def _options(self, roots: Optional[str],
                 options: dict[str, Any]) -> _header.weir_options:
        made = _header.weir_options()
        made.struct_size = ctypes.sizeof(made)
        if self.exact:
            made.exact = _library.exact()
        for name, value in {"roots": roots, **options}.items():
            if name not in OPTIONS:
                raise TypeError(f"Limiter has no option '{name}': "
                                f"{', '.join(sorted(OPTIONS))}")
            setattr(made, name, _option(name, value))
        return made

    def _alive(self) -> _library.Native:
        native = self._native
        if native is None:
            raise Closed
        return native

    def close(self) -> None:
        self._native = None

    def __enter__(self) -> Limiter:
        self._alive()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ready(self, timeout: Optional[float] = None) -> bool:
        """Waits until a root's quotas have arrived; False: not within
        'timeout'. A signal's exception ends it, like all waits here."""
        return self._until("weir_ready", timeout)

    def sync(self, timeout: Optional[float] = None) -> bool:
        """Waits until the roots have answered all reports of this process;
        False: not within 'timeout', or no root is there."""
        return self._until("weir_sync", timeout)

    def _until(self, call: str, timeout: Optional[float]) -> bool:
        native = self._alive()
        function = getattr(_library.RELEASES, call)
        end = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            # In parts, so that Python handles signals in between.
            left = min(1.0, end - time.monotonic())
            code = function(native.weir, _nanoseconds(left))
            if code == ErrorCode.OK:
                return True
            if code != ErrorCode.ETIMEOUT:
                _check(code)
            if self._native is None:
                raise Closed
            if time.monotonic() >= end:
                return False

    def define(self, name: str, **fields: object) -> None:
        """Without roots: makes or edits a quota by its fields, as in
        weir-quota(5): define("db", kind="concurrency", limit=2)."""
        native = self._alive()
        texts = [f"name={name}", *(f"{field}={value}" for field, value
                                   in fields.items())]
        listed = (ctypes.c_char_p * (len(texts) + 1))(
            *(text.encode() for text in texts))
        why = ctypes.create_string_buffer(512)
        code = _library.RELEASES.weir_define(native.weir, listed, why, 512)
        _check(code, why.value.decode("utf-8", "replace"))

    def policy(self, name: str) -> Optional[Policy]:
        """The limit of the quota named by a reply; None: it isn't known here,
        or lets all pass."""
        native, data = self._alive(), name.encode()
        policy = _header.weir_policy()
        if native.calls.weir_policy(native.weir, data, len(data), policy) < 0:
            return None
        return Policy(policy.concurrency, policy.quantity,
                      _seconds(policy.window))

    def quota(self, name: str) -> Quota:
        """A quota that is found once and used often. It needn't exist yet:
        until then requests pass."""
        return Quota(self, name)

    def take(self, name: str, weight: int = 1) -> Reply:
        """Quota.take() by name: for names of a template that depend on the
        request."""
        native = self._alive()
        data, reply = _name(name), Reply()
        native.calls.weir_take_by_name(native.weir, data, len(data),
                                       _weight(weight), reply, 0)
        return reply

    def charge(self, name: str, weight: int) -> bool:
        """Quota.charge() by name; false: the name has no quota."""
        native = self._alive()
        data = _name(name)
        return bool(native.calls.weir_charge_by_name(
            native.weir, data, len(data), _units(weight), 0))

    def settle(self, name: str, charged: int, actual: int) -> int:
        """Quota.settle() by name; returns 'charged' if the name has no
        quota."""
        native = self._alive()
        data, receipt = _name(name), ctypes.c_uint64(_units(charged))
        native.calls.weir_settle_by_name(native.weir, data, len(data),
                                         ctypes.byref(receipt),
                                         _units(actual), 0)
        return receipt.value

    def enter(self, name: str, weight: int = 1, *, klass: str = "") -> Permit:
        """Quota.enter() by name."""
        native = self._alive()
        data, reply, held = _name(name), Reply(), _header.weir_permit()
        native.calls.weir_enter_by_name(native.weir, data, len(data),
                                        _class(klass), _weight(weight), held,
                                        reply, 0)
        return Permit(self, held, reply)

    def status(self) -> Status:
        native, status = self._alive(), _header.weir_status()
        native.calls.weir_status(native.weir, status)
        return Status(*(getattr(status, name) for name in Status._fields))

    def events(self) -> Iterator[Event]:
        """Takes the pending events, without waiting for more."""
        event = _header.weir_event()
        while True:
            native = self._alive()
            if not native.calls.weir_event_next(native.weir, event):
                return
            yield Event(EventType(event.type), event.count,
                        event.text.decode("utf-8", "replace"))

    def fileno(self) -> int:
        """Readable while events are pending: for select() or
        loop.add_reader()."""
        native = self._alive()
        return int(native.calls.weir_event_fd(native.weir))


# Name -> its type in C.
OPTIONS: dict[str, Any] = {
    field[0]: field[1] for field in _header.weir_options._fields_
    if field[0] not in ("struct_size", "on_event", "event_context", "exact")}
_LIMITERS: weakref.WeakSet[Limiter] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for limiter in list(_LIMITERS):
        limiter.close()


class Quota:
    """A quota of a limiter; made by Limiter.quota()."""

    __slots__ = ("name", "_limiter", "_handle", "_open", "__weakref__")

    def __init__(self, limiter: Limiter, name: str) -> None:
        self.name = name
        self._limiter = limiter
        self._handle = _header.weir_handle()
        self._open: list[bool] = []
        native, data = limiter._alive(), _name(name)
        code = native.calls.weir_handle_open(native.weir, data, len(data),
                                             self._handle)
        # A full table made a handle nevertheless, which can be used.
        if code != ErrorCode.EFULL:
            _check(code, repr(name))
        self._open.append(True)

    def _alive(self) -> _library.Native:
        native = self._limiter._native
        if native is None or not self._open:
            raise Closed
        return native

    def close(self) -> None:
        """Gives its place in the table back."""
        try:
            self._open.pop()
        except IndexError:
            return
        native = self._limiter._native
        if native is not None:
            native.calls.weir_handle_close(self._handle)

    def __enter__(self) -> Quota:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def take(self, weight: int = 1) -> Reply:
        """Charges 'weight' units if they pass."""
        native, reply = self._alive(), Reply()
        native.calls.weir_take(self._handle, _weight(weight), reply, 0)
        return reply

    def peek(self, weight: int = 1) -> Reply:
        """Decides as take() would and charges nothing."""
        native, reply = self._alive(), Reply()
        native.calls.weir_peek(self._handle, _weight(weight), reply, 0)
        return reply

    def charge(self, weight: int) -> None:
        """Counts without a decision: for a cost that is known afterwards."""
        native = self._alive()
        native.calls.weir_charge(self._handle, _units(weight), 0)

    def settle(self, charged: int, actual: int) -> int:
        """For work that was begun with the units that it was expected to
        cost: charges or gives back the difference to the actual ones, and
        returns these. May be called again while the work goes on:

            charged = 2000
            if not tokens.take(charged):
                return 429
            ...
            charged = tokens.settle(charged, used)"""
        native, receipt = self._alive(), ctypes.c_uint64(_units(charged))
        native.calls.weir_settle(self._handle, ctypes.byref(receipt),
                                 _units(actual), 0)
        return receipt.value

    def refund(self, weight: int) -> None:
        """Gives charged units back."""
        native = self._alive()
        native.calls.weir_refund(self._handle, _units(weight), 0)

    def reserve(self, weight: int = 1,
                timeout: Optional[float] = None) -> Reply:
        """Charges now; the caller must wait for reply.wait before it goes on.
        Refused if that were longer than 'timeout'."""
        native, reply = self._alive(), Reply()
        native.calls.weir_reserve(self._handle, _weight(weight),
                                  _nanoseconds(timeout), reply, 0)
        return reply

    def wait(self, weight: int = 1, timeout: Optional[float] = None) -> Reply:
        """Sleeps until it passes; a false Reply, at once or later: not within
        'timeout'. An exception while it sleeps (KeyboardInterrupt) gives the
        units back."""
        steps = self._wait(weight, timeout)
        try:
            while True:
                time.sleep(next(steps))
        except StopIteration as end:
            reply: Reply = end.value
            return reply
        finally:
            steps.close()

    async def wait_async(self, weight: int = 1,
                         timeout: Optional[float] = None) -> Reply:
        """The same in asyncio; cancelling it gives the units back.

        Only its turn is awaited in the loop. The request itself is a
        reserve(), which runs in the loop's thread: with an exact quota the
        whole loop stands still until the store answers, for up to the
        'deadline' of each exact quota of the chain, and twice that if one
        limits it. If that is too long, use wait() in an executor."""
        steps = self._wait(weight, timeout)
        try:
            while True:
                await asyncio.sleep(next(steps))
        except StopIteration as end:
            reply: Reply = end.value
            return reply
        finally:
            steps.close()

    def _wait(self, weight: int, timeout: Optional[float]
              ) -> Generator[float, None, Reply]:
        """Times to sleep, one after the other, until it is decided: as
        weir_wait(), which can't be interrupted."""
        most = math.inf if timeout is None else timeout
        begun = time.monotonic()
        waited = 0.0
        while True:
            reply = self.reserve(weight, most - waited)
            if reply:
                yield from self._sleep_reserved(weight, reply.wait)
                reply._add_wait(waited)
                return reply
            # A request that never passes doesn't wait.
            if reply.retry_after > most - waited or reply.never:
                return reply
            yield min(reply.retry_after, LONG)
            waited = time.monotonic() - begun
            if waited > most:
                return reply

    def _sleep_reserved(self, weight: int,
                        seconds: float) -> Generator[float, None, None]:
        if seconds <= 0:
            return
        try:
            yield seconds
        except GeneratorExit:
            if self._limiter._native is not None and self._open:
                self.refund(weight)
            raise

    def enter(self, weight: int = 1, *, klass: str = "") -> Permit:
        """Takes 'weight' units, if they pass, until the permit is left.
        'klass' names a class of requests of an adaptive quota:

            with db.enter():        # raises Limited
                ...
        permit = db.enter() # or test it first
            if not permit:
                return 503"""
        native = self._alive()
        reply, held = Reply(), _header.weir_permit()
        native.calls.weir_enter(self._handle, _class(klass), _weight(weight),
                                held, reply, 0)
        return Permit(self._limiter, held, reply)

    def want(self, units_per_s: float) -> None:
        """Of a leased quota: the units a second that will be wanted."""
        native = self._alive()
        _check(native.calls.weir_want(self._handle, units_per_s, 0))

    def adaptive(self) -> Optional[Adaptive]:
        """The state of an adaptive quota in this process; None: it isn't
        adaptive."""
        native, now = self._alive(), _header.weir_adaptive()
        if native.calls.weir_adaptive(self._handle, now, 0) < 0:
            return None
        return Adaptive(now.limit, now.before, now.reason.decode(),
                        _seconds(now.latency), now.windows, now.in_flight,
                        now.overdue, now.lost, now.fleet, now.alone)
