-- SPDX-License-Identifier: Apache-2.0
--
-- What the policies `fair` and `capacity` remember between two plans: lib/model/policy.h tells of the numbers.

-- Tenants that were served lately. Who is not here starts where the round stands.
CREATE TABLE policy_turn (
    pool_id smallint NOT NULL REFERENCES pool,
    tenant text NOT NULL,
    finish bigint NOT NULL,
    PRIMARY KEY (pool_id, tenant)
) WITH (fillfactor = 50);
ALTER TABLE planner_lease ADD COLUMN round bigint NOT NULL DEFAULT 0;

-- Since when a queued job is passed over, because it does not fit or its tenant has its share.
ALTER TABLE job_run ADD COLUMN passed_over_at timestamptz;

-- The heads of all tenants' queues without a walk through any of them.
CREATE INDEX run_fair ON job_run (pool_id, tenant, prio DESC, enqueued_at, job_id) WHERE state = 0;
