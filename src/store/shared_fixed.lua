-- SPDX-License-Identifier: MIT
-- shared_fixed.lua - fixed_window: a number of units in each window.
--
-- State: the kind of window (its length, or -1 to -5 for a calendar's), the
-- window's number, the units in it. Rule: quantity, length, whether refused
-- units count, calendar, offset of the zone in seconds. A number and not an
-- instant, because a day is 23 or 25 hours long when clocks change.

local MINUTE = 60000000
local DAY = 1440 * MINUTE
local LENGTH = { MINUTE, 60 * MINUTE, DAY, 7 * DAY }
local BEFORE = { 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334 }
local MONTH = -5

local quantity, window = argument(1), argument(2)
local count_limited = argument(3) == 1
local ahead = argument(5) * 1000000
local kind = argument(4) == 0 and window or -argument(4)

local function leap_days(year)
    local last = year - 1
    return math.floor(last / 4) - math.floor(last / 100) +
           math.floor(last / 400)
end

-- Days from 1970-01-01 to the first of a month, counted from January 1970.
local function month_day(month)
    local year, in_year = 1970 + math.floor(month / 12), month % 12
    return (year - 1970) * 365 - leap_days(1970) + BEFORE[in_year + 1] +
           leap_days(in_year >= 2 and year + 1 or year)
end

local function month_of(at)
    local day = math.floor(at / DAY)
    local month = math.floor(day * 4800 / 146097)
    while month_day(month + 1) <= day do
        month = month + 1
    end
    while month_day(month) > day do
        month = month - 1
    end
    return month
end

-- Exact, unlike a division, which rounds.
local function quotient(a, b)
    local rest = math.fmod(a, b)
    return (a - rest) / b
end

-- Weeks begin on Mondays, and 1970-01-01 was three days into one. Minutes and
-- hours don't repeat when clocks are set back by a whole hour.
local function shift(of)
    if of > -3 then
        return ahead % LENGTH[-of]
    end
    return ahead + (of == -4 and 3 * DAY or 0)
end

local function index_at(of, at)
    if of > 0 then
        return quotient(at, of)
    elseif of == MONTH then
        return month_of(at + ahead)
    end
    return quotient(at + shift(of), LENGTH[-of])
end

local function start_of(of, index)
    if of > 0 then
        return index * of
    elseif of == MONTH then
        return month_day(index) * DAY - ahead
    end
    return index * LENGTH[-of] - shift(of)
end

local index, used = index_at(kind, now), 0
local state = load()
if state and state[1] == kind then
    index = math.max(index, state[2])
    used = state[2] == index and state[3] or 0
elseif state and state[2] >= index_at(state[1], now) then
    -- The rule has changed: the units of its current window count in this one.
    used = state[3]
end

local finish = start_of(kind, index + 1)

-- A zone's clocks may be set back before the window ends, by less than the
-- window's length or a day. The window then ends later by that time, so the
-- state is kept as much longer.
local function kept_until()
    if kind > 0 then
        return finish
    end
    return finish + math.min(LENGTH[-kind] or DAY, DAY)
end

local passed = quantity_passes(quantity, used, weight)
local after = used
if counts(passed, count_limited) then
    after = used + quantity_adds(quantity, used)
elseif op == 'refund' then
    after = math.max(0, used - weight)
end
if after ~= used then
    save({ kind, index, after }, kept_until() - now)
end
return quantity_answer(quantity, passed, after, quantity - after, function()
    return finish - now
end)
