-- SPDX-License-Identifier: Apache-2.0
-- Each connection is a tab that polls once a second.
local dir = debug.getinfo(1, "S").source:match("@(.*/)")
dofile(dir .. "report.lua")
function delay()
    return math.random(500, 1500)
end
