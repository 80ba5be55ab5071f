# SPDX-License-Identifier: Apache-2.0
"""Who goes next, by the policies `fair` and `capacity`, in a whole planner: jobs contract, section 5, "Policies"."""
import json

import pytest

from conftest import wait_until
from planning import Yard
from program import cgi


@pytest.fixture
def yard(stack):
    y = Yard(stack)
    y.empty()
    y.env["WB_LOCAL_SLOTS"] = "100"
    yield y
    y.close()


def planned(yard):
    """The tenants, in the order in which their jobs were planned."""
    rows = yard.stack.sql("SELECT j.name FROM job_event e JOIN job j ON j.id = e.job_id WHERE e.to_state = 1 ORDER BY e.at, e.seq")
    return "".join(row[0] for row in rows)


def test_fair_serves_tenants_in_turn_by_their_weight(yard):
    yard.pool("default", policy="fair", tenants="b weight=2")
    for tenant, n in (("a", 6), ("b", 6)):
        yard.enqueue(n, tenant=tenant, name=tenant)
    with yard.planner():
        yard.all_end()
    order = planned(yard)
    assert len(order) == 12
    assert order[:9].count("b") == 6, order


def test_fair_keeps_a_tenant_within_its_quota(yard):
    yard.pool("default", policy="fair", max_concurrent_provisioning=10, tenants="a jobs=2, * jobs=10")
    yard.batches.order(auto=False)
    jobs = yard.enqueue(4, tenant="a", name="a")
    yard.enqueue(3, tenant="b", name="b")
    with yard.planner():
        wait_until(lambda: sorted(planned(yard)) == list("aabbb"), "the quota and no more")
        waits = [job for job in jobs if yard.state(job) == "queued"]
        assert len(waits) == 2
        wait_until(lambda: "waits" in [yard.errors(job)[0] for job in waits], "the head says why it waits")
        yard.batches.order(auto=True)
        yard.all_end()
    assert sorted(planned(yard)) == list("aaaabbb")


def test_hundreds_of_tenants_that_have_their_share_hide_nobody(yard):
    """A plan looks at some tenants only: where it finds nothing it goes on to the next ones, and does not wait for its tick."""
    yard.pool("default", policy="fair", max_concurrent_provisioning=4, tenants="* jobs=1")
    for _ in range(2):
        yard.enqueue(600)
        yard.stack.sql("UPDATE job_run r SET tenant = 't' || n FROM (SELECT job_id, row_number() OVER () AS n FROM job_run"
                       " WHERE tenant = 'test') x WHERE r.job_id = x.job_id")
    # one job of each is live, and nobody's to work on
    yard.stack.sql("UPDATE job_run SET lease_owner = gen_random_uuid(), lease_until = now() + interval '1 hour'"
                   " WHERE job_id IN (SELECT DISTINCT ON (tenant) job_id FROM job_run)")
    for state, event in ((1, 1), (8, 18)):
        yard.stack.sql("UPDATE job_run SET state = %s, event = %s WHERE lease_owner IS NOT NULL", (state, event))
    (last,) = yard.enqueue(1, tenant="zz")
    with yard.planner(WB_PLANNER_INTERVAL_S=3600):
        yard.reaches(last, "completed", hurry=False)
    assert yard.states() == {"queued": 600, "cancelling": 600, "completed": 1}


def test_capacity_passes_over_what_does_not_fit_and_tells_why(yard):
    yard.pool("default", policy="capacity", max_concurrent_provisioning=10, catalog_s=1)
    yard.env["WB_LOCAL_SLOTS"] = "2"
    (large,) = yard.enqueue(1, replicas=3)
    (small,) = yard.enqueue(1, replicas=2)
    with yard.planner():
        yard.reaches(small, "completed")
        assert yard.state(large) == "queued"
        wait_until(lambda: yard.errors(large) == ("waits", "there is no room for all of its replicas now"), "a reason")
        assert yard.job(large)["attempts"] == 0
    yard.env["WB_LOCAL_SLOTS"] = "3"
    with yard.planner():
        yard.reaches(large, "completed")
    yard.nothing_left()


def test_capacity_goes_by_the_catalog_of_the_provider(yard):
    """A gang where there is room for it; what the provider does not have at all is told, and waits by its back-off."""
    provider = yard.cloud(policy="capacity", catalog_s=1)
    provider.order(capacity={"gpu_2x_h100_sxm5": {"us-east-1": 2}, "gpu_8x_a100": {}})
    request = '{"model_template": {"name": "t", "version": "v1", "spec": {"accelerator": {"type": "H100", "count": 2}}}}'
    (fits,) = yard.enqueue(1, pool="cloud", gpus=2, gpu_type="H100", replicas=2, request=request)
    (sold_out,) = yard.enqueue(1, pool="cloud", gpus=8, gpu_type="A100", request=request)
    (unknown,) = yard.enqueue(1, pool="cloud", gpus=3, gpu_type="H100", request=request)
    with yard.planner():
        yard.reaches(fits, "completed")
        wait_until(lambda: yard.errors(sold_out)[0] == "waits", "sold out")
        wait_until(lambda: yard.errors(unknown) == ("not_now", "the provider offers no machine of this kind"), "unknown")
        assert yard.state(sold_out) == yard.state(unknown) == "queued"
    launches = [call["body"]["region_name"] for call in provider.calls("POST", "/api/v1/instance-operations/launch")]
    assert set(launches) == {"us-east-1"}


def test_capacity_plans_without_a_catalog_when_the_provider_does_not_answer(yard):
    provider = yard.cloud(policy="capacity", catalog_s=1)
    provider.fault("GET /api/v1/instance-types", "status", status=503)
    yard.enqueue(1, pool="cloud", gpus=2, gpu_type="H100")
    with yard.planner():
        wait_until(lambda: yard.stack.sql("SELECT count(*) FROM job_event WHERE to_state = 1")[0][0] > 0, "a plan all the same")


@pytest.mark.parametrize("options, says", [
    ({"policy": "fairer"}, "there is no 'fairer'"),
    ({"policy": "fair", "tenants": "a jobs=many"}, "jobs of a: a number"),
    ({"policy": "fair", "tenants": "a, a"}, "a: named twice"),
    ({"tenant": "metadata."}, "tenant: created_by or metadata.KEY"),
    ({"tenant": "team"}, "tenant: created_by or metadata.KEY"),
])
def test_a_pool_that_makes_no_sense_stops_the_planner_at_start(yard, options, says):
    yard.pool("default", **options)
    with pytest.raises(AssertionError, match=says), yard.planner() as planner:
        planner.joined()


def test_the_tenant_of_a_job_is_who_sent_it_or_what_its_metadata_says(yard):
    """[pool] tenant = metadata.KEY, where a front end that one trusts puts it there; else who sent the job."""
    for metadata in ({"team": "blue"}, {"other": "x"}, {}):
        body = {"input_dataset": "file-1", "endpoint": "/v1/chat/completions", "metadata": metadata}
        status, text = cgi(yard.stack, "POST", "/api/v1/jobs", "submitter", json.dumps(body).encode(), "weighbridge-jobs",
                           WB_POOL_DEFAULT_TENANT="metadata.team")
        assert status == 200, text
    yard.create(metadata={"team": "blue"})  # the pool does not say so here
    rows = yard.stack.sql("SELECT r.tenant = 'blue', r.tenant = j.created_by FROM job j JOIN job_run r ON r.job_id = j.id"
                          " ORDER BY j.seq")
    assert rows == [(True, False), (False, True), (False, True), (False, True)]
