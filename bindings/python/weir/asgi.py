# SPDX-License-Identifier: MIT
"""asgi.py - an ASGI application behind a quota.

    import weir.asgi
    app = weir.asgi.RateLimit(app, limiter,
                              lambda scope: "site/" + scope["client"][0])

The rules are in http.py. Only HTTP requests are limited; websockets and the
application's own start and end pass."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Optional

from . import BadArgument, Limiter
from .http import Headers, Rules

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def _bytes(headers: Headers) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode())
            for name, value in headers]


async def _answer(send: Send, status: int, headers: Headers,
                  body: bytes) -> None:
    await send({"type": "http.response.start", "status": status,
                "headers": _bytes(headers)})
    await send({"type": "http.response.body", "body": body})


class RateLimit:
    def __init__(self, app: App, limiter: Limiter,
                 key: Callable[[Scope], Optional[str]], **rules: Any) -> None:
        self.app = app
        self.rules = Rules(limiter, key, **rules)

    async def __call__(self, scope: Scope, receive: Receive,
                       send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        try:
            permit = await self.rules.enter_async(scope)
        except BadArgument:
            return await _answer(send, 400, [("Content-Length", "0")], b"")
        if permit is None:
            return await self.app(scope, receive, send)
        if not permit:
            headers, body = self.rules.limited(permit.reply)
            return await _answer(send, self.rules.status, headers, body)
        more = _bytes(self.rules.passed(permit.reply))

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *more]
            await send(message)

        try:
            await self.app(scope, receive, tell)
        except BaseException as error:
            await self.rules.leave_async(permit, type(error), error,
                                         error.__traceback__)
            raise
        # Not sys.exc_info(), which would be the exception that the caller
        # handles.
        return await self.rules.leave_async(permit, None, None, None)
