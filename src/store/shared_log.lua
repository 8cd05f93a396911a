-- SPDX-License-Identifier: MIT
-- shared_log.lua - sliding_log: the counted units and their instants.
--
-- State: the units in all entries; the entries themselves are a list beside it,
-- "INSTANT UNITS" each, the oldest first. Rule: quantity, window, whether
-- refused units count, the most entries. algorithm_log.c explains each
-- operation.

local quantity, window = argument(1), argument(2)
local count_limited = argument(3) == 1
local entries_max = argument(4)
local LIST = KEYS[2]
local CHUNK = 64

local function parse(entry)
    local at, units = string.match(entry, '^(%S+) (%S+)$')
    return tonumber(at), tonumber(units)
end

local function format(at, units)
    return string.format('%.17g %.17g', at, units)
end

local state = load()
if not state then
    redis.call('DEL', LIST)
end
local used = state and state[1] or 0
local before = used
local count = redis.call('LLEN', LIST)
local real = now

local function newest()
    return parse(redis.call('LINDEX', LIST, -1))
end

if count > 0 then
    now = math.max(now, (newest()))
end
while count > 0 do
    local at, units = parse(redis.call('LINDEX', LIST, 0))
    if now - at < window then
        break
    end
    redis.call('LPOP', LIST)
    used, count = used - units, count - 1
end

local function has_place()
    return count < entries_max
end

local function add(units)
    if units == 0 then
        return
    end
    used = used + units
    if has_place() then
        redis.call('RPUSH', LIST, format(now, units))
        count = count + 1
    else
        local _, there = newest()
        redis.call('LSET', LIST, -1, format(now, there + units))
    end
end

-- Takes back the newest units first.
local function refund(units)
    while units > 0 and count > 0 do
        local at, there = newest()
        local back = math.min(units, there)
        used, units = used - back, units - back
        if back < there then
            redis.call('LSET', LIST, -1, format(at, there - back))
        else
            redis.call('RPOP', LIST)
            count = count - 1
        end
    end
end

-- us until enough units have left the window.
local function wait()
    local left, place, i = used, weight == 0 or has_place(), 0
    local last = now
    while i < count do
        for _, entry in ipairs(redis.call('LRANGE', LIST, i, i + CHUNK - 1)) do
            if place and quantity_passes(quantity, left, weight) then
                return last + window - real
            end
            local at, units = parse(entry)
            last, left, place, i = at, left - units, true, i + 1
        end
    end
    return last + window - real
end

local passed = quantity_passes(quantity, used, weight) and
               (weight == 0 or has_place())
if counts(passed, count_limited) then
    add(quantity_adds(quantity, used))
elseif op == 'refund' then
    refund(weight)
end
if count == 0 then
    redis.call('DEL', KEYS[1], LIST)
elseif used ~= before or not state then
    local idle = newest() + window - real
    save({ used }, idle)
    redis.call('PEXPIRE', LIST, string.format('%d', expiry(idle)))
end
local remaining = has_place() and quantity - used or 0
return quantity_answer(quantity, passed, used, remaining, wait)
