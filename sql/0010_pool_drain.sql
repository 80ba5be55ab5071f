-- SPDX-License-Identifier: Apache-2.0
--
-- A pool that is drained keeps its queue and finishes what is planned; nothing more is planned for it. `resumed`
-- counts how often that ended: planners look at it together with the enqueue sequence.
ALTER TABLE pool ADD COLUMN drained_at timestamptz, ADD COLUMN drained_by text NOT NULL DEFAULT '',
    ADD COLUMN resumed int NOT NULL DEFAULT 0;
