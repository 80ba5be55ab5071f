-- SPDX-License-Identifier: Apache-2.0
--
-- What planners keep besides jobs: who decides for a pool, the machines that were got, models and their
-- templates, and who does which chore.

CREATE TABLE planner_lease (
    pool_id smallint PRIMARY KEY REFERENCES pool,
    holder uuid NOT NULL,
    holder_name text NOT NULL DEFAULT '', -- host and process, for people
    epoch bigint NOT NULL,                -- +1 at every change of holder and at every renewal that came too late
    acquired_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    planned_at timestamptz, -- last plan
    plan_us bigint NOT NULL DEFAULT 0,
    planned int NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

CREATE TABLE provision (
    key text PRIMARY KEY, -- job_id:attempt
    id uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(),
    job_id uuid NOT NULL,
    pool_id smallint NOT NULL,
    provider varchar(32) NOT NULL DEFAULT '',
    status varchar(16) NOT NULL DEFAULT 'pending' CHECK (status IN
        ('pending', 'provisioning', 'running', 'failed', 'releasing', 'released', 'release_failed')),
    region text NOT NULL DEFAULT '',
    spec jsonb NOT NULL, -- what was asked for
    details jsonb, -- what was got, as the provisioner tells it
    starts_at timestamptz, -- when the machines are ours; NULL: not told
    ends_at timestamptz,
    error text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 80);
CREATE INDEX provision_job ON provision (job_id);
CREATE INDEX provision_list ON provision (created_at DESC, key DESC);

CREATE TABLE model (
    id text PRIMARY KEY,
    name text NOT NULL,
    serving_name text NOT NULL DEFAULT '',
    info jsonb NOT NULL DEFAULT '{}', -- categories, pricing, tags and whatever else the catalog shows
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE model_template (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    model_id text NOT NULL REFERENCES model ON DELETE CASCADE,
    name text NOT NULL,
    version text NOT NULL,
    status varchar(16) NOT NULL CHECK (status IN ('active', 'deprecated', 'draft')),
    spec jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (model_id, name, version)
);
CREATE INDEX model_template_name ON model_template (name);

-- Housekeeping that any one process may do, now and then.
CREATE TABLE chore (
    name varchar(64) PRIMARY KEY,
    next_at timestamptz NOT NULL,
    holder text NOT NULL DEFAULT '',
    taken_at timestamptz NOT NULL
);
