-- SPDX-License-Identifier: MIT
-- shared_permits.lua - permits: the units in flight, and when each permit ends
-- at the latest.
--
-- State: a hash of units by id, with their sum in 'used'; beside it a sorted
-- set of ids by the instant at which they end. Rule: quantity, how long a
-- permit lasts, its id (all zeros: no permit's). algorithm_permits.c
-- explains each operation. The number of permits is bounded only by memory.

local quantity, lasts = argument(1), argument(2)
local id = ARGV[6]
local HASH, ENDS = KEYS[1], KEYS[2]
local CHUNK = 64
local NOBODY = '0000000000000000'

-- If only one of the two exists, the other was deleted by hand.
local used = tonumber(redis.call('HGET', HASH, 'used') or 0)
if redis.call('EXISTS', HASH) + redis.call('EXISTS', ENDS) < 2 then
    redis.call('DEL', HASH, ENDS)
    used = 0
end

local function take_out(permit)
    local units = redis.call('HGET', HASH, permit)
    used = used - tonumber(units or 0)
    redis.call('HDEL', HASH, permit)
    redis.call('ZREM', ENDS, permit)
end

local function put_in(permit, units)
    redis.call('HSET', HASH, permit, string.format('%d', units))
    redis.call('ZADD', ENDS, string.format('%.17g', now + lasts), permit)
    used = used + units
end

local function drop_ended()
    while true do
        local ended = redis.call('ZRANGEBYSCORE', ENDS, '-inf',
                                 string.format('%.17g', now), 'LIMIT', 0,
                                 CHUNK)
        if #ended == 0 then
            return
        end
        for _, permit in ipairs(ended) do
            take_out(permit)
        end
    end
end

-- us until enough permits have expired.
local function wait()
    local left, last, i = used, now, 0
    while true do
        local some = redis.call('ZRANGE', ENDS, i, i + CHUNK - 1,
                                'WITHSCORES')
        for k = 1, #some, 2 do
            if quantity_passes(quantity, left, weight) then
                return last - now
            end
            left = left - tonumber(redis.call('HGET', HASH, some[k]) or 0)
            last = tonumber(some[k + 1])
        end
        i = i + CHUNK
        if #some < 2 * CHUNK then
            return last - now
        end
    end
end

local function save_permits()
    local newest = redis.call('ZREVRANGE', ENDS, 0, 0, 'WITHSCORES')
    if #newest == 0 then
        redis.call('DEL', HASH, ENDS)
        return
    end
    local kept = string.format('%d', expiry(tonumber(newest[2]) - now))
    redis.call('HSET', HASH, 'used', string.format('%d', used))
    redis.call('PEXPIRE', HASH, kept)
    redis.call('PEXPIRE', ENDS, kept)
end

drop_ended()
local passed = quantity_passes(quantity, used, weight)
if takes and id ~= NOBODY then
    local there = redis.call('HGET', HASH, id)
    if there then
        take_out(id)
        put_in(id, tonumber(there))
        passed = true
    elseif passed and weight > 0 then
        put_in(id, weight)
    end
elseif op == 'refund' then
    take_out(id)
end
save_permits()
return quantity_answer(quantity, passed, used, quantity - used, wait)
