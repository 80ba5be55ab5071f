-- SPDX-License-Identifier: Apache-2.0
--
-- Of more tenants than one plan looks at, policy `fair` sees some, a window of them, and moves on when each has had its
-- turn: where that window is. lib/model/policy.h tells of the numbers.
ALTER TABLE planner_lease ADD COLUMN window_from text NOT NULL DEFAULT '', -- its first tenant, or where one would be
    ADD COLUMN window_round bigint NOT NULL DEFAULT 0,
    ADD COLUMN window_left bigint NOT NULL DEFAULT -1;
