-- SPDX-License-Identifier: Apache-2.0
--
-- When a control was last written: what belongs to no operation any more is kept for a while, so that whoever
-- does the work still learns that it was cancelled after the history has been cleared.
ALTER TABLE operation_control ADD COLUMN changed_at timestamptz NOT NULL DEFAULT now();

-- nodes is written once a second while an operation runs.
ALTER TABLE operation_control SET (fillfactor = 70);
