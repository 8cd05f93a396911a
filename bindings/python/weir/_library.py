# SPDX-License-Identifier: MIT
"""_library.py - libweir.so itself: found, its functions typed, and a limiter
that is closed when its last user has gone.

ctypes and not cffi: nothing has to be compiled or installed beside libweir,
and for each call it can be chosen whether the interpreter's lock is held. It
is, for all that never waits: to let it go for a tenth of a microsecond's work
costs more than the work. What waits (ready, sync, close; and every decision
where quotas are exact, for those ask a store) lets it go.

Nothing is ever called back from libweir's thread: that thread would have to
wait for the interpreter's lock, maybe with a lock of the table in its hand
that the holder of the other spins for. Events are fetched (event_next)."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from . import _header


def _typed(loader: type[ctypes.CDLL], path: str) -> ctypes.CDLL:
    library = loader(path)
    for name, (result, arguments) in _header.FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _path(variable: str, soname: str) -> str:
    return os.environ.get(variable) or soname


_PATH = _path("WEIR_LIBRARY", "libweir.so.0")
HOLDS = _typed(ctypes.PyDLL, _PATH)    # the interpreter's lock is held
RELEASES = _typed(ctypes.CDLL, _PATH)  # and here it is let go

VERSION = HOLDS.weir_version().decode()
if VERSION != _header.VERSION:
    raise ImportError(f"libweir is {VERSION}, and this package is for "
                      f"{_header.VERSION}")


def exact() -> Any:
    """What libweir-exact brings, for options.exact."""
    library = ctypes.CDLL(_path("WEIR_EXACT_LIBRARY", "libweir-exact.so.0"))
    library.weir_exact.restype = ctypes.c_void_p
    library.weir_exact.argtypes = []
    return library.weir_exact()


EventFn = ctypes.CFUNCTYPE(None, ctypes.c_void_p,
                           ctypes.POINTER(_header.weir_event))


def why_not(options: _header.weir_options) -> str:
    """What weir_open() has to say to these options, which it just refused:
    it says so within the call, in this thread, and starts none."""
    said: list[str] = []
    hear = EventFn(lambda _, event: said.append(
        event.contents.text.decode(errors="replace")))
    options.on_event = ctypes.cast(hear, ctypes.c_void_p).value
    weir = ctypes.c_void_p()
    if HOLDS.weir_open(options, weir) == 0:
        # Whatever it was, it has been mended meanwhile.
        RELEASES.weir_close(weir)
        said.append("try again")
    return said[-1] if said else ""


class Native:
    """A struct weir. C's rule is that no call may be running when it is
    closed; so every call goes by a reference to this object, and what closes
    it is the end of the last one."""

    __slots__ = ("weir", "calls", "_close")

    def __init__(self, weir: ctypes.c_void_p, calls: ctypes.CDLL) -> None:
        self.weir = weir
        self.calls = calls
        # At exit the module may be gone before this object is.
        self._close = RELEASES.weir_close

    def __del__(self) -> None:
        self._close(self.weir)
