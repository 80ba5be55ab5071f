-- SPDX-License-Identifier: Apache-2.0
--
-- Batch jobs. `job` is cold and wide: written at the enqueue and once more at the end. `job_run` is hot and
-- narrow: live jobs only; polls and lease renewals change no indexed column of it, so that they stay HOT.
-- States and events are numbered as in lib/model/job_state.def and job_event.def.
-- A pair of provisioner and policy, by its name in the configuration.
CREATE TABLE pool (
    id smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name varchar(64) NOT NULL UNIQUE CHECK (name <> ''),
    provisioner varchar(32) NOT NULL DEFAULT '',
    policy varchar(32) NOT NULL DEFAULT ''
);
INSERT INTO pool (name) VALUES ('default');

CREATE SEQUENCE job_seq;

-- Version 7 of RFC 9562 by this server's clock: jobs made one after another lie together in the indexes.
CREATE FUNCTION job_new_id() RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT encode(
        substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
        || set_byte(substring(r FROM 7), 0, (get_byte(r, 6) & 15) | 112), 'hex')::uuid
    FROM uuid_send(gen_random_uuid()) r
$$;

CREATE TABLE job (
    id uuid PRIMARY KEY DEFAULT job_new_id(),
    seq bigint NOT NULL DEFAULT nextval('job_seq'),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    pool_id smallint NOT NULL,
    created_by text NOT NULL DEFAULT '',
    name text NOT NULL DEFAULT '',
    endpoint text NOT NULL,
    model text NOT NULL DEFAULT '',
    input_file text NOT NULL,
    completion_window text NOT NULL,
    window_minutes int NOT NULL CHECK (window_minutes > 0),
    request jsonb NOT NULL,
    idem_key text,
    idem_hash text,
    -- from here on: written once, at the end, by job_run_end()
    final_state smallint,
    finished_at timestamptz,
    stamps bigint[],
    attempts int,
    batch_id text,
    provision_key text,
    expires_at timestamptz,
    cancel_requested_at timestamptz,
    error_code text,
    error text,
    batch jsonb
) WITH (fillfactor = 90);
ALTER SEQUENCE job_seq OWNED BY job.seq;
COMMENT ON COLUMN job.request IS
    'the whole request as accepted: template spec, client block, replicas, metadata, provider_config, extra body';

CREATE UNIQUE INDEX job_idem ON job (created_by, idem_key) WHERE idem_key IS NOT NULL;
CREATE INDEX job_list ON job (created_at DESC, id DESC);
CREATE INDEX job_by ON job (created_by, created_at DESC, id DESC);
CREATE INDEX job_ended ON job (final_state, created_at DESC, id DESC) WHERE final_state IS NOT NULL;
CREATE INDEX job_ended_by ON job (created_by, final_state, created_at DESC, id DESC)
    WHERE final_state IS NOT NULL;
CREATE INDEX job_finished ON job (finished_at) WHERE final_state IS NOT NULL;

-- Which jobs name a file, and as what: 0 input, 1 output, 2 error.
CREATE TABLE job_file_ref (
    file_id text NOT NULL,
    job_id uuid NOT NULL REFERENCES job ON DELETE CASCADE,
    role smallint NOT NULL CHECK (role BETWEEN 0 AND 2),
    PRIMARY KEY (file_id, job_id, role)
);
CREATE INDEX job_file_ref_job ON job_file_ref (job_id);

CREATE TABLE job_run (
    job_id uuid PRIMARY KEY REFERENCES job,
    pool_id smallint NOT NULL REFERENCES pool,
    tenant text NOT NULL DEFAULT '',
    prio smallint NOT NULL DEFAULT 0,
    state smallint NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 14),
    version int NOT NULL DEFAULT 0,
    -- what made the last transition, for job_event
    event smallint NOT NULL DEFAULT 0,
    event_epoch bigint NOT NULL DEFAULT 0,
    actor text NOT NULL DEFAULT '',
    detail jsonb,
    enqueued_at timestamptz NOT NULL, -- orders, always
    not_before timestamptz,           -- delays; NULL: at once
    queue_deadline timestamptz NOT NULL,
    expires_at timestamptz,
    -- what it needs, for policies
    replicas int NOT NULL DEFAULT 1,
    gpus int NOT NULL DEFAULT 0, -- of each replica
    gpu_type text NOT NULL DEFAULT '',
    attempts int NOT NULL DEFAULT 0, -- times it was planned
    timeouts smallint NOT NULL DEFAULT 0, -- of these, ended by the time-out of resource_preparing
    provision_key text, -- job_id:attempt
    machines boolean NOT NULL DEFAULT false, -- under provision_key there may be machines
    batch_id text,
    cancel_requested_at timestamptz,
    next_poll_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_owner uuid,
    lease_epoch bigint NOT NULL DEFAULT 0,
    lease_until timestamptz,
    failures int NOT NULL DEFAULT 0, -- outside calls that failed in a row
    lost smallint NOT NULL DEFAULT 0, -- answers in a row that there is no such batch
    error_code text,
    error text,
    batch jsonb, -- the batch as its service last told of it
    batch_at timestamptz, -- when that was last written
    stamps bigint[] NOT NULL DEFAULT '{}' -- [state + 1]: when it was last entered, microseconds since 1970
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX run_queue ON job_run (pool_id, prio DESC, enqueued_at, job_id) WHERE state = 0;
CREATE INDEX run_delayed ON job_run (not_before) WHERE state = 0 AND not_before IS NOT NULL;
CREATE INDEX run_overdue ON job_run (queue_deadline) WHERE state = 0;
CREATE INDEX run_live ON job_run (pool_id) WHERE state > 0;
-- No index on next_poll_at, lease_until, version or batch: that is what keeps polls HOT.

-- The audit trail. One partition a month, made ahead by job_event_partitions(); what comes when none was made
-- lands in the default one and moves when its month is made.
CREATE SEQUENCE job_event_seq;
CREATE TABLE job_event (
    job_id uuid NOT NULL,
    at timestamptz NOT NULL,
    seq bigint NOT NULL DEFAULT nextval('job_event_seq'),
    from_state smallint, -- NULL: the enqueue
    to_state smallint NOT NULL,
    event smallint NOT NULL,
    actor text NOT NULL,
    epoch bigint NOT NULL, -- lease of the pool for a plan, of the row for all else
    detail jsonb,
    PRIMARY KEY (job_id, at, seq)
) PARTITION BY RANGE (at);
ALTER SEQUENCE job_event_seq OWNED BY job_event.seq;
CREATE TABLE job_event_default PARTITION OF job_event DEFAULT;

-- How many jobs are in a state now, and how many ever entered it: sums over slots, so that writers do not
-- wait for each other. `entered` of the queued is the enqueue sequence: it grows with every commit that
-- queues a job, and never before that commit.
CREATE TABLE job_count (
    pool_id smallint NOT NULL,
    state smallint NOT NULL,
    slot smallint NOT NULL,
    n bigint NOT NULL,
    entered bigint NOT NULL,
    PRIMARY KEY (pool_id, state, slot)
) WITH (fillfactor = 50);
