-- SPDX-License-Identifier: Apache-2.0
--
-- The embedded batch service: files, batches, who runs them and how far. Contents lie in the content folder ([batch]
-- root) under the names that are ids here.

CREATE TABLE batch_file (
    id text PRIMARY KEY DEFAULT 'file-' || replace(gen_random_uuid()::text, '-', ''),
    seq bigint GENERATED ALWAYS AS IDENTITY UNIQUE, -- the order of lists
    owner text NOT NULL,
    purpose text NOT NULL CHECK (purpose IN ('batch', 'batch_output')),
    filename text NOT NULL CHECK (char_length(filename) BETWEEN 1 AND 255),
    bytes bigint NOT NULL CHECK (bytes >= 0),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz
);
CREATE INDEX batch_file_of ON batch_file (owner, seq);
CREATE INDEX batch_file_expiry ON batch_file (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE batch (
    id text PRIMARY KEY DEFAULT 'batch_' || replace(gen_random_uuid()::text, '-', ''),
    seq bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    owner text NOT NULL,
    job_id text, -- aibrix.job_id: the same twice is the same batch
    input_file_id text NOT NULL,
    endpoint text NOT NULL,
    completion_window text NOT NULL,
    metadata jsonb CHECK (jsonb_typeof(metadata) = 'object'),
    aibrix jsonb CHECK (jsonb_typeof(aibrix) = 'object'),
    output_expires_s bigint CHECK (output_expires_s > 0),
    status text NOT NULL DEFAULT 'validating' CHECK (status IN ('validating', 'in_progress', 'finalizing',
        'cancelling', 'completed', 'failed', 'expired', 'cancelled')),
    ends_as text NOT NULL DEFAULT 'completed' CHECK (ends_as IN ('completed', 'expired')), -- what finalizing leads to
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,
    in_progress_at timestamptz,
    finalizing_at timestamptz,
    completed_at timestamptz,
    failed_at timestamptz,
    expired_at timestamptz,
    cancelling_at timestamptz,
    cancelled_at timestamptz,
    total bigint NOT NULL DEFAULT 0,
    completed bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    input_tokens bigint NOT NULL DEFAULT 0,
    cached_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    reasoning_tokens bigint NOT NULL DEFAULT 0,
    total_tokens bigint NOT NULL DEFAULT 0,
    errors jsonb CHECK (jsonb_typeof(errors) = 'array'),
    output_file_id text,
    error_file_id text,
    holder text NOT NULL DEFAULT '', -- the runner that has it
    epoch bigint NOT NULL DEFAULT 0, -- one more at each change of holder: a holder of an older one writes nothing
    lease_until timestamptz NOT NULL DEFAULT '-infinity',
    UNIQUE (owner, job_id),
    CHECK (completed + failed <= total)
) WITH (fillfactor = 50);
CREATE INDEX batch_of ON batch (owner, seq);
CREATE INDEX batch_open ON batch (seq) WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling');
CREATE INDEX batch_reads ON batch (input_file_id)
    WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling');

-- What an epoch has written, up to its last checkpoint: the rest of its files is no part of the result.
CREATE TABLE batch_segment (
    batch_id text NOT NULL REFERENCES batch ON DELETE CASCADE,
    epoch bigint NOT NULL,
    output_bytes bigint NOT NULL CHECK (output_bytes >= 0),
    error_bytes bigint NOT NULL CHECK (error_bytes >= 0),
    lines bigint NOT NULL CHECK (lines >= 0),
    PRIMARY KEY (batch_id, epoch)
) WITH (fillfactor = 50);

-- lib/model/batch_flow.c has the same table.
CREATE FUNCTION batch_rules() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.status <> OLD.status AND (OLD.status, NEW.status) NOT IN (
        ('validating', 'in_progress'), ('validating', 'failed'), ('validating', 'cancelling'),
        ('in_progress', 'finalizing'), ('in_progress', 'failed'), ('in_progress', 'cancelling'),
        ('finalizing', 'completed'), ('finalizing', 'expired'), ('cancelling', 'cancelled')) THEN
        RAISE EXCEPTION 'a batch does not go from % to %', OLD.status, NEW.status USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER batch_rules BEFORE UPDATE OF status ON batch FOR EACH ROW EXECUTE FUNCTION batch_rules();
