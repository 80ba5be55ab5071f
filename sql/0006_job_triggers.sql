-- SPDX-License-Identifier: Apache-2.0
--
-- What must hold whoever writes: only transitions of job_transition, and with each its stamp, its event, its
-- counters, the release of machines that it leaves behind; at the end the cold row's result. All in the
-- transaction of the change itself. The triggers run only when `state` changes.

-- Something to be done to the outside world; lib/model/job.h tells of the kinds:
-- 0 provision, 1 create_batch, 2 cancel_batch, 3 release, 4 stray_batch.
CREATE TABLE intent (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id uuid NOT NULL, -- no foreign key: a release may outlive everything else
    pool_id smallint NOT NULL,
    kind smallint NOT NULL CHECK (kind BETWEEN 0 AND 4),
    subject text NOT NULL, -- of 0, 1 and 3 the provision key, of 2 and 4 the batch
    idem_key text NOT NULL UNIQUE,
    state smallint NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 2), -- 0 open, 1 done, 2 dropped
    attempts int NOT NULL DEFAULT 0,
    began_at timestamptz, -- of the last attempt: from then on it may have happened
    next_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_owner uuid,
    lease_epoch bigint NOT NULL DEFAULT 0,
    lease_until timestamptz,
    payload jsonb,
    result jsonb,
    error text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz
) WITH (fillfactor = 80);
CREATE INDEX intent_job ON intent (job_id);
CREATE INDEX intent_open ON intent (job_id, kind, created_at) WHERE state = 0;
CREATE INDEX intent_undo ON intent (next_at) WHERE state = 0 AND kind >= 3;

CREATE FUNCTION job_count_move(pool smallint, old_state smallint, new_state smallint) RETURNS void
LANGUAGE sql AS $$
    -- in the order of the states, so that two writers of one slot cannot wait for each other in a circle
    INSERT INTO job_count AS c (pool_id, state, slot, n, entered)
    SELECT pool, v.state, pg_backend_pid() % 32, v.n, greatest(v.n, 0)
    FROM (VALUES (old_state, -1), (new_state, 1)) v (state, n) WHERE v.state >= 0 ORDER BY v.state
    ON CONFLICT (pool_id, state, slot)
    DO UPDATE SET n = c.n + excluded.n, entered = c.entered + excluded.entered
$$;

CREATE FUNCTION job_run_new() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    now_ timestamptz := clock_timestamp();
BEGIN
    IF NEW.state <> 0 THEN
        RAISE EXCEPTION 'job %: begins in state %', NEW.job_id, NEW.state USING ERRCODE = 'check_violation';
    END IF;
    NEW.stamps[1] := floor(extract(epoch FROM now_) * 1000000);
    INSERT INTO job_event (job_id, at, from_state, to_state, event, actor, epoch, detail)
    VALUES (NEW.job_id, now_, NULL, NEW.state, NEW.event, NEW.actor, NEW.event_epoch, NEW.detail);
    PERFORM job_count_move(NEW.pool_id, -1::smallint, NEW.state);
    RETURN NEW;
END $$;
CREATE TRIGGER job_run_new BEFORE INSERT ON job_run FOR EACH ROW EXECUTE FUNCTION job_run_new();

CREATE FUNCTION job_run_move() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    now_ timestamptz := clock_timestamp();
BEGIN
    IF NOT EXISTS (SELECT FROM job_transition t
            WHERE t.from_state = OLD.state AND t.event = NEW.event AND t.to_state = NEW.state) THEN
        RAISE EXCEPTION 'job %: event % leads from state % to none or another than %',
            NEW.job_id, NEW.event, OLD.state, NEW.state USING ERRCODE = 'check_violation';
    END IF;
    NEW.stamps[NEW.state + 1] := floor(extract(epoch FROM now_) * 1000000);
    INSERT INTO job_event (job_id, at, from_state, to_state, event, actor, epoch, detail)
    VALUES (NEW.job_id, now_, OLD.state, NEW.state, NEW.event, NEW.actor, NEW.event_epoch, NEW.detail);
    PERFORM job_count_move(NEW.pool_id, OLD.state, NEW.state);
    IF NEW.machines AND (NEW.state = 0 OR NEW.state >= 9) THEN
        INSERT INTO intent (job_id, pool_id, kind, subject, idem_key)
        VALUES (NEW.job_id, NEW.pool_id, 3, OLD.provision_key, 'release:' || OLD.provision_key)
        ON CONFLICT (idem_key) DO NOTHING;
        NEW.machines := false;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER job_run_move BEFORE UPDATE OF state ON job_run FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION job_run_move();

CREATE FUNCTION job_run_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE job SET final_state = NEW.state,
        finished_at = to_timestamp(NEW.stamps[NEW.state + 1] / 1000000.0),
        stamps = NEW.stamps, attempts = NEW.attempts, batch_id = NEW.batch_id,
        provision_key = NEW.provision_key, expires_at = NEW.expires_at,
        cancel_requested_at = NEW.cancel_requested_at, error_code = NEW.error_code, error = NEW.error,
        batch = NEW.batch
    WHERE id = NEW.job_id;
    INSERT INTO job_file_ref (file_id, job_id, role)
    SELECT v.file_id, NEW.job_id, v.role
    FROM (VALUES (NEW.batch ->> 'output_file_id', 1), (NEW.batch ->> 'error_file_id', 2)) v (file_id, role)
    WHERE v.file_id <> ''
    ON CONFLICT DO NOTHING;
    UPDATE intent SET state = 2, ended_at = clock_timestamp()
    WHERE job_id = NEW.job_id AND kind < 3 AND state = 0;
    DELETE FROM job_run WHERE job_id = NEW.job_id;
    RETURN NULL;
END $$;
CREATE TRIGGER job_run_end AFTER UPDATE OF state ON job_run FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state AND NEW.state >= 9) EXECUTE FUNCTION job_run_end();

-- Makes the partitions of job_event for this month and the given number of months ahead. Any process may call
-- it at any time: two at once wait for each other. Returns how many it made.
CREATE FUNCTION job_event_partitions(ahead int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    month timestamp := date_trunc('month', clock_timestamp() AT TIME ZONE 'UTC');
    name text;
    made int := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(7738204215581994);
    FOR i IN 0..ahead LOOP
        name := 'job_event_' || to_char(month, 'YYYY_MM');
        IF to_regclass(name) IS NULL THEN
            EXECUTE format('CREATE TABLE %I (LIKE job_event INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name);
            EXECUTE format('WITH moved AS (DELETE FROM job_event_default WHERE at >= %L AND at < %L RETURNING *)'
                ' INSERT INTO %I SELECT * FROM moved', month AT TIME ZONE 'UTC',
                (month + interval '1 month') AT TIME ZONE 'UTC', name);
            EXECUTE format('ALTER TABLE job_event ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', name,
                month AT TIME ZONE 'UTC', (month + interval '1 month') AT TIME ZONE 'UTC');
            made := made + 1;
        END IF;
        month := month + interval '1 month';
    END LOOP;
    RETURN made;
END $$;

-- Drops the partitions whose month ended longer ago than so many days. Returns how many.
CREATE FUNCTION job_event_drop(keep_days int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    part text;
    dropped int := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(7738204215581994);
    FOR part IN
        SELECT c.relname FROM pg_inherits h JOIN pg_class c ON c.oid = h.inhrelid
        WHERE h.inhparent = 'job_event'::regclass AND c.relname ~ '^job_event_\d{4}_\d\d$'
        AND (to_date(right(c.relname, 7), 'YYYY_MM') + interval '1 month') AT TIME ZONE 'UTC'
            < clock_timestamp() - keep_days * interval '1 day'
    LOOP
        EXECUTE format('DROP TABLE %I', part);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $$;

SELECT job_event_partitions(2);
