# SPDX-License-Identifier: Apache-2.0
"""What users of other planners and queues report (reference/planner.md, section 4), as far as it is not tried elsewhere. The numbers
are theirs."""
import signal

import pytest

from conftest import HANG_S, wait_until
from planning import Yard
from test_planner import in_cloud

LONG = pytest.mark.long


@pytest.fixture
def yard(stack):
    y = Yard(stack)
    y.empty()
    y.env["WB_LOCAL_SLOTS"] = "100"
    yield y
    y.close()


@pytest.fixture
def cloud(yard):
    return yard.cloud()


def no_machine_is_left(yard, cloud):
    wait_until(lambda: yard.hurry() or cloud.state()["alive"] == 0, "no machine left")


def test_a_batch_that_never_leaves_scheduling_ends_at_its_deadline(yard):
    """AIBrix 2373."""
    yard.batches.order(auto=False)
    with yard.planner(WB_PLANNER_EXPIRY_GRACE_S=0):
        job = yard.create()
        yard.reaches(job, "scheduling")
        (batch,) = yard.batches_of(job)
        yard.batches.order(batch={batch["id"]: {"expires_at": batch["created_at"] - 10}})
        wait_until(lambda: yard.hurry() or yard.batches_of(job)[0]["status"] == "cancelling", "the batch to be cancelled")
        yard.batches.order(auto=True)
        yard.reaches(job, "expired")
    yard.nothing_left()


def test_ten_jobs_run_at_once(yard):
    """AIBrix 2269: one by one."""
    yard.pool("default", max_concurrent_provisioning=2)
    yard.batches.order(auto=False)
    yard.enqueue(10)
    with yard.planner():
        wait_until(lambda: yard.hurry() or yard.states() == {"scheduling": 10}, "ten at once")
        assert yard.batches.state()["alive"] == 10
        yard.batches.order(auto=True)
        yard.all_end()


def test_plans_while_a_job_runs_get_it_no_second_machines(yard, cloud):
    """AIBrix 2218."""
    yard.batches.order(auto=False)
    (job,) = in_cloud(yard)
    with yard.planner(WB_PLANNER_INTERVAL_S=1):
        yard.reaches(job, "scheduling")
        others = in_cloud(yard, 3)  # each of them is planned while it runs
        for other in others:
            yard.reaches(other, "scheduling")
        assert cloud.state()["launched"] == 4 and yard.history(job).count("planned") == 1
        yard.batches.order(auto=True)
        yard.all_end()
        no_machine_is_left(yard, cloud)


def test_a_call_that_outlasts_its_lease_is_not_done_by_another_too(yard, cloud):
    """River 773, Oban 532, 603, 1018: rescued by the clock while it was alive."""
    cloud.fault("POST .*launch", "hold_after", name="launch")
    (job,) = in_cloud(yard)
    with yard.planner(WB_PLANNER_CLAIM_MS=600), yard.planner(WB_PLANNER_CLAIM_MS=600):
        wait_until(lambda: cloud.state()["launched"] == 1, "the launch")
        (holder, until), = yard.stack.sql("SELECT lease_epoch, lease_until FROM job_run")
        wait_until(lambda: yard.stack.sql("SELECT lease_until > %s + interval '1800 ms' FROM job_run", (until,))[0][0],
                   "the lease to be renewed for three times as long")
        assert yard.stack.sql("SELECT lease_epoch FROM job_run") == [(holder,)], "another has taken it"
        cloud.order(let="launch")
        yard.reaches(job, "completed")
        no_machine_is_left(yard, cloud)
    assert cloud.state()["launched"] == 1 and yard.stack.sql("SELECT count(*) FROM provision")[0][0] == 1


@pytest.mark.parametrize("point", ["provision.called", "submit.begun", pytest.param("provision.begun", marks=LONG),
                                   pytest.param("submit.called", marks=LONG)])
def test_a_planner_frozen_in_its_work_for_longer_than_its_lease_is_fenced(yard, cloud, point):
    """River 995, pg-boss 529, 555: what it does when it wakes up is taken back; two batches of a job do not run on."""
    yard.batches.order(auto=False)
    mark = yard.mark()
    yard.env["WB_PLANNER_SWEEP_S"] = "3600"  # it would find what is left, too
    (job,) = in_cloud(yard)
    with yard.planner(WB_FAULTS_SET=f"{point}=stop!{mark}") as frozen:
        wait_until(mark.exists, "the freeze")
        with yard.planner():
            yard.reaches(job, "scheduling")
            frozen.send(signal.SIGCONT)
            wait_until(lambda: "a result came late" in frozen.text(), "the late result")
            wait_until(lambda: yard.hurry() or [b["status"] for b in yard.batches_of(job)].count("scheduling") == 1, "one batch alive")
            wait_until(lambda: yard.hurry() or cloud.state()["alive"] == 1, "one machine")
            yard.batches.order(auto=True)
            yard.reaches(job, "completed")
            no_machine_is_left(yard, cloud)
    wanted = yard.stack.sql("SELECT batch_id FROM job")[0][0]
    assert [b["id"] for b in yard.batches_of(job) if b["status"] == "completed"] == [wanted]


def test_a_listener_that_is_cut_off_comes_back(yard):
    """Graphile 541, River 1358, 1361."""
    kv = yard.stack.kv()

    def listeners():
        return kv.pubsub_numsub("wb:1:planner")[0][1]
    before = listeners()
    yard.batches.order(auto=False)
    with yard.planner() as p:
        p.leads()
        wait_until(lambda: listeners() == before + 1, "the listener")
        kv.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        job = yard.create()
        yard.reaches(job, "scheduling", hurry=False)
        wait_until(lambda: listeners() == before + 1, "the listener again")


def test_a_planner_told_to_stop_hands_back_all_leases(yard, cloud):
    """pg-boss 102, 303: what it had in hand need not wait until they run out."""
    cloud.fault("POST .*launch", "hold_after", name="launch")
    (job,) = in_cloud(yard)
    with yard.planner(WB_PLANNER_LEASE_MS=60000, WB_PLANNER_CLAIM_MS=60000) as p:
        wait_until(lambda: cloud.state()["launched"] == 1, "the launch")
        p.send(signal.SIGTERM)
        cloud.order(let="launch")
        assert p.died() == 0
    assert yard.stack.sql("SELECT (SELECT count(*) FROM job_run WHERE lease_owner IS NOT NULL),"
                          " (SELECT count(*) FROM intent WHERE lease_owner IS NOT NULL),"
                          " (SELECT count(*) FROM planner_lease WHERE expires_at > clock_timestamp())") == [(0, 0, 0)]
    with yard.planner():
        yard.reaches(job, "completed")
        no_machine_is_left(yard, cloud)
    assert cloud.state()["launched"] == 1


@pytest.mark.parametrize("how", [{"do": "status", "status": 503}, pytest.param({"do": "status", "status": 429}, marks=LONG),
                                 pytest.param({"do": "drop"}, marks=LONG)])
def test_a_provider_in_trouble_while_a_batch_runs_kills_no_job(yard, cloud, how):
    """SkyPilot 10157."""
    yard.batches.order(auto=False)
    (job,) = in_cloud(yard)
    with yard.planner(WB_PLANNER_POLL_S=30):  # machines are looked at with every poll
        yard.reaches(job, "scheduling")
        cloud.fault("GET .*", times=-1, **how)
        seen = len(cloud.state()["requests"])
        wait_until(lambda: yard.hurry() or len(cloud.state()["requests"]) > seen + 5, "looks at the machines")
        assert yard.state(job) == "scheduling"
        yard.batches.order(auto=True)
        yard.reaches(job, "completed")
        cloud.order(clear=True)
        no_machine_is_left(yard, cloud)


def test_a_job_without_capacity_expires_at_its_queue_deadline(yard):
    """AIBrix 2588: skipped for ever."""
    (job,) = yard.enqueue()
    with yard.planner(WB_LOCAL_SLOTS=0):
        wait_until(lambda: yard.history(job)[-2:] == ["planned", "queued"], "no capacity")
        yard.stack.sql("UPDATE job_run SET queue_deadline = now()")
        yard.reaches(job, "expired")


@pytest.mark.touches("postgres")
def test_a_postgres_that_does_not_answer_hangs_no_planner(yard):
    """River 1251, 1255: a call that stalls hung the loop. No lease is trusted meanwhile, and all goes on afterwards."""
    with yard.planner() as p:
        p.leads()
        (job,) = yard.enqueue()
        yard.stack.dev("freeze", "postgres")
        wait_until(lambda: "steps down" in p.text(), "the leader to step down")
        yard.stack.dev("thaw", "postgres")
        yard.reaches(job, "completed", timeout_s=2 * HANG_S)
    yard.nothing_left()
