# SPDX-License-Identifier: MIT
"""wsgi.py - a WSGI application behind a quota.

    app = weir.wsgi.RateLimit(app, limiter,
                              lambda environ: "site/" + environ["REMOTE_ADDR"])

What the rules are is said in http.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Optional, Union

from . import BadArgument, Limiter, Permit, PermitOutcome
from .http import Rules

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]
ExcInfo = Optional[Union[tuple[type[BaseException], BaseException,
                               TracebackType], tuple[None, None, None]]]


class _Body:
    """A response's body, with which its permit ends."""

    def __init__(self, body: Iterable[bytes], permit: Permit) -> None:
        self._body, self._permit = body, permit

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            self._permit.leave()


class RateLimit:
    def __init__(self, app: App, limiter: Limiter,
                 key: Callable[[Environ], Optional[str]],
                 **rules: Any) -> None:
        self.app = app
        self.rules = Rules(limiter, key, **rules)

    def __call__(self, environ: Environ,
                 start_response: StartResponse) -> Iterable[bytes]:
        try:
            permit = self.rules.enter(environ)
        except BadArgument:
            start_response("400 Bad Request", [
                ("Content-Type", "text/plain"), ("Content-Length", "0")])
            return []
        if permit is None:
            return self.app(environ, start_response)
        if not permit:
            headers, body = self.rules.refused(permit.reply)
            start_response(f"{self.rules.status} {self.rules.reason}",
                           headers)
            return [body]
        return self._served(environ, start_response, permit)

    def _served(self, environ: Environ, start_response: StartResponse,
                permit: Permit) -> Iterable[bytes]:
        more = self.rules.passed(permit.reply)

        def start(status: str, headers: list[tuple[str, str]],
                  exc_info: ExcInfo = None) -> Any:
            return start_response(status, [*headers, *more], exc_info)

        try:
            body = self.app(environ, start)
        except BaseException:
            permit.leave(PermitOutcome.IGNORED)
            raise
        # A server may have its own way with a body that isn't wrapped.
        return _Body(body, permit) if permit.holds else body
