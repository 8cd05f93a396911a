-- SPDX-License-Identifier: MIT
-- shared_sliding.lua - sliding_window: the last window, estimated from parts.
--
-- State: window, the number of its parts, the number of the newest part, then
-- the units in each, the newest first. Rule: quantity, window, whether refused
-- units count, parts. algorithm/algorithm_sliding.c has the picture.

local quantity, window = argument(1), argument(2)
local count_limited = argument(3) == 1
local n = argument(4)

-- The number of the part that holds an instant, and how much of it has passed,
-- of 'width'.
local function part_at(at, width, parts)
    local into = math.fmod(at, width)
    local rest = into * parts
    local passed = math.fmod(rest, width)
    return (at - into) / width * parts + (rest - passed) / width, passed
end

local base, passed_now = part_at(now, window, n)
local newest, passed_part = base, passed_now
local part = {} -- from 0, the newest, to n

local function shift(steps)
    for i = n, 0, -1 do
        part[i] = i >= steps and part[i - steps] or 0
    end
end

local state = load()
shift(n + 1)
if state and state[1] == window and state[2] == n then
    for i = 0, n do
        part[i] = state[4 + i]
    end
    if state[3] > newest then
        newest, passed_part = state[3], 0
    end
    shift(math.min(newest - state[3], n + 1))
elseif state then
    -- The rule has changed: each part's units go to the part that holds its
    -- end.
    for i = 0, state[2] do
        local finish = (state[3] - i + 1) * state[1] / state[2] - 1
        local back = newest - part_at(math.min(finish, now), window, n)
        if back >= 0 and back <= n then
            part[back] = part[back] + state[4 + i]
        end
    end
end

local function whole_parts()
    local sum = 0
    for i = 0, n - 1 do
        sum = sum + part[i]
    end
    return sum
end

local function used_of()
    return whole_parts() + math.ceil(part[n] * (window - passed_part) / window)
end

-- The least time of the oldest part that must have passed for the weight to
-- pass.
local function least_passed(whole, oldest)
    if not quantity_passes(quantity, whole, weight) then
        return window
    end
    local room = quantity - weight - whole
    if room >= oldest then
        return 0
    end
    return window - math.floor(room * window / oldest)
end

-- us until enough units have left.
local function wait()
    local at, whole = newest, whole_parts()
    local least = least_passed(whole, part[n])
    for i = n - 1, 0, -1 do
        if least < window then
            break
        end
        at, whole = at + 1, whole - part[i]
        least = least_passed(whole, part[i])
    end
    if least >= window then
        at, least = at + 1, 0
    end
    return ((at - base) * window + least - passed_now) / n
end

-- Takes back the newest units first.
local function refund()
    local rest = weight
    for i = 0, n do
        local back = math.min(rest, part[i])
        part[i], rest = part[i] - back, rest - back
    end
end

local passed = quantity_passes(quantity, used_of(), weight)
local changed = false
if counts(passed, count_limited) then
    local units = quantity_adds(quantity, whole_parts() + part[n])
    part[0] = part[0] + units
    changed = units > 0
elseif op == 'refund' then
    refund()
    changed = weight > 0
end
if changed then
    local after = { window, n, newest }
    for i = 0, n do
        after[4 + i] = part[i]
    end
    local idle = ((newest + n + 1 - base) * window - passed_now) / n
    save(after, idle)
end
local used = used_of()
return quantity_answer(quantity, passed, used, quantity - used, wait)
