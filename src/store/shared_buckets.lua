-- SPDX-License-Identifier: MIT
-- shared_buckets.lua - token_buckets: two to four in a row; one of them pays.
--
-- State: an instant, and each bucket's fill at it. Rule: the level of a refund,
-- the number of buckets, then for each: units per us, burst, whether it is
-- filled only by the overflow of the one before. algorithm_row.c explains each
-- operation.

local level, count = argument(1), argument(2)
local rate, burst, spill, fill = {}, {}, {}, {}
for k = 1, count do
    rate[k], burst[k] = argument(3 * k), argument(3 * k + 1)
    spill[k] = argument(3 * k + 2) == 1
end

local state = load() or { now }
now = math.max(now, state[1])
local over = 0
for k = 1, count do
    local gone = spill[k] and over or (now - state[1]) * rate[k]
    local left = (state[k + 1] or 0) - gone
    over = math.max(0, -left)
    fill[k] = math.max(0, left)
end

local function leak_time(k, units)
    if units <= 0 then
        return 0
    end
    return rate[k] > 0 and units / rate[k] or NEVER
end

-- us until bucket k can pay.
local function wait_for(k)
    if weight > burst[k] then
        return NEVER
    end
    local before = fill[k] + weight - burst[k]
    if before <= 0 then
        return 0
    end
    while spill[k] do
        k = k - 1
        before = before + fill[k]
    end
    return leak_time(k, before)
end

-- The bucket that pays; or nil, the time until one can, and whether one ever
-- can.
local function payer()
    local first, fits = NEVER, false
    if burst[1] < 0 then
        return nil, first, fits
    end
    for k = 1, count do
        local wait = wait_for(k)
        if wait == 0 then
            return k, 0, true
        end
        if wait ~= NEVER and (first == NEVER or wait < first) then
            first = wait
        end
        fits = fits or weight <= burst[k]
    end
    return nil, first, fits
end

local function charge(k)
    local top = math.max(burst[k], 0) + DEBT_MAX
    if fill[k] < top then
        fill[k] = math.min(top, fill[k] + weight)
    end
end

-- A refund beyond a bucket's burst isn't passed on to another bucket.
local function refund()
    local k = level < count and level + 1 or 1
    fill[k] = math.max(0, fill[k] - weight)
end

-- us until all are empty.
local function idle()
    local longest, run, from = 0, 0, 1
    for k = 1, count do
        from = spill[k] and from or k
        run = (spill[k] and run or 0) + fill[k]
        local rest = leak_time(from, run)
        if rest == NEVER then
            return NEVER
        end
        longest = math.max(longest, rest)
    end
    return longest
end

local pays, retry, fits = payer()
local passed = pays ~= nil or unasked
if passed and op ~= 'peek' and weight > 0 then
    if op == 'refund' then
        refund()
    else
        charge(pays or 1)
    end
    local after = { now }
    for k = 1, count do
        after[k + 1] = fill[k]
    end
    save(after, idle())
end

local used, remaining = 0, 0
for k = 1, count do
    used = used + math.ceil(fill[k])
    remaining = remaining + math.floor(math.max(0, burst[k] - fill[k]))
end
local paid = 0
if pays and op ~= 'refund' then
    paid = pays - 1
end
return answer(passed, not passed and not fits, paid, used, remaining,
              passed and 0 or retry, 0)
