-- SPDX-License-Identifier: Apache-2.0
-- A line of a batch as the runner sends it.
local dir = debug.getinfo(1, "S").source:match("@(.*/)")
dofile(dir .. "report.lua")
wrk.method = "POST"
wrk.body = '{"model":"m","messages":[{"role":"user","content":"line 1234567"}]}'
