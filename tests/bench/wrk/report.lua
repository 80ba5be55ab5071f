-- SPDX-License-Identifier: Apache-2.0
-- Prints what wrk found as one line that the driver reads.
function done(summary, latency, requests)
    local e = summary.errors
    io.write(string.format("RESULT %d %d %d %d %d %d %.0f %.0f\n", summary.requests, summary.duration, e.connect, e.read + e.write,
        e.timeout, e.status, latency:percentile(50), latency:percentile(99)))
end
