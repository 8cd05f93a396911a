# SPDX-License-Identifier: MIT
"""_library.py - libweir.so itself: found, its functions typed, and a limiter
that is closed with its last user.

ctypes and not cffi: nothing has to be compiled or installed beside libweir,
and each call can keep or release the interpreter's lock. Calls that never wait
keep it: releasing it costs more than a tenth of a microsecond's work. Calls
that wait (ready, sync, close; and every decision with exact quotas, which ask
a store) release it.

libweir's thread never calls into Python: it would have to wait for the
interpreter's lock, perhaps while it holds a lock of the table for which the
interpreter's thread spins. Events are fetched (event_next)."""

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
HOLDS = _typed(ctypes.PyDLL, _PATH)    # keeps the interpreter's lock
RELEASES = _typed(ctypes.CDLL, _PATH)  # releases it

VERSION = HOLDS.weir_version().decode()
if VERSION != _header.VERSION:
    raise ImportError(f"libweir is {VERSION}, and this package is for "
                      f"{_header.VERSION}")


def exact() -> Any:
    """libweir-exact's value for options.exact."""
    library = ctypes.CDLL(_path("WEIR_EXACT_LIBRARY", "libweir-exact.so.0"))
    library.weir_exact.restype = ctypes.c_void_p
    library.weir_exact.argtypes = []
    return library.weir_exact()


EventFn = ctypes.CFUNCTYPE(None, ctypes.c_void_p,
                           ctypes.POINTER(_header.weir_event))


def why_not(options: _header.weir_options) -> str:
    """The reason why weir_open() refused these options: it reports it by an
    event within the call, in this thread, and starts no thread."""
    said: list[str] = []
    hear = EventFn(lambda _, event: said.append(
        event.contents.text.decode(errors="replace")))
    options.on_event = ctypes.cast(hear, ctypes.c_void_p).value
    weir = ctypes.c_void_p()
    if HOLDS.weir_open(options, weir) == 0:
        # The cause has been removed meanwhile.
        RELEASES.weir_close(weir)
        said.append("try again")
    return said[-1] if said else ""


class Native:
    """A struct weir. In C no call may be running when it is closed. So every
    call holds a reference to this object, and the end of the last reference
    closes it."""

    __slots__ = ("weir", "calls", "_close")

    def __init__(self, weir: ctypes.c_void_p, calls: ctypes.CDLL) -> None:
        self.weir = weir
        self.calls = calls
        # At exit the module may be gone before this object is.
        self._close = RELEASES.weir_close

    def __del__(self) -> None:
        self._close(self.weir)
