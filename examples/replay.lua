-- SPDX-License-Identifier: MIT
-- examples/replay.lua - makes wrk replay an access log at a given rate.
--
--     wrk -t1 -c32 -d60s -s replay.lua http://HOST:PORT -- LOG.gz RATE SKIP
--
-- Client and path of each line become the header X-Client and the path; the log
-- is repeated, from line SKIP on. wrk alone sends as fast as answers come; here
-- each request has its instant in a schedule of RATE a second, and one that is
-- late is sent at once. So the load stays the same whether requests pass or are
-- refused, as that of real clients does.

local ffi = require("ffi")
ffi.cdef [[
    struct replay_time { long s; long ns; };
    int clock_gettime(int clock, struct replay_time *out);
]]
local MONOTONIC = 1

local requests, at = {}, 0
local due, interval = nil, nil
local clock = ffi.new("struct replay_time")

local function now_ms()
    ffi.C.clock_gettime(MONOTONIC, clock)
    return tonumber(clock.s) * 1000 + tonumber(clock.ns) / 1e6
end

function init(args)
    local log, rate, skip = args[1], tonumber(args[2]), tonumber(args[3])
    interval = 1000 / rate
    local pipe = assert(io.popen("gzip -dc '" .. log .. "'"))
    for line in pipe:lines() do
        local client, path = line:match('^(%S+) .-"%u+ (/[^ "]*) ')
        if client then
            requests[#requests + 1] =
                wrk.format("GET", path, { ["X-Client"] = client })
        end
    end
    pipe:close()
    assert(#requests > 0, "no request in " .. log)
    at = skip % #requests
end

function request()
    at = at % #requests + 1
    return requests[at]
end

function delay()
    local now = now_ms()
    due = (due or now) + interval
    -- After a pause of the machine the missed requests aren't sent at once.
    if due < now - 200 then
        due = now
    end
    return math.max(0, math.floor(due - now + 0.5))
end

function done(summary, latency, _)
    local errors = summary.errors
    io.write(string.format(
        '{"requests": %d, "failed": %d, "p50_ms": %.2f, "p99_ms": %.2f}\n',
        summary.requests,
        errors.connect + errors.read + errors.write + errors.timeout,
        latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
