# SPDX-License-Identifier: MIT
"""wsgi.py - a WSGI application behind a quota.

    import weir.wsgi
    app = weir.wsgi.RateLimit(app, limiter,
                              lambda environ: "site/" + environ["REMOTE_ADDR"])

The rules are in http.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Optional, Union

from . import BadArgument, Limiter, Permit
from .http import Rules

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]
ExcInfo = Optional[Union[tuple[type[BaseException], BaseException,
                               TracebackType], tuple[None, None, None]]]


class _Body:
    """A response's body; its end leaves the permit. The outcome is known only
    then, since a body that is a generator is the application at work."""

    def __init__(self, body: Iterable[bytes], permit: Permit) -> None:
        self._body, self._permit = body, permit
        # The first exception raised. Its type only: the exception itself has a
        # traceback, which refers to this object.
        self._raised: Optional[type[BaseException]] = None

    def __iter__(self) -> Iterator[bytes]:
        try:
            # Not `yield from`, which would close the body before close() does.
            for part in self._body:
                yield part
        except GeneratorExit:
            # The reader stopped reading; the application did nothing wrong.
            raise
        except BaseException as error:
            self._raised = type(error)
            raise

    def close(self) -> None:
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        except BaseException as error:
            self._raised = self._raised or type(error)
            raise
        finally:
            self._permit.__exit__(self._raised, None, None)


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
            headers, body = self.rules.limited(permit.reply)
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
        except BaseException as error:
            permit.__exit__(type(error), error, error.__traceback__)
            raise
        # A server may treat an unwrapped body specially.
        return _Body(body, permit) if permit.in_flight else body
