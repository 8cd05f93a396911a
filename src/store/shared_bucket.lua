-- SPDX-License-Identifier: MIT
-- shared_bucket.lua - leaky, token_bucket and leaky_queue: one bucket.
--
-- State: the fill in units (below 0: tokens above the burst, which don't leak)
-- and the instant of that fill. Rule: units per us, burst (below 0: refuses
-- all), the fill of a bucket that was never used, whether it is a queue.
-- algorithm/algorithm_word.c explains each operation.

local rate, burst, first = argument(1), argument(2), argument(3)
local queue = argument(4) == 1
local top = math.max(burst, 0) + DEBT_MAX

local fill = first
local state = load()
if state then
    -- Tokens above the burst are kept only up to the rule's current first fill.
    fill = math.max(state[1], math.min(first, 0))
    now = math.max(now, state[2])
    if fill > 0 then
        fill = math.max(0, fill - (now - state[2]) * rate)
    end
end

local function leak_time(units)
    if units <= 0 then
        return 0
    end
    return rate > 0 and units / rate or NEVER
end

-- us until the weight may pass.
local function turn()
    local before = queue and fill or fill + weight - burst
    if weight > burst and (queue or before > 0) then
        return NEVER
    end
    return leak_time(before)
end

local passed, retry, wait = true, 0, 0
if not unasked then
    retry = turn()
    passed = retry == 0
    if op == 'reserve' and retry > 0 then
        local full = leak_time(fill - (queue and burst or top - weight))
        local late = math.max(retry - wait_max, full)
        passed = late <= 0 and full ~= NEVER
        wait = passed and retry or 0
        retry = passed and 0 or math.max(late, 0)
    end
end

local after = fill
if op == 'refund' then
    after = math.max(fill < 0 and first or 0, fill - weight)
elseif (op == 'charge' or takes and passed) and fill < top then
    after = math.min(top, fill + weight)
end
if after ~= fill or not state and fill > 0 then
    save({ after, now }, first ~= 0 and NEVER or leak_time(after))
end

local remaining = math.max(0, burst - after)
if queue and after > 0 then
    remaining = 0
end
return answer(passed, not passed and weight > burst, 0, after, remaining,
              retry, wait)
