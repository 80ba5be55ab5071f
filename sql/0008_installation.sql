-- SPDX-License-Identifier: Apache-2.0
--
-- The name of this installation, which the names of its machines carry, so that machines of another one are never
-- taken for its own. Made once; [planner] cluster overrides it.
CREATE TABLE installation (
    id boolean PRIMARY KEY DEFAULT true CHECK (id), -- one row
    name varchar(12) NOT NULL CHECK (name ~ '^[a-z0-9]+$')
);
INSERT INTO installation (name) VALUES (left(replace(gen_random_uuid()::text, '-', ''), 12));
