-- SPDX-License-Identifier: Apache-2.0
--
-- What we keep beside the existing tables. No foreign keys to them: their rows come and go by other
-- programs too, which must never be refused because of us.

-- Who holds a load. A claim counts only beside the row it was made for: the same key may be inserted
-- anew by a program that knows nothing of claims, hence claimed_created_at.
CREATE TABLE load_job_claims (
    tracking_key varchar(255) PRIMARY KEY,
    token_sha256 char(64) NOT NULL,
    claimed_at timestamptz NOT NULL DEFAULT now(),
    claimed_created_at timestamptz NOT NULL,
    bytes_moved_at timestamptz
) WITH (fillfactor = 70);

COMMENT ON COLUMN load_job_claims.claimed_created_at IS
    'created_at of the row of model_load_jobs that was claimed';
COMMENT ON COLUMN load_job_claims.bytes_moved_at IS
    'when bytes last moved, or the state last changed: a heartbeat alone does not touch it';

CREATE TABLE operation_control (
    job_id varchar(36) PRIMARY KEY,
    control varchar(16) NOT NULL DEFAULT '' CHECK (control IN ('', 'cancel', 'pause')),
    dismissed_at timestamptz,
    nodes jsonb
);
