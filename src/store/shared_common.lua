-- SPDX-License-Identifier: MIT
-- shared_common.lua - the part that all scripts share.
--
-- 'local now', microseconds of the server's clock, precedes this text, and one
-- algorithm follows it. A bucket state is a readable string of numbers: GET
-- weir:{NAME}:leaky returns the fill in units and its instant. Arguments: OP
-- WEIGHT WAIT_MAX, then the rule's, all in units and microseconds. The answer
-- is seven integers, named in algorithm.h; -1 us means never.
--
-- Numbers are doubles. Instants are exact integers below 2^53 (the year 2255),
-- and so are counts of units. A fill has a fraction: each step rounds it by at
-- most 2^-53 of itself, so after n steps since it was last empty it is off by
-- less than n * burst * 2^-52 units: for a burst of 1,000 and a billion steps,
-- 0.0003.

local op = ARGV[1]
local weight = tonumber(ARGV[2])
local wait_max = tonumber(ARGV[3])
local DEBT_MAX = 1099511627776 -- 2^40
local NEVER = -1
local TEN_YEARS_MS = 315360000000
local KEPT_MS = 10000

local function argument(i)
    return tonumber(ARGV[3 + i])
end

-- Whether the weight is charged if it passes.
local takes = op == 'take' or op == 'reserve'
-- Whether the operation can't be refused.
local unasked = op == 'charge' or op == 'refund'

-- The numbers of the state, or nil: never used, or expired.
local function load()
    local text = redis.call('GET', KEYS[1])
    if not text then
        return nil
    end
    local state = {}
    for word in string.gmatch(text, '%S+') do
        state[#state + 1] = tonumber(word)
    end
    return state
end

-- The expiry of a state that is as if unused in 'idle' us: a little later, so
-- that a clock that is set back meanwhile loses nothing.
local function expiry(idle)
    if idle == NEVER then
        return TEN_YEARS_MS
    end
    return math.min(math.ceil(idle / 1000) + KEPT_MS, TEN_YEARS_MS)
end

local function save(state, idle)
    for i, number in ipairs(state) do
        state[i] = string.format('%.17g', number)
    end
    redis.call('SET', KEYS[1], table.concat(state, ' '), 'PX',
               string.format('%d', expiry(idle)))
end

local function whole(number)
    return math.max(-4611686018427387904, math.min(number,
                                                   4611686018427387904))
end

local function answer(passed, never, level, used, remaining, retry, wait)
    return { passed and 1 or 0, never and 1 or 0, level,
             whole(math.ceil(used)), whole(math.floor(remaining)),
             whole(math.ceil(retry)), whole(math.ceil(wait)) }
end

-- ---- Windows and the log: 'used' of 'quantity' units ----

local function quantity_passes(quantity, used, units)
    return quantity > 0 and used + units <= quantity
end

local function counts(passed, count_limited)
    if op == 'charge' then
        return true
    end
    return takes and (passed or count_limited)
end

-- The part of the weight that is added to 'used', which saturates.
local function quantity_adds(quantity, used)
    return math.max(0, math.min(weight, quantity + DEBT_MAX - used))
end

-- 'retry' is called only if it is needed.
local function quantity_answer(quantity, passed, used, remaining, retry)
    passed = passed or unasked
    local never = not passed and (quantity == 0 or weight > quantity)
    local after = 0
    if not passed then
        after = never and NEVER or retry()
    end
    return answer(passed, never, 0, used, math.max(0, remaining), after, 0)
end
