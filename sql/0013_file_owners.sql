-- SPDX-License-Identifier: Apache-2.0
-- A file belongs to whoever owns the first job that named it; others do not come by it through jobs of their own.

ALTER TABLE job_file_ref ADD COLUMN first boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN job_file_ref.first IS 'this job named the file before all others';

-- What came out of a job was that job's before anybody could name it.
UPDATE job_file_ref f SET first = true
FROM (SELECT DISTINCT ON (r.file_id) r.file_id, r.job_id, r.role
      FROM job_file_ref r JOIN job j ON j.id = r.job_id
      ORDER BY r.file_id, r.role = 0, j.seq, r.role) o
WHERE (f.file_id, f.job_id, f.role) = (o.file_id, o.job_id, o.role);

-- Of two that name a new file at once the second fails on this, and looks again.
CREATE UNIQUE INDEX job_file_first ON job_file_ref (file_id) WHERE first;

CREATE OR REPLACE FUNCTION job_run_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE job SET final_state = NEW.state,
        finished_at = to_timestamp(NEW.stamps[NEW.state + 1] / 1000000.0),
        stamps = NEW.stamps, attempts = NEW.attempts, batch_id = NEW.batch_id,
        provision_key = NEW.provision_key, expires_at = NEW.expires_at,
        cancel_requested_at = NEW.cancel_requested_at, error_code = NEW.error_code, error = NEW.error,
        batch = NEW.batch
    WHERE id = NEW.job_id;
    -- What came out of a job is that job's, even when another one named it meanwhile.
    UPDATE job_file_ref SET first = false
    WHERE file_id IN (NEW.batch ->> 'output_file_id', NEW.batch ->> 'error_file_id') AND first AND role = 0;
    INSERT INTO job_file_ref (file_id, job_id, role, first)
    SELECT v.file_id, NEW.job_id, v.role,
        NOT EXISTS (SELECT FROM job_file_ref f WHERE f.file_id = v.file_id AND f.first)
    FROM (VALUES (NEW.batch ->> 'output_file_id', 1), (NEW.batch ->> 'error_file_id', 2)) v (file_id, role)
    WHERE v.file_id <> ''
    ON CONFLICT DO NOTHING;
    UPDATE intent SET state = 2, ended_at = clock_timestamp()
    WHERE job_id = NEW.job_id AND kind < 3 AND state = 0;
    DELETE FROM job_run WHERE job_id = NEW.job_id;
    RETURN NULL;
END $$;
