-- SPDX-License-Identifier: Apache-2.0
-- Batch jobs, one after the other.
local dir = debug.getinfo(1, "S").source:match("@(.*/)")
dofile(dir .. "report.lua")
local n = 0
function request()
    n = n + 1
    return wrk.format("POST", "/api/v1/jobs", nil, string.format('{"input_dataset":"file-%d","endpoint":"/v1/chat/completions"}', n))
end
