-- SPDX-License-Identifier: Apache-2.0
-- A call that writes: the end of a file of a copy.
local dir = debug.getinfo(1, "S").source:match("@(.*/)")
dofile(dir .. "report.lua")
local n = 0
function request()
    n = n + 1
    return wrk.format("POST", "/api/v1/staging/bench-" .. n % 50 .. "/file-complete", nil,
        '{"session":"bench","file_index":1,"total_files":4}')
end
