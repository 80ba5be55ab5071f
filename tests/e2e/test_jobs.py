# SPDX-License-Identifier: Apache-2.0
"""Batch jobs over HTTP, in both dialects. Jobs contract, sections 2, 3 and 4."""
import uuid
from functools import partial
from pathlib import Path

import pytest

from conftest import at_once, wait_until

CONSOLE_KEYS = """id object endpoint model inputDataset completionWindow status outputDataset errorDataset createdAt inProgressAt
    expiresAt finalizingAt completedAt failedAt expiredAt cancellingAt cancelledAt requestCounts usage metadata extraBody errors
    runtime resourceAllocation modelTemplateRef profile name createdBy modelTemplateName modelTemplateVersion batchId provisionId
    errorMessage queuedAt resourcePreparingAt submittingAt resourceFailedAt submitFailedAt cancelRequestedAt provision events
    plannedAt attempts queuePosition nextAttemptAt""".split()
INT64 = [k for k in CONSOLE_KEYS if k.endswith("At")]
ENDPOINTS = ["/v1/responses", "/v1/chat/completions", "/v1/embeddings", "/v1/completions", "/v1/moderations", "/v1/images/generations",
             "/v1/images/edits", "/v1/videos", "/v1/rerank"]


@pytest.fixture
def jobs(stack):
    stack.sql("TRUNCATE job CASCADE")
    stack.sql("TRUNCATE job_run, job_event, job_count, intent, provision")
    return stack


def create(jobs, token="submitter", headers=None, **fields):
    body = {"input_dataset": "file-1", "endpoint": "/v1/chat/completions", **fields}
    return jobs.call("POST", "/api/v1/jobs", body, token=token, headers=headers or {})


def created(jobs, **fields):
    answer = create(jobs, **fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def batch(jobs, headers=None, token="submitter", **fields):
    body = {"input_file_id": "file-1", "endpoint": "/v1/chat/completions", "completion_window": "24h", **fields}
    return jobs.call("POST", "/v1/batches", body, token=token, headers=headers or {})


# --- Console dialect ---

def test_every_field_is_present_in_order_and_int64_is_text(jobs):
    job = created(jobs, name="first")
    assert list(job) == CONSOLE_KEYS
    assert all(isinstance(job[k], str) for k in INT64)
    assert (job["object"], job["status"], job["completionWindow"], job["createdBy"]) == ("batch", "queued", "24h", "submitter")
    assert int(job["createdAt"]) > 1_600_000_000 and job["queuedAt"] == job["createdAt"]
    assert [job[k] for k in ("requestCounts", "usage", "runtime", "resourceAllocation", "modelTemplateRef", "provision")] == [None] * 6
    assert job["queuePosition"] == 1 and job["attempts"] == 0


def test_the_answer_to_a_new_job_is_what_a_look_right_after_it_tells(jobs):
    created(jobs, name="earlier")
    job = created(jobs, name="later", requestCountTotal=7)
    assert job["queuePosition"] == 2 and [e["label"] for e in job["events"]] == ["queued"]
    assert job == jobs.get(f"/api/v1/jobs/{job['id']}").json()


def test_input_is_taken_in_either_spelling_with_numbers_as_text_and_unknown_fields_ignored(jobs):
    one = created(jobs, completionWindow="1d2h", requestCountTotal="7", resourceRequest={"replicas": "2"}, nobodyKnows=1)
    two = created(jobs, completion_window="1d2h", request_count_total=7, resource_request={"replicas": 2})
    for job in (one, two):
        assert job["completionWindow"] == "1d2h"
        assert job["requestCounts"] == {"total": 7, "completed": 0, "failed": 0}
    rows = jobs.sql("SELECT request FROM job ORDER BY seq")
    assert rows[0][0] == rows[1][0] and rows[0][0]["replicas"] == 2


def test_the_whole_request_is_kept(jobs):
    fields = {"metadata": {"camelCase": "stays", "b": "2"}, "client": {"max_concurrency": 8, "adaptive_concurrency": True,
              "retry_policy": {"max_retries": 2, "base_delay_seconds": 0.5}},
              "resource_request": {"replicas": 3, "provider_config": {"anyKey": {"inner_key": 1}}}}
    job = created(jobs, name="n", **fields)
    assert job["metadata"] == fields["metadata"]
    kept = jobs.sql("SELECT request FROM job")[0][0]
    assert kept["client"] == fields["client"] and kept["metadata"] == fields["metadata"]
    assert kept["provider_config"] == fields["resource_request"]["provider_config"] and kept["replicas"] == 3


@pytest.mark.parametrize("field, body", [
    ("input_dataset", {"input_dataset": ""}),
    ("endpoint", {"endpoint": ""}),
    ("endpoint", {"endpoint": "/v1/nothing"}),
    ("completion_window", {"completion_window": "1w"}),
    ("completion_window", {"completion_window": "0h"}),
    ("completion_window", {"completion_window": 5}),
    ("completion_window", {"completion_window": "24 h"}),
    ("completion_window", {"completion_window": " 24h"}),
    ("completion_window", {"completion_window": "24h\n"}),
    ("client", {"client": "fast"}),
    ("client.adaptive_concurrency", {"client": {"adaptive_concurrency": "yes"}}),
    ("client.adaptive_concurrency", {"client": {"adaptiveConcurrency": 1}}),
    ("client.max_concurrency", {"client": {"max_concurrency": True}}),
    ("client.retry_policy", {"client": {"retry_policy": []}}),
    ("extra_body", {"extra_body": "x"}),
    ("resource_request.provider_config", {"resource_request": {"provider_config": "x"}}),
    ("resource_request.provider_config.pool", {"resource_request": {"provider_config": {"pool": 1}}}),
    ("name", {"name": 1}),
    ("priority", {"priority": "high"}),
    ("resource_request.replicas", {"resource_request": {"replicas": 1025}}),
    ("resource_request.replicas", {"resource_request": {"replicas": 1.5}}),
    ("resource_request", {"resource_request": []}),
    ("client.max_concurrency", {"client": {"max_concurrency": 0}}),
    ("client.adaptive_max_factor", {"client": {"adaptiveMaxFactor": 0}}),
    ("client.retry_policy.max_retries", {"client": {"retryPolicy": {"maxRetries": -1}}}),
    ("client.retry_policy.base_delay_seconds", {"client": {"retry_policy": {"base_delay_seconds": -0.5}}}),
    ("metadata", {"metadata": {"k": 1}}),
    ("metadata", {"metadata": {str(n): "v" for n in range(17)}}),
    ("metadata", {"metadata": {"k": "v" * 513}}),
    ("name", {"name": "n" * 513}),
    ("model_template_name", {"model_template_name": "nowhere"}),
    ("input_dataset", {"input_dataset": "../.."}),
    ("input_dataset", {"input_dataset": ".."}),
    ("input_dataset", {"input_dataset": " "}),
    ("input_dataset", {"input_dataset": "file\n1"}),
    ("output_expires_after.anchor", {"output_expires_after": {"anchor": "now", "seconds": 3600}}),
    ("output_expires_after.anchor", {"output_expires_after": {"seconds": 3600}}),
    ("output_expires_after.seconds", {"output_expires_after": {"anchor": "created_at"}}),
    ("resource_request.provider_config.pool", {"resource_request": {"provider_config": {"pool": "nowhere"}}}),
])
def test_what_would_be_refused_later_is_refused_now_with_its_name(jobs, field, body):
    answer = create(jobs, **body)
    assert answer.status_code == 400, answer.text
    assert set(answer.json()) == {"code", "message", "details"}
    assert answer.json()["code"] == 3 and answer.json()["message"].startswith(field + ":")
    assert jobs.sql("SELECT count(*) FROM job")[0][0] == 0


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_the_endpoints_of_openai_and_rerank_are_taken(jobs, endpoint):
    assert create(jobs, endpoint=endpoint).status_code == 200


def test_the_list_is_newest_first_and_pages_are_whole(jobs):
    made = [created(jobs, name=f"n{n}")["id"] for n in range(5)]
    first = jobs.get("/api/v1/jobs?limit=2").json()
    assert [j["id"] for j in first["jobs"]] == made[:2:-1]
    assert (first["firstId"], first["lastId"], first["hasMore"]) == (made[4], made[3], True)
    rest = jobs.get(f"/api/v1/jobs?limit=200&after={first['lastId']}").json()
    assert [j["id"] for j in rest["jobs"]] == made[2::-1] and rest["hasMore"] is False
    end = jobs.get(f"/api/v1/jobs?after={made[0]}").json()
    assert end == {"jobs": [], "firstId": "", "lastId": "", "hasMore": False}


@pytest.mark.parametrize("query, status, count", [
    ("limit=0", 200, 3), ("limit=-5", 200, 3), ("limit=1000", 200, 3), ("limit=x", 400, 0), ("after=job_x", 400, 0),
    ("after=job_" + str(uuid.UUID(int=7)), 400, 0), ("status=running", 400, 0), ("status=queued", 200, 2), ("status=cancelled", 200, 1),
    ("status=queued&status=cancelled", 200, 3), ("created_by=submitter", 200, 3), ("created_by=nobody", 200, 0), ("q=al", 200, 2),
])
def test_limits_and_filters_of_the_list(jobs, query, status, count):
    for name in ("alpha", "alto", "beta"):
        last = created(jobs, name=name)["id"]
    jobs.call("POST", f"/api/v1/jobs/{last}/cancel", token="submitter")
    answer = jobs.get("/api/v1/jobs?" + query)
    assert answer.status_code == status, answer.text
    if status == 200:
        assert len(answer.json()["jobs"]) == count
    else:
        assert answer.json()["code"] == 3


def test_the_same_key_and_body_is_the_same_job_and_another_body_409(jobs):
    key = {"Idempotency-Key": "k-1"}
    one = create(jobs, headers=key, name="a")
    two = create(jobs, headers=key, name="a")
    assert (one.status_code, two.status_code) == (200, 200) and one.json()["id"] == two.json()["id"]
    other = create(jobs, headers=key, name="b")
    assert other.status_code == 409 and other.json()["code"] == 10
    assert jobs.sql("SELECT count(*) FROM job")[0][0] == 1


def test_a_key_stands_for_what_was_sent_and_not_for_how_it_was_written(jobs):
    """The order of keys, their spelling and that of numbers do not make another request."""
    key = {"Idempotency-Key": "k-order"}
    one = create(jobs, headers=key, name="a", metadata={"x": "1", "y": "2"}, client={"max_concurrency": 8, "adaptive_concurrency": True})
    two = create(jobs, headers=key, client={"adaptiveConcurrency": True, "maxConcurrency": 8.0}, metadata={"y": "2", "x": "1"}, name="a")
    assert (one.status_code, two.status_code) == (200, 200) and one.json()["id"] == two.json()["id"]
    assert create(jobs, headers=key, name="a", metadata={"x": "2", "y": "1"}).status_code == 409


def test_of_many_at_once_with_one_key_one_makes_the_job(jobs):
    answers, _ = at_once([partial(create, jobs, headers={"Idempotency-Key": "at-once"}, name="a")] * 8)
    assert [a.status_code for a in answers] == [200] * 8
    assert len({a.json()["id"] for a in answers}) == 1


def test_a_queued_job_is_cancelled_at_once_by_its_owner_or_an_admin_only(jobs):
    mine = created(jobs)["id"]
    jobs.sql("UPDATE job SET created_by = 'somebody-else' WHERE id::text = %s", (mine[4:],))
    refused = jobs.call("POST", f"/api/v1/jobs/{mine}/cancel", token="submitter")
    assert (refused.status_code, refused.json()["code"]) == (403, 7)
    done = jobs.call("POST", f"/api/v1/jobs/{mine}/cancel", token="admin")
    assert done.status_code == 200 and done.json()["status"] == "cancelled"
    again = jobs.call("POST", f"/api/v1/jobs/{mine}/cancel", token="admin")
    assert again.status_code == 200 and again.json()["cancelledAt"] == done.json()["cancelledAt"]


def test_names_of_owners_are_compared_letter_by_letter(jobs):
    mine = created(jobs)["id"]
    jobs.sql("UPDATE job SET created_by = 'SubMitter' WHERE id::text = %s", (mine[4:],))
    assert jobs.call("POST", f"/api/v1/jobs/{mine}/cancel", token="submitter").status_code == 403
    assert jobs.call("POST", f"/v1/batches/{mine}/cancel", token="submitter").status_code == 403


def test_events_and_counts_tell_what_happened(jobs):
    job = created(jobs)["id"]
    created(jobs)
    jobs.call("POST", f"/api/v1/jobs/{job}/cancel", token="submitter")
    trail = jobs.get(f"/api/v1/jobs/{job}/events").json()["events"]
    assert [(t["from"], t["to"], t["actor"]) for t in trail] == [("", "queued", "submitter"), ("queued", "cancelled", "submitter")]
    assert all(len(t["at"]) == len("2026-11-30T22:49:31.490924Z") for t in trail)
    stats = jobs.get("/api/v1/jobs/stats").json()
    assert (stats["states"]["queued"], stats["states"]["cancelled"], stats["total"]) == ("1", "1", "2")


def test_what_does_not_exist_is_404_in_the_words_of_its_dialect(jobs):
    for path in ("/api/v1/jobs/job_" + str(uuid.UUID(int=9)), "/api/v1/jobs/x", "/api/v1/jobs/x/events"):
        answer = jobs.get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, 5), path
    answer = jobs.get("/v1/batches/batch_1")
    assert answer.status_code == 404
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_roles(jobs):
    assert create(jobs, token="viewer").status_code == 403
    assert create(jobs, token=None).status_code == 401
    assert jobs.get("/api/v1/jobs", token=None).json()["code"] == 16
    for token in ("viewer", "submitter", "admin"):
        assert jobs.get("/api/v1/jobs", token=token).status_code == 200
    assert jobs.call("POST", "/api/v1/models", {"name": "m"}, token="submitter").status_code == 403


def test_what_the_ui_asks_when_it_starts(jobs):
    assert jobs.get("/api/v1/auth/config", token=None).json() == {"mode": "dev"}
    assert jobs.get("/api/v1/health", token=None).json() == {"status": "ok"}
    assert set(jobs.get("/api/v1/auth/userinfo").json()) == {"id", "email", "name", "role", "username", "picture"}
    assert jobs.get("/api/v1/config/job-capabilities").json() == {
        "resource_request": {"min_replicas": 1, "max_replicas": 1024}, "provider": "local"}


def test_so_many_threads_as_are_asked_for_commit_jobs(stack):
    """[jobs] threads, and not [fcgi] threads: a thread waits for its commit."""
    before = dict(stack.environ)
    stack.environ |= {"WB_JOBS_THREADS": "9", "WB_FCGI_THREADS": "3"}
    try:
        stack.dev("stop", "jobs")
        stack.dev("start", "jobs")
        workers = [p.parent for p in Path("/proc").glob("[0-9]*/cmdline") if (argv := p.read_bytes().split(b"\0"))
                   and b"weighbridge-jobs" in argv[0] and b"--worker" in argv and any(str(stack.var).encode() in a for a in argv)]
        assert [len(list((w / "task").iterdir())) for w in workers] == [9 + 1]  # and the main one
    finally:
        stack.environ = before
        stack.dev("stop", "jobs")
        stack.dev("start", "jobs")


@pytest.mark.touches("postgres")
def test_without_postgres_the_program_is_not_ready_whatever_redis_says(stack):
    stack.dev("stop", "postgres")
    jobs = stack.get("/jobs/readyz", token=None)
    assert (jobs.status_code, jobs.json()["status"], jobs.json()["redis"]) == (503, "down", "ok")
    assert jobs.json()["error"] == "Postgres does not answer" and "Retry-After" in jobs.headers
    operations = stack.get("/readyz", token=None)  # which answers from Redis
    assert (operations.status_code, operations.json()["status"]) == (200, "degraded")


@pytest.mark.touches("postgres")
def test_a_store_that_is_down_is_503_and_never_an_empty_list(jobs):
    created(jobs)
    jobs.dev("stop", "postgres")
    listed, batches, made = jobs.get("/api/v1/jobs"), jobs.get("/v1/batches"), create(jobs)
    for answer in (listed, batches, made):
        assert answer.status_code == 503 and answer.headers["Retry-After"]
    assert (listed.json()["code"], batches.json()["error"]["type"]) == (14, "server_error")


@pytest.mark.touches("redis")
def test_without_redis_jobs_are_taken_and_shown(jobs):
    jobs.dev("stop", "redis")
    assert jobs.get(f"/api/v1/jobs/{created(jobs)['id']}").status_code == 200


# --- OpenAI dialect ---

def test_a_batch_is_a_job_and_the_other_way_round(jobs):
    made = batch(jobs, metadata={"k": "v", "display_name": "shown"})
    assert made.status_code == 200, made.text
    seen = jobs.get("/api/v1/jobs/" + made.json()["id"]).json()
    assert (seen["name"], seen["inputDataset"], seen["metadata"]["k"]) == ("shown", "file-1", "v")
    other = created(jobs, name="x")
    back = jobs.get("/v1/batches/" + other["id"]).json()
    assert (back["object"], back["status"], back["input_file_id"]) == ("batch", "validating", "file-1")
    assert back["weighbridge"]["state"] == "queued" and back["errors"] is None
    listed = jobs.get("/v1/batches?limit=1").json()
    assert [b["id"] for b in listed["data"]] == [other["id"]]
    assert (listed["object"], listed["has_more"], listed["first_id"]) == ("list", True, other["id"])


@pytest.mark.parametrize("param, body", [
    ("input_file_id", {"input_file_id": None}),
    ("endpoint", {"endpoint": "/v1/x"}),
    ("aibrix.client.max_concurrency", {"aibrix": {"client": {"max_concurrency": 1025}}}),
    ("aibrix.model_template.name", {"aibrix": {"model_template": {"name": "nowhere"}}}),
    ("aibrix", {"aibrix": "text"}),
    ("aibrix.client", {"aibrix": {"client": []}}),
    ("aibrix.client.adaptive_concurrency", {"aibrix": {"client": {"adaptive_concurrency": "true"}}}),
    ("aibrix.client.retry_policy", {"aibrix": {"client": {"retry_policy": 1}}}),
    ("aibrix.model_template", {"aibrix": {"model_template": "t"}}),
    ("aibrix.resource_request", {"aibrix": {"resource_request": 2}}),
    ("completion_window", {"completion_window": " 24h"}),
    ("metadata", {"metadata": []}),
    ("weighbridge", {"weighbridge": 1}),
    ("aibrix.resource_request.provider_config.pool", {"aibrix": {"resource_request": {"provider_config": {"pool": "nowhere"}}}}),
    ("output_expires_after.seconds", {"output_expires_after": {"anchor": "created_at", "seconds": 5}}),
])
def test_openai_errors_name_the_parameter(jobs, param, body):
    answer = batch(jobs, **body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_limits_of_the_openai_list(jobs):
    for limit, status in ((0, 400), (1, 200), (100, 200), (101, 400)):
        assert jobs.get(f"/v1/batches?limit={limit}").status_code == status
    assert jobs.get("/v1/batches").json() == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


def test_cancelling_an_ended_batch_is_409_that_is_not_to_be_tried_again(jobs):
    made = batch(jobs).json()["id"]
    done = jobs.call("POST", f"/v1/batches/{made}/cancel", token="submitter")
    assert (done.status_code, done.json()["status"]) == (200, "cancelled")
    again = jobs.call("POST", f"/v1/batches/{made}/cancel", token="submitter")
    assert again.status_code == 409 and again.headers["x-should-retry"] == "false"
    assert jobs.call("POST", f"/api/v1/jobs/{made}/cancel", token="submitter").status_code == 200


def test_an_idempotency_key_works_here_too_and_its_409_is_final(jobs):
    key = {"Idempotency-Key": "k"}
    one, two = batch(jobs, headers=key), batch(jobs, headers=key)
    assert one.json()["id"] == two.json()["id"]
    other = batch(jobs, headers=key, input_file_id="file-2")
    assert other.status_code == 409 and other.headers["x-should-retry"] == "false"
    assert other.json()["error"]["message"].startswith("Idempotency-Key: ")


# --- models and templates ---

SPEC = {"engine": {"type": "vllm", "image": "img", "serve_args": ["--x"]}, "model_source": {"type": "s3", "uri": "s3://m"},
        "accelerator": {"type": "A100", "count": 4}, "engine_args": {"snake_and_Camel": "kept"}}


@pytest.fixture
def model(jobs):
    jobs.sql("TRUNCATE model CASCADE")
    made = jobs.call("POST", "/api/v1/models", {"id": "m1", "name": "Llama", "serving_name": "llama-served", "categories": ["chat"]})
    assert made.status_code == 200, made.text
    assert made.json()["servingName"] == "llama-served" and made.json()["categories"] == ["chat"]
    return jobs


def template(model, **fields):
    return model.call("POST", "/api/v1/models/m1/deployment-templates", {"name": "big", "spec": SPEC, **fields})


@pytest.mark.parametrize("accelerator, says", [
    ({"type": "A100", "count": 1.5}, "count"), ({"type": "A100", "count": "4"}, "count"), ({"type": 5}, "type"),
    ({"type": "A" * 96}, "type"), ({"type": "A100", "count": -1}, "GPUs"),
])
def test_a_template_that_could_never_be_scheduled_is_refused_at_once(model, accelerator, says):
    assert template(model, spec={**SPEC, "accelerator": accelerator}).status_code == 200
    refused = create(model, model_template_name="big")
    assert refused.status_code == 400, refused.text
    assert refused.json()["message"].startswith("model_template_name: ") and says in refused.json()["message"], refused.text


def test_templates_have_defaults_are_unique_and_the_highest_active_version_is_meant(model):
    one = template(model)
    assert one.status_code == 200, one.text
    assert (one.json()["version"], one.json()["status"], one.json()["modelId"]) == ("v1.0.0", "active", "m1")
    assert one.json()["spec"]["modelSource"]["uri"] == "s3://m"
    assert one.json()["spec"]["engineArgs"] == {"snake_and_Camel": "kept"}
    assert template(model).status_code == 409
    for version, status in (("v1.9.0", "active"), ("v1.10.0", "active"), ("v2.0.0", "draft")):
        assert template(model, version=version, status=status).status_code == 200
    path = "/api/v1/models/m1/deployment-templates"
    assert model.get(path + "/by-name/big").json()["version"] == "v1.10.0"
    assert model.get(path + "/by-name/big?version=v1.9.0").json()["version"] == "v1.9.0"
    assert model.get(path + "/by-name/none").status_code == 404
    listed = model.get(path + "?status=active").json()["templates"]
    assert [t["version"] for t in listed] == ["v1.10.0", "v1.9.0", "v1.0.0"]
    changed = model.call("PUT", path + "/" + one.json()["id"], {"status": "deprecated"})
    assert (changed.status_code, changed.json()["status"], changed.json()["spec"]) == (200, "deprecated", one.json()["spec"])
    assert model.call("DELETE", path + "/" + one.json()["id"]).status_code == 200
    assert model.get(path + "/" + one.json()["id"]).status_code == 404


def test_a_job_carries_its_template_and_the_model_that_is_served(model):
    template(model)
    job = created(model, model_template_name="big")
    assert (job["model"], job["modelTemplateName"], job["modelTemplateVersion"]) == ("llama-served", "big", "v1.0.0")
    kept = model.sql("SELECT request FROM job")[0][0]["model_template"]
    assert (kept["model_id"], kept["spec"]) == ("m1", SPEC)
    assert model.sql("SELECT gpus, gpu_type FROM job_run") == [(4, "A100")]


def test_the_same_key_and_body_is_the_same_job_when_its_template_has_gone(model):
    made = template(model).json()["id"]
    key = {"Idempotency-Key": "gone"}
    one = created(model, model_template_name="big", headers=key)
    assert model.call("DELETE", f"/api/v1/models/m1/deployment-templates/{made}").status_code == 200
    assert created(model, modelTemplateName="big", headers=key)["id"] == one["id"]
    assert create(model, model_template_name="big").status_code == 400


@pytest.mark.parametrize("field", ["name", "version"])
def test_a_template_keeps_its_name_and_version(model, field):
    made = template(model).json()
    path = f"/api/v1/models/m1/deployment-templates/{made['id']}"
    answer = model.call("PUT", path, {field: ""})
    assert answer.status_code == 400 and answer.json()["message"].startswith(field + ":")
    assert model.get(path).json()[field] == made[field]


def test_a_template_of_which_no_version_is_active_is_refused(model):
    template(model, status="draft")
    answer = create(model, model_template_name="big")
    assert answer.status_code == 400 and answer.json()["message"].startswith("model_template_name:")


def test_models_are_found_by_text_and_category(model):
    assert [m["id"] for m in model.get("/api/v1/models?search=LLA").json()["models"]] == ["m1"]
    assert model.get("/api/v1/models?category=image").json() == {"models": []}
    assert model.get("/api/v1/models/m1").json()["name"] == "Llama"
    assert model.get("/api/v1/models/none").status_code == 404


# --- planning ---

def test_operators_see_pools_queues_and_what_is_due(jobs):
    created(jobs)
    seen = jobs.get("/api/v1/planner").json()
    pool = next(p for p in seen["pools"] if p["name"] == "default")
    assert pool["states"]["queued"] == "1" and pool["leaseholder"] == ""
    assert {"provision", "create_batch", "cancel_batch", "release"} <= set(seen["intents"])
    assert jobs.get("/api/v1/provisions").json() == {"provisions": [], "hasMore": False}


# --- faults: section 5, "Fault injection" ---

FAULTS = {"enabled": True, "rules": [{"point": "claimed", "action": "fail"}]}


def kept_faults(jobs):
    return [row[0] for row in jobs.sql("SELECT request -> 'injection_config' FROM job ORDER BY seq")]


def test_faults_are_not_kept_where_the_configuration_does_not_allow_them(jobs):
    assert create(jobs, injection_config=FAULTS, token="admin", input_dataset="of-admin").status_code == 200
    assert batch(jobs, aibrix={"injection_config": FAULTS}).status_code == 200
    assert kept_faults(jobs) == [None, None]


def test_where_they_are_allowed_faults_are_an_admins_to_inject(jobs):
    before = jobs.environ
    try:
        jobs.environ = {**before, "WB_FAULTS_ALLOW": "on"}
        jobs.dev("stop", "jobs")
        jobs.dev("start", "jobs")
        for answer in (create(jobs, injection_config=FAULTS), batch(jobs, aibrix={"injection_config": FAULTS})):
            assert answer.status_code == 403 and "injection_config" in answer.text
        assert create(jobs, injection_config=FAULTS, token="admin", input_dataset="of-admin").status_code == 200
        assert create(jobs).status_code == 200
        assert kept_faults(jobs) == [FAULTS, None]
    finally:
        jobs.environ = before
        jobs.dev("stop", "jobs")
        jobs.dev("start", "jobs")


# --- files ---

def test_files_of_a_job_are_for_its_owner_and_admins_and_unknown_ones_for_readers(jobs):
    created(jobs, input_dataset="file-of-submitter")

    def status(method, path, token):
        return jobs.call(method, path, token=token).status_code
    # The batch service does not run here: who may pass gets 503, who may not is refused before.
    for path in ("/v1/files/file-of-submitter/content", "/api/v1/files/file-of-submitter"):
        assert status("GET", path, "submitter") == 503
        assert status("GET", path, "admin") == 503
        assert status("GET", path, "viewer") == 403
        assert status("GET", path, None) == 401
    assert status("GET", "/v1/files/other", "viewer") == 503
    assert status("POST", "/api/v1/files/upload", "viewer") == 403
    assert status("POST", "/v1/files", "submitter") == 503
    assert status("DELETE", "/v1/files/other", "submitter") == 403


def test_the_guard_is_not_reached_from_outside(jobs):
    assert jobs.get("/internal/file-access").status_code == 404
    assert jobs.get("/_wb_file_access").status_code == 404
    wait_until(lambda: jobs.get("/healthz").status_code == 200, "health")
