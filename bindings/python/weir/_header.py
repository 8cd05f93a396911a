# SPDX-License-Identifier: MIT
"""weir.h as ctypes has it: made by declare.py, not to be edited."""

import enum
from ctypes import (POINTER, Structure, c_bool, c_char, c_char_p, c_double,
                    c_int, c_int32, c_int64, c_size_t, c_uint, c_uint8,
                    c_uint32, c_uint64, c_void_p)

NEVER = 2**64 - 1
SECOND = 1000000000
MILLISECOND = 1000000
NAME_MAX = 255
GIVEN_NAME_MAX = 65536
WEIGHT_MAX = (1 << 32)
DEPTH_MAX = 16
ROOTS_MAX = 8
DEBT_MAX = (1 << 40)
NO_LOCK_WAIT = 1
PROCESSES_MAX = 62
VERSION = "0.1.0"


class Error(enum.IntEnum):
    OK = 0
    EINVAL = -1
    ENOMEM = -2
    ENAME = -3
    EQUOTA = -4
    EPARENT = -5
    ECYCLE = -6
    EDEPTH = -7
    EEXIST = -8
    ENOENT = -9
    ECHILDREN = -10
    EFULL = -11
    ETIMEOUT = -12
    ESYNTAX = -13
    ETOOBIG = -14
    EPROTOCOL = -15
    ESTORE = -16
    ELOCKED = -17
    ESCHEMA = -18
    ESYSTEM = -19
    ECONNECT = -20
    ECLOSED = -21
    ENOTREADY = -22
    ECREDENTIAL = -23
    EDENIED = -24
    ECHANGED = -25
    ETLS = -26
    ETABLE = -27


class Verdict(enum.IntEnum):
    PASSED = 0
    LIMITED = 1


class EventType(enum.IntEnum):
    ROOT_UP = 1
    ROOT_DOWN = 2
    READY = 3
    STALE = 4
    FRESH = 5
    TABLE_FULL = 6
    STORE_CHANGED = 7
    REPORT_BACKOFF = 8
    FORKED = 9
    LOST = 10
    CREDENTIAL = 11
    QUOTA_UNKNOWN = 12
    EXACT_AWAY = 13
    EXACT_BACK = 14
    ZONE = 15
    ADAPTIVE_FULL = 16
    ELSEWHERE = 17
    TABLE = 18
    REPORTER = 19
    DENIED = 20
    SNAPSHOT = 21
    FEW_ROOTS = 22


class TableRole(enum.IntEnum):
    MAY_RUN = 0
    RUNS = 1
    DECIDES = 2


class OnFull(enum.IntEnum):
    REFUSE = 0
    PASS = 1


class WhenLocked(enum.IntEnum):
    LIMITS = 0
    PASSES = 1


class PermitOutcome(enum.IntEnum):
    SUCCESS = 0
    DROPPED = 1
    IGNORED = 2


class weir_reply(Structure):
    _fields_ = [
        ("verdict", c_int),
        ("unknown", c_bool),
        ("never", c_bool),
        ("stale", c_bool),
        ("shadow", c_bool),
        ("exact", c_bool),
        ("full", c_bool),
        ("contended", c_bool),
        ("leased", c_bool),
        ("granted", c_double),
        ("fill", c_int64),
        ("remaining", c_uint64),
        ("retry_after", c_uint64),
        ("wait", c_uint64),
        ("level", c_uint8),
        ("quota_len", c_uint8),
        ("quota", c_char * (NAME_MAX + 1)),
    ]


class weir_event(Structure):
    _fields_ = [
        ("type", c_int),
        ("at", c_uint64),
        ("count", c_uint64),
        ("text", c_char * 192),
    ]


class weir_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("roots", c_char_p),
        ("name", c_char_p),
        ("memory_max", c_uint64),
        ("on_full", c_int),
        ("threads_max", c_uint32),
        ("on_event", c_void_p),
        ("event_context", c_void_p),
        ("tls_ca", c_char_p),
        ("tls_cert", c_char_p),
        ("tls_key", c_char_p),
        ("token_file", c_char_p),
        ("exact", c_void_p),
        ("exact_secrets_file", c_char_p),
        ("exact_prefix", c_char_p),
        ("lease_priority", c_int64),
        ("leases_max", c_uint32),
        ("adaptive_max", c_uint32),
        ("table", c_char_p),
        ("table_role", c_int),
        ("lock_wait", c_uint64),
        ("when_locked", c_int),
        ("snapshot", c_char_p),
    ]


class weir_handle(Structure):
    _fields_ = [
        ("weir", c_void_p),
        ("slot", c_uint32),
        ("generation", c_uint32),
    ]


class weir_request(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("len", c_size_t),
        ("weight", c_uint64),
        ("verdict", c_int),
    ]


class weir_policy(Structure):
    _fields_ = [
        ("concurrency", c_bool),
        ("quantity", c_uint64),
        ("window", c_uint64),
    ]


class weir_adaptive(Structure):
    _fields_ = [
        ("limit", c_double),
        ("before", c_double),
        ("reason", c_char_p),
        ("moved_at", c_uint64),
        ("latency", c_uint64),
        ("windows", c_uint64),
        ("in_flight", c_uint64),
        ("overdue", c_uint64),
        ("overdue_age", c_uint64),
        ("lost", c_uint64),
        ("fleet", c_bool),
        ("alone", c_bool),
    ]


class weir_permit(Structure):
    _fields_ = [
        ("words", c_uint64 * 16),
    ]


class weir_status(Structure):
    _fields_ = [
        ("roots", c_uint32),
        ("roots_up", c_uint32),
        ("roots_there", c_uint32),
        ("few_roots", c_bool),
        ("epoch", c_uint64),
        ("slots", c_uint32),
        ("slots_used", c_uint32),
        ("memory", c_uint64),
        ("memory_max", c_uint64),
        ("lacking", c_uint32),
        ("on_full", c_int),
        ("ready", c_bool),
        ("stale", c_bool),
        ("unknown", c_uint64),
        ("overflowed", c_uint64),
        ("reports", c_uint64),
        ("adaptive", c_uint32),
        ("adaptive_overflowed", c_uint32),
        ("waiting", c_uint32),
        ("contended", c_uint64),
        ("overflowed_age", c_uint64),
        ("growth_failed", c_bool),
    ]


# Name -> result type, argument types.
FUNCTIONS = {
    "weir_strerror": (c_char_p, [c_int]),
    "weir_open": (c_int, [POINTER(weir_options), POINTER(c_void_p)]),
    "weir_check": (c_int, [POINTER(weir_options)]),
    "weir_open_in": (c_int, [c_void_p, c_size_t, POINTER(weir_options),
        POINTER(c_void_p)]),
    "weir_table_bytes": (c_size_t, [POINTER(weir_options)]),
    "weir_ready": (c_int, [c_void_p, c_uint64]),
    "weir_sync": (c_int, [c_void_p, c_uint64]),
    "weir_close": (None, [c_void_p]),
    "weir_define": (c_int, [c_void_p, POINTER(c_char_p), c_char_p, c_size_t]),
    "weir_handle_open": (c_int, [c_void_p, c_char_p, c_size_t,
        POINTER(weir_handle)]),
    "weir_handle_close": (None, [weir_handle]),
    "weir_take": (c_int, [weir_handle, c_uint64, POINTER(weir_reply),
        c_uint64]),
    "weir_take_by_name": (c_int, [c_void_p, c_char_p, c_size_t, c_uint64,
        POINTER(weir_reply), c_uint64]),
    "weir_name_is_valid": (c_bool, [c_char_p, c_size_t]),
    "weir_take_many": (c_size_t, [c_void_p, POINTER(weir_request), c_size_t,
        c_uint64]),
    "weir_peek": (c_int, [weir_handle, c_uint64, POINTER(weir_reply),
        c_uint64]),
    "weir_peek_by_name": (c_int, [c_void_p, c_char_p, c_size_t, c_uint64,
        POINTER(weir_reply), c_uint64]),
    "weir_charge": (None, [weir_handle, c_uint64, c_uint64]),
    "weir_refund": (None, [weir_handle, c_uint64, c_uint64]),
    "weir_settle": (None, [weir_handle, c_void_p, c_uint64, c_uint64]),
    "weir_charge_by_name": (c_bool, [c_void_p, c_char_p, c_size_t, c_uint64,
        c_uint64]),
    "weir_refund_by_name": (c_bool, [c_void_p, c_char_p, c_size_t, c_uint64,
        c_uint64]),
    "weir_settle_by_name": (c_bool, [c_void_p, c_char_p, c_size_t, c_void_p,
        c_uint64, c_uint64]),
    "weir_reserve": (c_int, [weir_handle, c_uint64, c_uint64,
        POINTER(weir_reply), c_uint64]),
    "weir_wait": (c_int, [weir_handle, c_uint64, c_uint64,
        POINTER(weir_reply)]),
    "weir_policy": (c_int, [c_void_p, c_char_p, c_size_t,
        POINTER(weir_policy)]),
    "weir_want": (c_int, [weir_handle, c_double, c_uint64]),
    "weir_class": (c_uint32, [c_char_p, c_size_t]),
    "weir_adaptive": (c_int, [weir_handle, POINTER(weir_adaptive), c_uint64]),
    "weir_enter": (c_int, [weir_handle, c_uint32, c_uint64,
        POINTER(weir_permit), POINTER(weir_reply), c_uint64]),
    "weir_enter_wait": (c_int, [weir_handle, c_uint32, c_uint64, c_int64,
        c_uint64, POINTER(weir_permit), POINTER(weir_reply)]),
    "weir_enter_by_name": (c_int, [c_void_p, c_char_p, c_size_t, c_uint32,
        c_uint64, POINTER(weir_permit), POINTER(weir_reply), c_uint64]),
    "weir_leave": (None, [POINTER(weir_permit), c_int, c_uint64]),
    "weir_event_fd": (c_int, [c_void_p]),
    "weir_event_next": (c_bool, [c_void_p, POINTER(weir_event)]),
    "weir_status": (None, [c_void_p, POINTER(weir_status)]),
    "weir_version": (c_char_p, []),
}
