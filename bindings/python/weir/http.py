# SPDX-License-Identifier: MIT
"""http.py - common to wsgi.py and asgi.py: the quota of a request, and HTTP's
headers for a refusal.

    RateLimit-Policy: "default";q=150;w=2
    RateLimit: "default";r=0;t=3    (draft-ietf-httpapi-ratelimit-headers)
    Retry-After: 3                  (RFC 9110)
    and application/problem+json    (RFC 9457)"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from typing import Any, Generic, Optional, TypeVar

from . import Limiter, Permit, Reply

Request = TypeVar("Request")

# The greatest integer of a structured field (RFC 9651).
INTEGER_MAX = 10**15 - 1
REASONS = {429: "Too Many Requests", 503: "Service Unavailable"}
PROBLEM = "https://iana.org/assignments/http-problem-types#quota-exceeded"

Headers = list[tuple[str, str]]


class Rules(Generic[Request]):
    """'key' returns the quota's name for a request, such as
    "site/203.0.113.7"; None: no quota. An invalid name, which a client's words
    may cause, is answered with 400.

    The request enters that quota and leaves it at its end: so a quota of kind
    rate is charged, units of kind concurrency are in flight, and a chain may
    have both. 'policy' is the quota's name for clients."""

    def __init__(self, limiter: Limiter,
                 key: Callable[[Request], Optional[str]], *,
                 policy: str = "default", status: int = 429) -> None:
        if not policy.isascii() or not policy.isprintable():
            raise ValueError(f"a policy is printable ASCII, not {policy!r}")
        if status not in REASONS:
            raise ValueError(f"the status is one of {list(REASONS)}")
        self.limiter, self.key, self.status = limiter, key, status
        self.reason = REASONS[status]
        escaped = policy.replace("\\", "\\\\").replace('"', '\\"')
        self._item = f'"{escaped}"'
        self._body = json.dumps({
            "type": PROBLEM, "title": self.reason, "status": status,
            "violated-policies": [policy]}).encode() + b"\n"

    def enter(self, request: Request) -> Optional[Permit]:
        name = self.key(request)
        return None if name is None else self.limiter.enter(name)

    async def enter_async(self, request: Request) -> Optional[Permit]:
        """The same, for callers that must not block."""
        if not self.limiter.exact:
            return self.enter(request)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, self.enter, request)

    async def leave_async(self, permit: Permit, *how: Any) -> None:
        """The end of `with permit:`, likewise: permits of exact quotas are
        given back to a store."""
        if not (self.limiter.exact and permit.in_flight):
            return permit.__exit__(*how)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, permit.__exit__, *how)

    def passed(self, reply: Reply) -> Headers:
        """The headers of a response that passed, for the client's next
        request."""
        return self._limits(reply, reply.remaining, "")

    def limited(self, reply: Reply) -> tuple[Headers, bytes]:
        headers = [("Content-Type", "application/problem+json"),
                   ("Content-Length", str(len(self._body)))]
        if reply.retry_after == math.inf:
            return headers + self._limits(reply, 0, ""), self._body
        # Rounded up, so that an obedient client doesn't come too early.
        seconds = max(1, math.ceil(reply.retry_after))
        headers += [("Retry-After", str(seconds)),
                    *self._limits(reply, 0, f";t={seconds}")]
        return headers, self._body

    def _limits(self, reply: Reply, left: int, until: str) -> Headers:
        policy = self.limiter.policy(reply.quota)
        if policy is None:
            return []
        quantity = min(policy.quantity, INTEGER_MAX)
        window = f";w={math.ceil(policy.window)}" if policy.window else ""
        unit = ';qu="concurrent-requests"' if policy.concurrency else ""
        return [("RateLimit-Policy", f"{self._item};q={quantity}{window}"
                                     f"{unit}"),
                ("RateLimit", f"{self._item};r={min(left, quantity)}"
                              f"{until}")]
