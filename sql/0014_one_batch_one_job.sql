-- SPDX-License-Identifier: Apache-2.0
-- A batch is one job's, whatever its service says: jobs contract, section 1.

-- Of live jobs that share one already the first keeps it: nobody knows whose results the others would show.
UPDATE job_run r SET state = CASE WHEN state = 8 THEN 12 ELSE 10 END, event = CASE WHEN state = 8 THEN 19 ELSE 16 END,
    event_epoch = lease_epoch, actor = 'migration', detail = NULL, version = version + 1, batch_id = NULL,
    error_code = 'batch_nonsense', error = 'the batch service gave it the batch of another job'
WHERE EXISTS (SELECT FROM job_run o
    WHERE o.batch_id = r.batch_id AND (o.enqueued_at, o.job_id) < (r.enqueued_at, r.job_id));

CREATE UNIQUE INDEX run_batch ON job_run (batch_id) WHERE batch_id IS NOT NULL;
-- Not unique: jobs that ended before this was looked at may share one.
CREATE INDEX job_batch ON job (batch_id) WHERE batch_id IS NOT NULL;

CREATE FUNCTION batch_is_anothers(named text, but uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM job_run r WHERE r.batch_id = named AND r.job_id <> but)
        OR EXISTS (SELECT FROM job j WHERE j.batch_id = named AND j.id <> but)
$$;

-- The index holds among live jobs; who takes a batch from one that is just ending waits there, and then sees its end here.
CREATE FUNCTION job_run_batch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF batch_is_anothers(NEW.batch_id, NEW.job_id) THEN
        RAISE EXCEPTION 'job %: batch % is that of another job', NEW.job_id, NEW.batch_id
            USING ERRCODE = 'unique_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER job_run_batch AFTER UPDATE OF batch_id ON job_run FOR EACH ROW
    WHEN (NEW.batch_id IS NOT NULL AND OLD.batch_id IS DISTINCT FROM NEW.batch_id) EXECUTE FUNCTION job_run_batch();
