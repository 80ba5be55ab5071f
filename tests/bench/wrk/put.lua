-- SPDX-License-Identifier: Apache-2.0
-- Progress reports of 1,000 copies, one after the other.
local dir = debug.getinfo(1, "S").source:match("@(.*/)")
dofile(dir .. "report.lua")
local n = 0
function request()
    n = n + 1
    local body = string.format('{"session":"bench","node_name":"n1","file_name":"weights.gguf","bytes_sent":%d,"total_bytes":1000000000}', n)
    return wrk.format("PUT", "/api/v1/staging/bench-" .. n % 1000, nil, body)
end
