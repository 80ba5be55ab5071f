-- SPDX-License-Identifier: Apache-2.0
--
-- Slots of the provisioner `local`: one row for each that is taken. A name has as many as its job has replicas.
CREATE TABLE local_slot (
    slot int PRIMARY KEY CHECK (slot > 0),
    name text NOT NULL,
    taken_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX local_slot_name ON local_slot (name);
