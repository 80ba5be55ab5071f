# SPDX-License-Identifier: Apache-2.0
"""Jobs contract, section 6: the same jobs with a clock that is wrong, away from UTC, behind a pooler, while Postgres restarts and
without Redis. What must hold is the same."""
import time

import pytest

from conftest import ZONE, wait_until
from planning import Fleet, Yard
from traffic import KINDS, Traffic

SHIFT_S = 600
ENDS = {"local": {"completed"}, "cloud": {"completed"}, "cancelled": {"cancelled", "completed"}, "late": {"expired", "completed"},
        "lost": {"resource_failed", "completed"}, "stuck": {"expired"}}


@pytest.fixture
def yard(stack):
    y = Yard(stack)
    y.empty()
    yield y
    y.close()


def all_fare_well(traffic, fleet, each=2):
    """Some jobs of each kind: each ends as its kind should, once, and leaves nothing."""
    for kind in KINDS:
        traffic.add(kind, each)
    traffic.all_end(fleet.tend)
    launched = traffic.nothing_is_left()
    ends = traffic.each_ended_once()
    for job, kind in traffic.kind.items():
        assert traffic.yard.state(job) in ENDS[kind], (kind, traffic.yard.history(job), traffic.yard.errors(job))
    print(f"\n{len(traffic.kind)} jobs ({ends}), {traffic.one_batch_each()} batches, {launched} machines, {fleet.losses} planners lost")


def keeps_time(traffic):
    """All that is timed in minutes has its minutes, and what is shown is the time of day."""
    stack = traffic.yard.stack
    again = stack.sql("SELECT job_id FROM job_event WHERE to_state = 1 GROUP BY 1 HAVING count(*) > 1")
    assert not again, "a time-out came early"
    for job in traffic.kind:
        shown = traffic.yard.job(job)
        stamps = [int(shown[k]) for k in shown if k.endswith("At") and k != "expiresAt" and str(shown[k] or 0).isdigit() and int(shown[k] or 0)]
        assert len(stamps) >= 2 and all(abs(stamp - time.time()) < SHIFT_S / 2 for stamp in stamps), shown


@pytest.mark.parametrize("shift_s", [-SHIFT_S, SHIFT_S])
def test_a_planners_clock_ten_minutes_off_has_no_effect(yard, shift_s):
    """Deadlines, windows and time-outs of five minutes are neither over at once nor never; nor are leases."""
    traffic = Traffic(yard)
    yard.pool("cloud", provisioner="lambdaCloud", max_concurrent_provisioning=20, provision_timeout_s=300)
    traffic.kind |= dict.fromkeys(yard.enqueue(3, window_minutes=5, queue_deadline="5 minutes"), "local")
    with Fleet(yard, 2, WB_FAULTS_CLOCK_SHIFT_S=shift_s) as fleet:
        all_fare_well(traffic, fleet)
        for planner in fleet.planners:
            assert "steps down" not in planner.text()
    keeps_time(traffic)


def test_behind_a_pooler_in_transaction_mode_and_away_from_utc(yard):
    traffic = Traffic(yard)
    with yard.stack.pooled(), Fleet(yard, 3) as fleet:
        assert yard.stack.environ["TZ"] == ZONE and yard.stack.environ["WB_DB_PREPARED"] == "off"
        all_fare_well(traffic, fleet)
        assert "weighbridge/weighbridge@unix" in (yard.stack.var / "pooler" / "log").read_text()
    keeps_time(traffic)


@pytest.mark.touches("postgres")
@pytest.mark.parametrize("restarts, each", [(2, 4), pytest.param(30, 100, marks=pytest.mark.long)])
def test_postgres_restarts_under_load(yard, restarts, each):
    traffic = Traffic(yard)
    yard.batches.order(dedupe=True)
    total = each * len(KINDS)
    with Fleet(yard, 3) as fleet:
        for kind in KINDS:
            traffic.add(kind, each)
        for n in range(restarts):
            wait_until(lambda sofar=n: traffic.drive() < total * (1 - sofar / restarts / 1.5) or sofar == 0, "some to have ended", 120)
            yard.stack.dev("stop", "postgres")
            yard.stack.dev("start", "postgres")
        traffic.all_end(fleet.tend, 300)
        launched = traffic.nothing_is_left()
        assert fleet.losses == 0, "no planner dies of it"
    print(f"\n{restarts} restarts, {len(traffic.kind)} jobs ({traffic.each_ended_once()}), {traffic.one_batch_each()} batches,"
          f" {launched} machines")


@pytest.mark.touches("redis")
def test_without_redis_jobs_are_accepted_planned_and_carried_out(yard):
    """Nothing but hints and progress is in it: reference 5.2.11, River 630 and 1358."""
    yard.env["WB_LOCAL_SLOTS"] = "10"
    with yard.planner() as planner:
        planner.leads()
        yard.stack.dev("stop", "redis")
        job = yard.create()
        yard.reaches(job, "completed", hurry=False)
        yard.batches.order(auto=False)
        running = yard.create()
        yard.reaches(running, "scheduling", hurry=False)
        answer = yard.stack.call("POST", f"/api/v1/jobs/{running}/cancel", {})
        assert answer.json()["status"] == "cancelling"
        wait_until(lambda: yard.batches_of(running)[0]["status"] == "cancelling", "the cancel to reach the service")
        yard.batches.order(auto=True)
        yard.reaches(running, "cancelled", hurry=False)
    yard.nothing_left()
