-- SPDX-License-Identifier: Apache-2.0
--
-- Artifacts, their versions, the nodes they go to and what came of it. The rules of the artifacts contract that must
-- hold whoever writes are constraints and triggers here.

CREATE TABLE artifact (
    name text PRIMARY KEY CHECK (name COLLATE "C" ~ '^[a-z0-9][a-z0-9._-]{0,95}$'),
    kind text NOT NULL CHECK (kind IN ('weights', 'image')),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- uploading -> verifying -> published -> withdrawn; verifying -> rejected, or back to uploading when a shard that was
-- to be cloned turned out bad. An upload that stands still is dropped. What was never published may begin anew, with
-- the same bytes: hence dropped, rejected -> uploading.
CREATE TABLE artifact_version (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    artifact text NOT NULL REFERENCES artifact,
    version text NOT NULL CHECK (version COLLATE "C" ~ '^[a-z0-9][a-z0-9._-]{0,63}$'),
    manifest bytea NOT NULL CHECK (octet_length(manifest) <= 8388608),
    digest text NOT NULL CHECK (digest = 'sha256:' || encode(sha256(manifest), 'hex')),
    total_bytes bigint NOT NULL CHECK (total_bytes >= 0),
    shard_bytes bigint NOT NULL CHECK (shard_bytes BETWEEN 1048576 AND 1073741824 AND shard_bytes % 1048576 = 0),
    files int NOT NULL CHECK (files >= 0),
    shards int NOT NULL CHECK (shards >= 0),
    state text NOT NULL DEFAULT 'uploading'
        CHECK (state IN ('uploading', 'verifying', 'published', 'rejected', 'withdrawn', 'dropped')),
    reason text NOT NULL DEFAULT '',
    part uuid NOT NULL DEFAULT gen_random_uuid(), -- names the folder it is assembled in
    publisher text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    progress_at timestamptz NOT NULL DEFAULT clock_timestamp(), -- last byte that came, or last change of state
    published_at timestamptz,
    withdrawn_at timestamptz,
    gate_holder text NOT NULL DEFAULT '', -- who reads it back
    gate_until timestamptz NOT NULL DEFAULT '-infinity',
    UNIQUE (artifact, version),
    UNIQUE (id, digest),
    CHECK ((state IN ('published', 'withdrawn')) = (published_at IS NOT NULL)),
    CHECK ((state = 'withdrawn') = (withdrawn_at IS NOT NULL)),
    CHECK (state NOT IN ('rejected', 'withdrawn', 'dropped') OR reason <> '')
) WITH (fillfactor = 80);
CREATE INDEX artifact_version_open ON artifact_version (progress_at) WHERE state IN ('uploading', 'verifying');

CREATE FUNCTION artifact_version_rules() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'a version is never removed, its name never used again' USING ERRCODE = 'check_violation';
    END IF;
    IF (NEW.artifact, NEW.version, NEW.digest) IS DISTINCT FROM (OLD.artifact, OLD.version, OLD.digest) THEN
        RAISE EXCEPTION 'a version never changes its content' USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.state <> OLD.state AND (OLD.state, NEW.state) NOT IN (
        ('uploading', 'verifying'), ('uploading', 'dropped'), ('verifying', 'uploading'), ('verifying', 'published'),
        ('verifying', 'rejected'), ('published', 'withdrawn'), ('rejected', 'uploading'), ('dropped', 'uploading')) THEN
        RAISE EXCEPTION 'a version does not go from % to %', OLD.state, NEW.state USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.state IN ('verifying', 'published') AND OLD.state <> NEW.state AND EXISTS (
        SELECT FROM artifact_shard s WHERE s.version_id = NEW.id AND NOT s.present
        AND (s.source IS NULL OR NEW.state = 'published')) THEN
        RAISE EXCEPTION 'shards of it are missing' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER artifact_version_rules BEFORE UPDATE OR DELETE ON artifact_version
    FOR EACH ROW EXECUTE FUNCTION artifact_version_rules();

CREATE TABLE artifact_file (
    version_id bigint NOT NULL REFERENCES artifact_version,
    file int NOT NULL, -- as in the manifest
    path text NOT NULL,
    size bigint NOT NULL CHECK (size >= 0),
    PRIMARY KEY (version_id, file),
    UNIQUE (version_id, path)
);

-- Where in its files each shard of a version lies. Shards of one content are present together.
CREATE TABLE artifact_shard (
    version_id bigint NOT NULL REFERENCES artifact_version,
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    file int NOT NULL,
    at bigint NOT NULL CHECK (at >= 0),
    size bigint NOT NULL CHECK (size > 0),
    present boolean NOT NULL DEFAULT false, -- in the store, and hashed
    source bigint REFERENCES artifact_version, -- a published version that has it: not asked for, but cloned
    PRIMARY KEY (version_id, file, at),
    FOREIGN KEY (version_id, file) REFERENCES artifact_file
);
CREATE INDEX artifact_shard_of ON artifact_shard (version_id, digest);
CREATE INDEX artifact_shard_held ON artifact_shard (digest) WHERE present;

CREATE TABLE node (
    name text PRIMARY KEY CHECK (name COLLATE "C" ~ '^[a-z0-9][a-z0-9._-]{0,63}$'),
    rack text NOT NULL DEFAULT '',
    zone text NOT NULL DEFAULT '',
    address text NOT NULL DEFAULT '',
    capacity_bytes bigint NOT NULL DEFAULT 0 CHECK (capacity_bytes >= 0),
    used_bytes bigint NOT NULL DEFAULT 0 CHECK (used_bytes >= 0),
    mounts jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(mounts) = 'array'),
    versions jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(versions) = 'array'), -- as the node reports them
    agent_version text NOT NULL DEFAULT '',
    registered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 60);

-- One version to one node.
CREATE TABLE assignment (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    node text NOT NULL REFERENCES node,
    version_id bigint NOT NULL REFERENCES artifact_version,
    state text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'pulling', 'landed', 'failed', 'cancelled')),
    attempts int NOT NULL DEFAULT 0 CHECK (attempts BETWEEN 0 AND 4), -- that failed; 4 are all there are
    reason text NOT NULL DEFAULT '',
    phase text NOT NULL DEFAULT 'fetch' CHECK (phase IN ('fetch', 'verify', 'load', 'serve')),
    bytes bigint NOT NULL DEFAULT 0 CHECK (bytes >= 0),
    verified bytea NOT NULL DEFAULT '', -- a bit for each shard of the manifest, first shard first, high bit first
    load_fence text NOT NULL DEFAULT '', -- of its row in model_load_jobs, which only this row writes
    assigned_by text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at timestamptz,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (node, version_id),
    UNIQUE (id, version_id),
    CHECK (state <> 'failed' OR reason <> '')
) WITH (fillfactor = 60);
CREATE INDEX assignment_open ON assignment (node) WHERE state IN ('queued', 'pulling');
CREATE INDEX assignment_version ON assignment (version_id);

-- Distribution of what is not published does not start.
CREATE FUNCTION assignment_rules() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND (NEW.node, NEW.version_id) IS DISTINCT FROM (OLD.node, OLD.version_id) THEN
        RAISE EXCEPTION 'an assignment stays with its node and version' USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.state = 'queued' AND (TG_OP = 'INSERT' OR OLD.state IN ('failed', 'cancelled')) AND NOT EXISTS (
        SELECT FROM artifact_version v WHERE v.id = NEW.version_id AND v.state = 'published' FOR SHARE) THEN
        RAISE EXCEPTION 'the version is not published' USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.state = 'landed' AND NOT EXISTS (SELECT FROM receipt r WHERE r.assignment = NEW.id) THEN
        RAISE EXCEPTION 'there is no receipt' USING ERRCODE = 'check_violation';
    END IF;
    IF TG_OP = 'UPDATE' AND OLD.state = 'landed' AND NEW.state <> 'landed' THEN
        RAISE EXCEPTION 'what has landed has landed' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER assignment_rules BEFORE INSERT OR UPDATE ON assignment
    FOR EACH ROW EXECUTE FUNCTION assignment_rules();

-- What a node hands in when it has a version: nothing else counts.
CREATE TABLE receipt (
    assignment uuid PRIMARY KEY,
    version_id bigint NOT NULL,
    digest text NOT NULL,
    bytes_fetched bigint NOT NULL CHECK (bytes_fetched >= 0),
    bytes_avoided bigint NOT NULL CHECK (bytes_avoided >= 0),
    per_source jsonb NOT NULL,
    retries jsonb NOT NULL,
    phases jsonb NOT NULL,
    took_ms bigint NOT NULL CHECK (took_ms >= 0), -- from the assignment to here
    received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    FOREIGN KEY (assignment, version_id) REFERENCES assignment (id, version_id),
    FOREIGN KEY (version_id, digest) REFERENCES artifact_version (id, digest)
);
CREATE INDEX receipt_version ON receipt (version_id);

CREATE TABLE assignment_failure (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    assignment uuid NOT NULL REFERENCES assignment,
    attempt int NOT NULL,
    class text NOT NULL CHECK (class IN ('retryable', 'source_fatal', 'task_fatal')),
    reason text NOT NULL CHECK (reason <> ''),
    source text NOT NULL DEFAULT '',
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX assignment_failure_of ON assignment_failure (assignment);
