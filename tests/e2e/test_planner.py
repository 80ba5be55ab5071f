# SPDX-License-Identifier: Apache-2.0
"""What becomes of a job, state by state: jobs contract, section 2. The machines are slots of our own, or those of the double of
Lambda Cloud; the batch service is a double."""
import json
import subprocess

import pytest

from conftest import HANG_S, ROOT, wait_until
from planning import Yard
from program import binary

H100 = {"model_template": {"name": "t", "version": "v1", "spec": {"accelerator": {"type": "H100", "count": 1}}}}


@pytest.fixture
def yard(stack):
    y = Yard(stack)
    y.empty()
    yield y
    y.close()


@pytest.fixture
def cloud(yard):
    return yard.cloud()


@pytest.fixture
def planner(yard):
    with yard.planner() as p:
        yield p.leads()


def cancel(yard, job):
    answer = yard.stack.call("POST", f"/api/v1/jobs/job_{job.removeprefix('job_')}/cancel", {})
    assert answer.status_code == 200, answer.text
    return answer.json()["status"]


def in_cloud(yard, n=1, **more):
    return yard.enqueue(n, pool="cloud", gpus=1, request=json.dumps({**H100, **more}))


def test_a_job_runs_its_course_and_its_results_are_kept(yard, planner):
    job = yard.create(name="first")
    yard.reaches(job, "completed")
    history = yard.history(job)
    assert history[:4] == ["queued", "planned", "resource_preparing", "submitting"] and history[-1] == "completed"
    yard.nothing_left()
    (batch,) = yard.batches_of(job)
    shown = yard.job(job)
    assert (shown["status"], shown["batchId"], shown["outputDataset"]) == ("completed", batch["id"], batch["output_file_id"])
    assert shown["requestCounts"] == {"total": 10, "completed": 10, "failed": 0}
    assert shown["usage"]["totalTokens"] == "300"
    (created,) = yard.batches.calls("POST", "/v1/batches")
    assert created["body"]["aibrix"]["job_id"] == job.removeprefix("job_")
    assert created["body"]["completion_window"] == "1440m"


def test_a_job_is_submitted_within_a_second_on_an_idle_system(yard, planner):
    yard.batches.order(auto=False)
    job = yard.create()
    yard.reaches(job, "scheduling", hurry=False)
    took = yard.stack.sql("SELECT extract(epoch FROM max(at) - min(at))::float FROM job_event WHERE job_id = %s::uuid", (job[4:],))
    assert took[0][0] < 1.0


def test_without_capacity_a_job_is_queued_again_in_its_place(yard):
    first, second = yard.enqueue(2)
    with yard.planner(WB_LOCAL_SLOTS=0):
        wait_until(lambda: yard.history(first)[-2:] == ["planned", "queued"], "back in the queue")
        assert yard.errors(first)[0] == "NoCapacity"
        (before, delayed), = yard.stack.sql("SELECT enqueued_at, not_before > now() - interval '1 minute' FROM job_run"
                                            " WHERE job_id = %s::uuid", (first,))
        assert delayed
    yard.pool("default", max_concurrent_provisioning=1)
    with yard.planner(WB_LOCAL_SLOTS=1):
        yard.reaches(first, "completed")
        yard.reaches(second, "completed")
        yard.nothing_left()
    created = [c["body"]["aibrix"]["job_id"] for c in yard.batches.calls("POST", "/v1/batches")]
    assert created == [first, second]


def test_what_the_provider_refuses_for_good_is_resource_failed(yard, cloud):
    cloud.fault("POST .*launch", "status", status=400, body={"error": {"code": "global/invalid-parameters", "message": "no"}}, times=-1)
    (job,) = in_cloud(yard)
    with yard.planner():
        yard.reaches(job, "resource_failed")
        assert yard.errors(job)[0] == "Refused"
    assert yard.history(job) == ["queued", "planned", "resource_failed"]


@pytest.mark.parametrize("how", [{"do": "status", "status": 503}, {"do": "status", "status": 429}, {"do": "drop"},
                                 {"do": "drop_after"}, {"do": "status_after", "status": 500}])
def test_a_provider_in_trouble_queues_the_job_again_and_leaks_nothing(yard, cloud, how):
    cloud.fault("POST .*launch", **how)
    (job,) = in_cloud(yard)
    with yard.planner():
        yard.reaches(job, "completed")
        wait_until(lambda: yard.hurry() or cloud.state()["alive"] == 0, "no machine left")
    assert len(yard.batches_of(job)) == 1


@pytest.mark.parametrize("leader", ["local", "lambdaCloud"])
def test_planners_that_differ_in_a_pools_provisioner_leak_no_machine(yard, cloud, leader):
    """What counts is who was to get a job's machines when it was planned: a planner that has no such provisioner leaves the job
    to one that has."""
    yard.pool("default", provisioner=leader, max_concurrent_provisioning=4)
    with yard.planner() as first:
        first.leads()
        yard.pool("default", provisioner="local" if leader == "lambdaCloud" else "lambdaCloud", max_concurrent_provisioning=4)
        if leader == "lambdaCloud":
            yard.ini = yard.ini[:yard.ini.index("[pool cloud]")] + yard.ini[yard.ini.index("[pool default]"):]
        with yard.planner(**({"WB_LAMBDA_CLOUD_KEY": ""} if leader == "lambdaCloud" else {})) as second:
            second.joined()
            yard.enqueue(10, gpus=1, request=json.dumps(H100))
            yard.all_end()
            wait_until(lambda: yard.hurry() or not yard.stack.sql("SELECT FROM intent WHERE state = 0"), "all releases")
            yard.nothing_left()
            assert cloud.state()["alive"] == 0
    assert set(yard.stack.sql("SELECT provider, status FROM provision WHERE status <> 'failed'")) == {(leader, "released")}
    assert bool(cloud.calls("POST", "/api/v1/instance-operations/launch")) == (leader == "lambdaCloud")


def test_a_pool_whose_provisioner_has_no_key_stops_the_planner_at_start(yard):
    yard.pods()
    yard.env["WB_RUNPOD_KEY"] = ""
    for args in ((), ("--check",)):
        p = yard.planner(*args)
        assert p.process.wait(HANG_S) == 1
        assert "[pool pods]" in p.text() and "[runpod] key is not set" in p.text()
        p.process.returncode = 0
        p.__exit__(None)


def test_a_job_whose_provisioner_nobody_can_use_goes_back_to_the_queue(yard):
    """Planned by a planner that is gone since: the place in the pool is for others."""
    pool = yard.stack.sql("SELECT id FROM pool WHERE name = 'default'")[0][0]
    (job,) = yard.enqueue()
    with yard.planner(WB_FAULTS_SET="plan.committed=kill") as first:
        first.died()
    yard.stack.sql("UPDATE provision SET provider = 'runpod' WHERE pool_id = %s", (pool,))
    with yard.planner():
        wait_until(lambda: yard.hurry() or "queued" in yard.history(job)[1:], "back in the queue")
        assert "[runpod] key is not set" in yard.stack.sql("SELECT error FROM provision WHERE key = %s", (f"{job}:1",))[0][0]
        yard.reaches(job, "completed")
    assert yard.job(job)["errorMessage"] == ""


def test_a_machine_that_turns_up_after_its_release_is_given_back_without_a_sweep(yard, cloud):
    """The answer to its launch was lost, and neither whoever asked nor the release finds it yet."""
    cloud.order(delay_visible=3)
    cloud.fault("POST .*launch", "drop_after")
    with yard.planner(WB_PLANNER_SWEEP_S=3600):
        wait_until(lambda: cloud.calls("GET", "/api/v1/instances"), "the sweep at the start")
        (job,) = in_cloud(yard)
        yard.reaches(job, "completed")
        wait_until(lambda: yard.hurry() or cloud.state()["alive"] == 0, "no machine left")
        wait_until(lambda: yard.hurry() or not yard.stack.sql("SELECT FROM intent WHERE state = 0"), "both releases")
    lost = [i for i in cloud.state()["instances"] if i["name"].endswith("-1")]
    assert len(lost) == 1
    assert yard.stack.sql("SELECT status, error FROM provision WHERE key = %s", (f"{job}:1",)) == [("released", "")]


def test_the_batch_service_is_told_of_all_machines(yard, cloud):
    (job,) = in_cloud(yard, replicas=3, resource_request={"replicas": 3})
    with yard.planner():
        yard.reaches(job, "completed")
    (created,) = yard.batches.calls("POST", "/v1/batches")
    options = created["body"]["aibrix"]["runtime"]["options"]
    machines = json.loads(options["machines"])
    assert [m["host"] for m in machines] == [i["ip"] for i in cloud.state()["instances"]] and len(machines) == 3
    assert {k: options[k] for k in machines[0]} == machines[0]
    assert created["body"]["aibrix"]["resource_allocation"]["resource_details"][0]["replica"] == 3


def test_machines_that_are_never_ready_are_given_back_three_times_at_most(yard, cloud):
    cloud.order(stuck=True)
    yard.pool("cloud", provisioner="lambdaCloud", provision_timeout_s=1)
    (job,) = in_cloud(yard)
    with yard.planner():
        yard.reaches(job, "resource_failed")
        assert yard.errors(job)[0] == "provision_timeout"
        assert yard.history(job).count("resource_preparing") == 3
        wait_until(lambda: yard.hurry() or cloud.state()["alive"] == 0, "no machine left")
    names = {i["name"] for i in cloud.state()["instances"]}
    assert {n.rpartition("-")[2] for n in names} == {"1", "2", "3"} and all(job in n for n in names)


def test_machines_that_fail_before_the_batch_fail_the_job(yard, cloud):
    cloud.order(boot_polls=1000)
    (job,) = in_cloud(yard)
    with yard.planner():
        yard.reaches(job, "resource_preparing")
        cloud.order(status={cloud.state()["instances"][0]["id"]: "unhealthy"})
        yard.reaches(job, "resource_failed")
        wait_until(lambda: yard.hurry() or cloud.state()["alive"] == 0, "no machine left")


def test_machines_lost_under_a_batch_cancel_it_and_fail_the_job(yard, cloud):
    yard.batches.order(auto=False)
    (job,) = in_cloud(yard)
    with yard.planner(WB_PLANNER_POLL_S=30):  # machines are looked at with every poll
        yard.reaches(job, "scheduling")
        (batch,) = yard.batches_of(job)
        cloud.order(vanish=[cloud.state()["instances"][0]["id"]])
        yard.batches.order(batch={batch["id"]: {"status": "in_progress"}})
        wait_until(lambda: yard.hurry() or yard.batches_of(job)[0]["status"] == "cancelling", "the batch to be cancelled")
        assert yard.state(job) != "resource_failed"  # after the batch was cancelled
        yard.batches.order(auto=True)
        yard.reaches(job, "resource_failed")
        assert yard.errors(job)[0] == "machines_lost"


@pytest.mark.parametrize("status", [400, 422, 413])
def test_a_batch_that_is_refused_is_submit_failed_at_once(yard, planner, status):
    yard.batches.fault("POST /v1/batches", "status", status=status, body={"error": {"message": "bad endpoint"}}, times=-1)
    job = yard.create()
    yard.reaches(job, "submit_failed")
    assert "bad endpoint" in yard.errors(job)[1]
    yard.nothing_left()
    assert len(yard.batches.calls("POST", "/v1/batches")) == 1


def test_a_batch_of_another_job_is_refused(yard, planner):
    """A service that answers two creations with one batch: the second job says that the service is wrong, the first goes on."""
    yard.batches.order(auto=False)
    first = yard.create()
    yard.reaches(first, "scheduling")
    (batch,) = yard.batches_of(first)
    yard.batches.fault("POST /v1/batches", "status", status=200, body={"id": batch["id"], "status": "scheduling"})
    second = yard.create()
    yard.reaches(second, "submit_failed")
    code, text = yard.errors(second)
    assert code == "batch_nonsense" and batch["id"] in text
    assert yard.job(second)["batchId"] == "" and yard.job(first)["batchId"] == batch["id"]
    yard.batches.order(auto=True)
    yard.reaches(first, "completed")
    yard.nothing_left()


def test_the_batch_of_another_job_is_not_adopted(yard, planner):
    """After a lost answer the service is searched, and lists as ours what another job has."""
    yard.batches.order(auto=False)
    first = yard.create()
    yard.reaches(first, "scheduling")
    (batch,) = yard.batches_of(first)
    yard.batches.fault("GET /v1/batches", "hold", name="search", times=-1)
    yard.batches.fault("POST /v1/batches", "status", status=503)
    second = yard.create()
    wait_until(lambda: len(yard.batches.calls("POST", "/v1/batches")) == 2, "the creation")
    yard.batches.order(batch={batch["id"]: {"aibrix": {"job_id": second.removeprefix("job_")}}})
    yard.batches.order(clear=True)
    yard.reaches(second, "scheduling")
    assert yard.state(first) == "scheduling"
    assert len(yard.batches.state()["batches"]) == 2 and yard.batches.state()["alive"] == 2


@pytest.mark.parametrize("how", [{"do": "status_after", "status": 408}, {"do": "status_after", "status": 500}, {"do": "drop_after"},
                                 {"do": "status", "status": 408}, {"do": "status", "status": 503}, {"do": "drop"},
                                 {"do": "status", "status": 429, "headers": {"Retry-After": "1"}}, {"do": "status", "status": 401}])
def test_whatever_answers_the_creation_there_is_one_batch(yard, planner, how):
    yard.batches.fault("POST /v1/batches", **how)
    job = yard.create()
    yard.reaches(job, "completed")
    assert len(yard.batches_of(job)) == 1
    yard.nothing_left()


def test_a_batch_that_is_lost_fails_the_job_after_three_looks(yard, planner):
    yard.batches.order(auto=False)
    job = yard.create()
    yard.reaches(job, "scheduling")
    (batch,) = yard.batches_of(job)
    before = len(yard.batches.calls("GET", f"/v1/batches/{batch['id']}"))
    yard.batches.order(forget=[batch["id"]])
    yard.reaches(job, "failed")
    assert yard.errors(job)[0] == "batch_lost"
    assert len(yard.batches.calls("GET", f"/v1/batches/{batch['id']}")) == before + 3


def test_transport_errors_change_nothing(yard, planner):
    yard.batches.order(auto=False)
    job = yard.create()
    yard.reaches(job, "scheduling")
    (batch,) = yard.batches_of(job)
    for how in ({"do": "drop"}, {"do": "status", "status": 500}, {"do": "status", "status": 429}, {"do": "status", "status": 404},
                {"do": "status", "status": 502}, {"do": "status", "status": 404}):
        yard.batches.fault(f"GET /v1/batches/{batch['id']}", **how)
        seen = len(yard.batches.calls("GET", f"/v1/batches/{batch['id']}"))
        wait_until(lambda: yard.hurry() or len(yard.batches.calls("GET", f"/v1/batches/{batch['id']}")) > seen, "another look")
        assert yard.state(job) == "scheduling"
    yard.batches.order(auto=True)
    yard.reaches(job, "completed")


def test_a_completed_job_carries_no_error_that_was_overcome(yard, planner):
    """Of the creation, of looks that found no batch, of answers that made no sense: each is told while it lasts."""
    yard.batches.order(auto=False)
    yard.batches.fault("POST /v1/batches", "status", status=429)
    job = yard.create()
    wait_until(lambda: yard.errors(job)[0] == "busy", "the error")
    yard.reaches(job, "scheduling")
    assert yard.errors(job) == (None, None)
    (batch,) = yard.batches_of(job)
    look = f"GET /v1/batches/{batch['id']}"
    for code, how in (("batch_lost", {"do": "status", "status": 404}), ("batch_nonsense", {"do": "status", "status": 200})):
        yard.batches.fault(look, times=2, **how)
        wait_until(lambda code=code: yard.hurry() or yard.errors(job)[0] == code, code)
        wait_until(lambda: yard.hurry() or yard.errors(job) == (None, None), "no error")
    yard.batches.order(auto=True)
    yard.reaches(job, "completed")
    assert (yard.job(job)["errorMessage"], yard.job(job)["errors"]) == ("", [])
    assert yard.stack.get(f"/v1/batches/{job}").json()["errors"] is None
    assert planner.metric("weighbridge_planner_nonsense_total") > 0


def test_stale_and_unknown_statuses_move_no_job_back(yard, planner):
    yard.batches.order(auto=False)
    job = yard.create()
    yard.reaches(job, "scheduling")
    (batch,) = yard.batches_of(job)
    yard.batches.order(batch={batch["id"]: {"status": "in_progress"}})
    yard.reaches(job, "in_progress")
    for word in ("validating", "scheduling", "resting", "in_progress"):
        yard.batches.order(batch={batch["id"]: {"status": word}})
        seen = len(yard.batches.calls("GET", f"/v1/batches/{batch['id']}"))
        wait_until(lambda: yard.hurry() or len(yard.batches.calls("GET", f"/v1/batches/{batch['id']}")) > seen + 1, "two looks")
        assert yard.state(job) == "in_progress"
    yard.batches.order(auto=True)
    yard.reaches(job, "completed")
    assert yard.history(job) == ["queued", "planned", "resource_preparing", "submitting", "scheduling", "in_progress", "finalizing",
                                 "completed"]


def test_progress_is_in_redis_at_once(yard, planner):
    yard.batches.order(auto=False)
    job = yard.create()
    yard.reaches(job, "scheduling")
    (batch,) = yard.batches_of(job)
    yard.batches.order(batch={batch["id"]: {"status": "in_progress"}}, counts={batch["id"]: [50, 1, 0]})
    yard.reaches(job, "in_progress")
    for done in (7, 8):
        yard.batches.order(counts={batch["id"]: [50, done, 0]})
        wait_until(lambda: yard.hurry() or yard.job(job)["requestCounts"] == {"total": 50, "completed": done, "failed": 0}, "the counts")
    key = f"wb:1:job:{job.removeprefix('job_')}"
    assert 0 < yard.stack.kv().ttl(key) <= 60


# --- cancelling ---

def test_a_running_job_is_cancelled_at_the_service_first(yard, planner):
    yard.batches.order(auto=False)
    job = yard.create()
    yard.reaches(job, "scheduling")
    assert cancel(yard, job) == "cancelling"
    wait_until(lambda: yard.batches_of(job)[0]["status"] == "cancelling", "the cancel to reach the service")
    assert yard.state(job) == "cancelling"
    yard.batches.order(auto=True)
    yard.reaches(job, "cancelled")
    yard.nothing_left()


def test_what_was_done_before_the_cancel_took_effect_is_completed(yard, planner):
    yard.batches.order(auto=False)
    job = yard.create()
    yard.reaches(job, "scheduling")
    (batch,) = yard.batches_of(job)
    yard.batches.order(batch={batch["id"]: {"status": "finalizing"}})
    cancel(yard, job)  # the service answers 409
    wait_until(lambda: yard.batches.calls("POST", f"/v1/batches/{batch['id']}/cancel"), "the cancel")
    yard.batches.order(auto=True)
    yard.reaches(job, "completed")
    assert yard.history(job)[-2:] == ["cancelling", "completed"]
    yard.nothing_left()


def test_a_service_out_of_reach_keeps_a_cancelled_job_cancelling(yard, planner):
    yard.batches.order(auto=False)
    job = yard.create()
    yard.reaches(job, "scheduling")
    yard.batches.fault(".*", "drop", times=-1)
    cancel(yard, job)
    tried = len(yard.batches.state()["requests"])
    wait_until(lambda: yard.hurry() or len(yard.batches.state()["requests"]) > tried + 5, "several tries")
    assert yard.state(job) == "cancelling"
    yard.batches.order(clear=True, auto=True)
    yard.reaches(job, "cancelled")
    yard.nothing_left()


def test_a_cancel_while_machines_are_prepared_gives_them_back(yard, cloud):
    cloud.order(stuck=True)
    (job,) = in_cloud(yard)
    with yard.planner():
        yard.reaches(job, "resource_preparing")
        assert cancel(yard, job) == "cancelling"
        yard.reaches(job, "cancelled")
        wait_until(lambda: yard.hurry() or cloud.state()["alive"] == 0, "no machine left")
    assert not yard.batches.state()["batches"]


def test_a_cancel_while_machines_are_asked_for_gives_them_back(yard, cloud):
    cloud.fault("POST .*launch", "hold_after", name="launch")
    (job,) = in_cloud(yard)
    with yard.planner():
        wait_until(lambda: cloud.state()["launched"] == 1, "the launch")
        assert cancel(yard, job) == "cancelling"
        cloud.order(let="launch")
        yard.reaches(job, "cancelled")
        wait_until(lambda: yard.hurry() or cloud.state()["alive"] == 0, "no machine left")


def test_a_cancel_while_the_batch_is_created_cancels_it(yard, planner):
    yard.batches.order(auto=False)
    yard.batches.fault("POST /v1/batches", "hold_after", name="create")
    job = yard.create()
    wait_until(lambda: yard.batches_of(job), "the creation")
    assert cancel(yard, job) == "cancelling"
    yard.batches.order(let="create")
    wait_until(lambda: yard.hurry() or yard.batches_of(job)[0]["status"] == "cancelling", "the batch to be cancelled")
    yard.batches.order(auto=True)
    yard.reaches(job, "cancelled")
    yard.nothing_left()


# --- deadlines ---

def test_queued_jobs_expire_at_their_queue_deadline(yard, planner):
    (job,) = yard.enqueue(queue_deadline="-1 second")
    yard.reaches(job, "expired")
    assert yard.history(job) == ["queued", "expired"]


def test_jobs_whose_machines_are_not_ready_expire_too(yard, cloud):
    cloud.order(stuck=True)
    (job,) = in_cloud(yard)
    with yard.planner():
        yard.reaches(job, "resource_preparing")
        yard.stack.sql("UPDATE job_run SET queue_deadline = now()")
        yard.reaches(job, "expired")
        wait_until(lambda: yard.hurry() or cloud.state()["alive"] == 0, "no machine left")


def test_a_batch_past_its_deadline_and_grace_is_cancelled_and_keeps_its_results(yard):
    yard.batches.order(auto=False)
    with yard.planner(WB_PLANNER_EXPIRY_GRACE_S=0):
        job = yard.create()
        yard.reaches(job, "scheduling")
        (batch,) = yard.batches_of(job)
        yard.batches.order(batch={batch["id"]: {"status": "in_progress", "expires_at": batch["created_at"] - 10,
                                                "output_file_id": "file-part"}}, counts={batch["id"]: [50, 20, 0]})
        wait_until(lambda: yard.hurry() or yard.batches_of(job)[0]["status"] == "cancelling", "the batch to be cancelled")
        yard.batches.order(batch={batch["id"]: {"status": "cancelled"}})
        yard.reaches(job, "expired")
        yard.nothing_left()
    shown = yard.job(job)
    assert shown["outputDataset"] == "file-part" and shown["requestCounts"]["completed"] == 20


def test_in_the_grace_the_service_may_end_a_batch_itself(yard, planner):
    yard.batches.order(auto=False)
    job = yard.create()
    yard.reaches(job, "scheduling")
    (batch,) = yard.batches_of(job)
    yard.batches.order(batch={batch["id"]: {"status": "in_progress", "expires_at": batch["created_at"] - 10}})
    yard.reaches(job, "in_progress")
    yard.batches.order(batch={batch["id"]: {"status": "expired", "output_file_id": "file-part"}})
    yard.reaches(job, "expired")
    assert yard.job(job)["outputDataset"] == "file-part"
    assert not yard.batches.calls("POST", f"/v1/batches/{batch['id']}/cancel")


# --- what the batch service says of lines; whom everybody waits for; what nobody is to see ---

def test_errors_by_line_keep_their_lines_in_both_dialects(yard, planner):
    yard.batches.order(auto=False)
    job = yard.create()
    yard.reaches(job, "scheduling")
    (one,) = yard.batches_of(job)
    bad = [{"code": "invalid_json", "message": "not JSON", "param": None, "line": 3}, {"code": "x", "message": "y", "param": "body", "line": 1}]
    yard.batches.order(batch={one["id"]: {"status": "failed", "errors": {"object": "list", "data": bad}}})
    yard.reaches(job, "failed")
    console, openai = yard.job(job)["errors"], yard.stack.get(f"/v1/batches/{job}").json()["errors"]["data"]
    assert [(e["code"], e["line"], e["message"]) for e in console] == [("invalid_json", "3", "not JSON"), ("x", "1", "y")]
    assert [(e["code"], e["line"], e["param"]) for e in openai] == [("invalid_json", 3, None), ("x", 1, "body")]


def test_a_full_pool_of_threads_serves_everybody_in_turn_and_counts_what_it_left(yard):
    """Section 5, "Loop" and "Worker pool": pending and running jobs take turns, and no job is served twice before all were once."""
    yard.pool("default", max_concurrent_provisioning=100)
    yard.batches.order(auto=False)
    running = yard.enqueue(12)
    with yard.planner(WB_LOCAL_SLOTS=100):
        for job in running:
            yard.reaches(job, "scheduling")
    yard.batches.fault("GET /v1/batches/.*", "delay", seconds=0.05, times=-1)
    polls = [f"/v1/batches/{yard.batches_of(job)[0]['id']}" for job in running]

    def looks():
        paths = [r["path"] for r in yard.batches.state()["requests"] if r["method"] == "GET"]
        return [paths.count(path) for path in polls]
    pending, before = yard.enqueue(3), sum(looks())
    with yard.planner(WB_LOCAL_SLOTS=100, WB_PLANNER_WORKERS=1, WB_PLANNER_QUEUE=1) as p:
        for job in pending:
            yard.reaches(job, "scheduling")
        assert sum(looks()) - before < 4 * len(running)
        before = looks()
        wait_until(lambda: yard.hurry() or all(now > then + 1 for now, then in zip(looks(), before)), "two looks at everybody")
        assert p.metric("weighbridge_planner_refused_total") > 0


def test_keys_of_providers_are_in_no_log_and_no_row(yard, cloud):
    cloud.fault("POST .*launch", "status", status=401, body={"error": {"code": "global/invalid-api-key", "message": "bad key lambda-key"}})
    with yard.planner(WB_BATCH_TOKEN="batch-secret", WB_RUNTIME_LOG_LEVEL="debug") as p:
        yard.reaches(in_cloud(yard)[0], "resource_failed")
        yard.reaches(in_cloud(yard)[0], "completed")
        yard.nothing_left()
        said = p.text()
    rows = [str(yard.stack.sql(f"SELECT * FROM {table}")) for table in ("job", "job_event", "intent", "provision", "pool", "chore")]
    for secret in ("lambda-key", "batch-secret"):
        assert secret not in said and not any(secret in row for row in rows)


def test_a_job_has_faults_of_its_own_and_they_reach_nothing_else(yard, planner, tmp_path):
    """Section 5, "Fault injection"; and what stands in a rule is a name, not more of the language of [faults] set."""
    mark = tmp_path / "made"
    rules = [{"point": "submit.begun", "action": "fail"}]
    words = [{"point": f"claimed=kill!{mark} claimed", "action": "fail"}, {"point": "claimed", "action": f"kill!{mark}"}]
    ill, odd = (yard.enqueue(request=json.dumps({"injection_config": {"enabled": True, "rules": r}}))[0] for r in (rules, words))
    other = yard.create()
    for job in (other, odd):
        yard.reaches(job, "completed")
    wait_until(lambda: yard.hurry() or "an intent was not begun" in planner.text(), "the fault")
    assert yard.state(ill) == "submitting" and planner.alive() and not mark.exists()


# --- draining ---

def drain(yard, what="drain"):
    answer = yard.stack.call("POST", f"/api/v1/planner/pools/default/{what}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_drained_pool_keeps_its_queue_and_finishes_what_is_planned(yard, planner):
    yard.batches.order(auto=False)
    running = yard.create()
    yard.reaches(running, "scheduling")
    assert drain(yard)["drainedBy"] == "admin"
    yard.batches.order(auto=True)
    waiting = yard.create()
    planned = yard.stack.get("/api/v1/planner").json()["pools"][0]["lastPlanAt"]
    yard.reaches(running, "completed")
    wait_until(lambda: yard.hurry() or yard.stack.get("/api/v1/planner").json()["pools"][0]["lastPlanAt"] > planned, "plans")
    assert yard.history(waiting) == ["queued"]
    seen = drain(yard, "resume")
    assert seen["drainedAt"] is None and seen["states"]["queued"] == "1"
    yard.reaches(waiting, "completed", hurry=False)


# --- how it is set up ---

def test_without_a_batch_service_jobs_wait_with_their_machines_and_say_why(yard):
    job = yard.create()
    with yard.planner(WB_BATCH_URL=""):
        wait_until(lambda: yard.errors(job)[0] == "no_batch_service", "the error")
        assert yard.state(job) == "resource_preparing" and "[batch] url" in yard.job(job)["errorMessage"]
    with yard.planner():
        yard.reaches(job, "completed")
    assert yard.job(job)["errorMessage"] == ""


def test_a_cycle_may_be_run_from_cron(yard):
    job = yard.create()
    p = yard.planner("--once")
    assert p.process.wait(HANG_S) == 0, p.text()
    assert yard.state(job) == "scheduling"
    p.__exit__(None)


@pytest.mark.parametrize("ini, word", [("[pool x]\nprovisioner = moon\n", "there is no 'moon'"),
                                       ("[pool x]\npolicy = guess\n", "there is no 'guess'")])
def test_an_unknown_provisioner_or_policy_stops_the_daemon_at_start_with_a_clear_word(yard, ini, word):
    yard.ini += ini
    for args in ((), ("--check",), ("--once",)):
        p = yard.planner(*args)
        assert p.process.wait(HANG_S) == 1
        assert word in p.text() and "[pool x]" in p.text()
        p.process.returncode = 0
        p.__exit__(None)


def test_the_state_machine_is_printed(stack):
    done = subprocess.run([binary(stack, "weighbridge-planner"), "--dump-fsm"], capture_output=True, text=True, timeout=HANG_S, check=True)
    assert done.stdout == (ROOT / "docs" / "job-states.md").read_text(encoding="utf8")


@pytest.mark.parametrize("program", ["planner", "jobs"])
def test_each_program_has_health_and_metrics_under_its_name(stack, program):
    stack.dev("start", program)
    for path in ("healthz", "readyz"):
        answer = stack.get(f"/{program}/{path}", token=None)
        assert (answer.status_code, answer.json()["status"]) == (200, "ok")
    assert stack.get(f"/{program}/metrics", token=None).status_code == 401
    assert "weighbridge_http_requests_total" in stack.get(f"/{program}/metrics", token="viewer").text
