-- SPDX-License-Identifier: MIT
-- weir.lua - the quotas of nginx's weir module for Lua in nginx.
--
--     local weir = require "weir"
--     weir.check_by_name("s3_photos_write")    -- ends the request with 429
--     weir.take_by_name("s3_photos_write", 3)  -- charges 3 units
--
-- The limiter is the worker's own, in the zone of weir_zone: `weir` directives,
-- Lua and other workers decide on the same counts. No call waits. If no
-- weir_zone is defined, or it can't be opened, everything passes.
--
-- LuaJIT's FFI finds libweir and the module in the process: nginx has loaded
-- both, for all to see.

local ffi = require "ffi"

ffi.cdef[[
struct weir;
struct weir_reply {
    int verdict;
    bool unknown, never, stale, shadow, exact, full, contended, leased;
    double granted;
    int64_t fill;
    uint64_t remaining, retry_after, wait;
    uint8_t level, quota_len;
    char quota[256];
};
struct weir *ngx_http_weir_limiter(void);
int weir_take_by_name(struct weir *weir, const char *name, size_t len,
                      uint64_t weight, struct weir_reply *reply, uint64_t now);
int weir_peek_by_name(struct weir *weir, const char *name, size_t len,
                      uint64_t weight, struct weir_reply *reply, uint64_t now);
bool weir_charge_by_name(struct weir *weir, const char *name, size_t len,
                         uint64_t weight, uint64_t now);
bool weir_settle_by_name(struct weir *weir, const char *name, size_t len,
                         uint64_t *charged, uint64_t actual, uint64_t now);
bool weir_name_is_valid(const char *name, size_t len);
]]

local C = ffi.C
local NEVER = 0xffffffffffffffffULL
local WEIGHT_MAX = 4294967296    -- WEIR_WEIGHT_MAX of weir.h
local DEBT_MAX = 1099511627776   -- WEIR_DEBT_MAX
local receipt = ffi.new("uint64_t[1]")
local reply = ffi.new("struct weir_reply")

local _M = { _VERSION = "0.1.0" }


-- The details of a refusal: 'quota' refused (nil: none did, the name is too
-- long, or has no room), and in 'retry_after' seconds (nil: never) there may be
-- room.
local function explain(unknown)
    if unknown then
        return { never = true }
    end

    local never = reply.never or reply.retry_after == NEVER

    return {
        quota = reply.quota_len > 0
                and ffi.string(reply.quota, reply.quota_len) or nil,
        fill = tonumber(reply.fill),
        remaining = tonumber(reply.remaining),
        retry_after = not never and tonumber(reply.retry_after) / 1e9 or nil,
        never = never,
        stale = reply.stale,
    }
end


-- A number that LuaJIT converts to uint64_t as it is: 2^64 would be 0, and 0 is
-- free.
local function units(number, most)
    if type(number) ~= "number" or number < 0 or number % 1 ~= 0 then
        error("a weight is a whole number, 0 or more", 4)
    end

    return math.min(number, most)
end


-- true, or false and the details. A name that can't be a quota's is refused, as
-- by the directive.
local function ask(how, name, weight)
    local weir = C.ngx_http_weir_limiter()

    if weir == nil then
        return true
    end

    weight = units(weight or 1, WEIGHT_MAX)

    if how(weir, name, #name, weight, reply, 0) == 0 then
        if not reply.unknown or C.weir_name_is_valid(name, #name) then
            return true
        end

        return false, explain(true)
    end

    return false, explain(false)
end


-- Charges 'weight' units (1) if they pass. Returns true, or false and a table:
-- quota, fill, remaining, retry_after, never, stale.
function _M.take_by_name(name, weight)
    return ask(C.weir_take_by_name, name, weight)
end


-- Charges 'weight' units without a decision: for a cost known afterwards, as in
-- log_by_lua. Returns whether the name has a quota.
function _M.charge_by_name(name, weight)
    local weir = C.ngx_http_weir_limiter()

    weight = units(weight, DEBT_MAX)
    return weir ~= nil and C.weir_charge_by_name(weir, name, #name, weight, 0)
end


-- Charges or gives back the difference between the units 'charged' for some
-- work so far, taken or settled, and the 'actual' ones. Returns the units that
-- are charged for it now, for the next call; 'charged' if there is no quota.
function _M.settle_by_name(name, charged, actual)
    local weir = C.ngx_http_weir_limiter()

    receipt[0] = units(charged, DEBT_MAX)
    actual = units(actual, DEBT_MAX)

    if weir ~= nil then
        C.weir_settle_by_name(weir, name, #name, receipt, actual, 0)
    end

    return tonumber(receipt[0])
end


-- Decides as take_by_name() would, and charges nothing.
function _M.peek_by_name(name, weight)
    return ask(C.weir_peek_by_name, name, weight)
end


-- Ends the request with 429 and Retry-After if 'weight' units (1) wouldn't pass
-- now. Charges nothing.
function _M.check_by_name(name, weight)
    local passed, why = ask(C.weir_peek_by_name, name, weight)

    if passed then
        return
    end

    if why.retry_after then
        ngx.header["Retry-After"] = math.max(1, math.ceil(why.retry_after))
    end

    return ngx.exit(429)
end


return _M
