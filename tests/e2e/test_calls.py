# SPDX-License-Identifier: Apache-2.0
"""Staging and load-job calls through the whole stack. Operations contract, sections 3 and 5."""
from urllib.parse import quote

import pytest

from conftest import at_once, exactly_one, wait_until

KEY = "org/model@1:q4 100%"
PATH = "/api/v1/staging/" + quote(KEY, safe="")
JOB = "/api/v1/load-jobs/" + quote(KEY, safe="")
ENTRY_KEYS = ["id", "jobID", "name", "fullName", "progress", "taskType", "isDeletion", "isBackend", "isQueued",
              "cancellable", "message", "nodeID", "nodeName", "phase", "currentBytes", "totalBytes"]


# --- staging ---

def test_overlay_only_is_shown_without_node_id_and_phase(stack):
    assert stack.stage(KEY).status_code == 204
    entry = stack.entry(KEY)
    assert list(entry) == [k for k in ENTRY_KEYS if k not in ("nodeID", "phase")]
    assert entry == {
        "id": "staging:" + KEY, "jobID": "staging:" + KEY, "name": KEY, "fullName": KEY, "progress": 0,
        "taskType": "staging", "isDeletion": False, "isBackend": False, "isQueued": False, "cancellable": False,
        "message": "Preparing to stage model files", "nodeName": "n1", "currentBytes": 0, "totalBytes": 0}


def test_message_is_written_for_the_sender_and_missing_fields_stay(stack):
    stack.stage(KEY, file_name="weights.gguf", bytes_sent=1288490189, total_bytes=4294967296,
                file_index=2, total_files=4, speed="310 MiB/s")
    wait_until(lambda: (e := stack.entry(KEY)) and e["progress"] == 32, "the report")
    assert stack.entry(KEY)["message"] == "weights.gguf (1.2 GiB / 4.0 GiB, 310 MiB/s)"
    stack.stage(KEY, bytes_sent=2147483648)
    found = stack.get(PATH).json()
    assert found["file_name"] == "weights.gguf" and found["total_bytes"] == 4294967296
    assert found["progress"] == 37.5
    assert found["message"] == "weights.gguf (2.0 GiB / 4.0 GiB, 310 MiB/s)"


def test_without_a_total_the_message_says_staging(stack):
    stack.stage(KEY, file_name="weights.gguf")
    assert stack.get(PATH).json()["message"] == "Staging weights.gguf"


def test_file_complete(stack):
    stack.stage(KEY, file_name="a", bytes_sent=1, total_bytes=2, file_index=1, total_files=4, speed="1 B/s")
    done = stack.call("POST", PATH + "/file-complete", {"file_index": 1, "total_files": 4}, token="worker")
    assert done.status_code == 204, done.text
    found = stack.get(PATH).json()
    assert (found["progress"], found["bytes_sent"], found["total_bytes"], found["speed"]) == (25, 0, 0, "")


def test_a_key_that_another_live_session_reports_is_409(stack):
    assert stack.stage(KEY, session="one").status_code == 204
    assert stack.stage(KEY, session="two").status_code == 409
    assert stack.stage(KEY, session="one").status_code == 204


def test_the_end_is_at_once_idempotent_and_refuses_the_late(stack):
    stack.stage(KEY, session="one")
    assert stack.entry(KEY)
    for _ in range(2):
        assert stack.call("DELETE", PATH, token="worker").status_code == 204
        assert stack.entry(KEY) is None
    assert stack.stage(KEY, session="one").status_code == 409
    assert stack.stage(KEY, session="two").status_code == 204


def test_every_poll_after_the_answer_sees_the_first_report_and_the_end(stack):
    for i in range(30):
        assert stack.stage(f"k{i}").status_code == 204
        assert stack.entry(f"k{i}"), i
        assert stack.call("DELETE", f"/api/v1/staging/k{i}", token="worker").status_code == 204
        assert stack.entry(f"k{i}") is None, i


def test_staging_list_and_get(stack):
    assert stack.get("/api/v1/staging").json() == {"staging": []}
    assert stack.get(PATH).status_code == 404
    stack.stage("b")
    stack.stage("a")
    assert [s["model_id"] for s in stack.get("/api/v1/staging").json()["staging"]] == ["a", "b"]


@pytest.mark.touches("redis")
def test_staging_without_redis_is_503(stack):
    stack.dev("stop", "redis")
    for answer in (stack.stage(KEY), stack.get(PATH), stack.get("/api/v1/staging"),
                   stack.call("DELETE", PATH, token="worker")):
        assert answer.status_code == 503
        assert answer.headers["Retry-After"]
        assert set(answer.json()) == {"error", "request_id"}


# --- load jobs ---

def test_claim_gives_a_pending_job_and_a_secret(stack):
    answer = stack.call("POST", JOB + "/claim", {"owner": "replica-1"}, token="worker")
    assert answer.status_code == 201
    job = answer.json()
    assert (job["tracking_key"], job["state"], job["owner_replica"], job["claimed"]) == (
        KEY, "pending", "replica-1", True)
    assert len(job["claim_token"]) == 64
    again = stack.call("POST", JOB + "/claim", {"owner": "replica-2"}, token="worker")
    assert again.status_code == 200
    assert again.json()["claimed"] is False and again.json()["owner_replica"] == "replica-1"
    assert "claim_token" not in again.json()
    assert job["claim_token"] not in stack.get(JOB).text
    assert job["claim_token"] not in str(stack.sql("SELECT * FROM load_job_claims"))
    assert job["claim_token"] not in (stack.var / "log" / "operations.log").read_text()


def test_of_two_callers_at_the_same_moment_exactly_one_gets_201(stack):
    for i in range(10):
        answers, again = at_once([lambda: stack.call("POST", f"/api/v1/load-jobs/race{i}/claim", {"owner": "o"}, token="worker")] * 4)
        exactly_one(answers, again, won=201, lost=200)


def test_row_and_overlay_make_one_entry_in_order(stack):
    token = stack.claim(KEY)
    assert stack.entry(KEY) is None, "pending is not staging"
    stack.load(KEY, token, state="staging", node_id="id-1", node_name="gpu-1", bytes_sent=50, total_bytes=200)
    entry = stack.entry(KEY)
    assert list(entry) == ENTRY_KEYS
    assert (entry["nodeID"], entry["nodeName"], entry["phase"], entry["progress"]) == (
        "id-1", "gpu-1", "staging", 25)
    stack.stage(KEY, file_name="w.gguf", bytes_sent=100)
    wait_until(lambda: stack.entry(KEY)["progress"] == 50, "the overlay's progress")
    assert stack.entry(KEY)["message"] == "w.gguf (100 B / 200 B)"


def test_a_foreign_session_does_not_write_into_a_load_but_its_owner_may(stack):
    token = stack.claim(KEY)
    stack.load(KEY, token, state="staging", bytes_sent=50, total_bytes=200)
    assert stack.stage(KEY, session="foreign", bytes_sent=199).status_code == 409
    assert stack.stage(KEY, session="0" * 64, bytes_sent=199).status_code == 409
    assert stack.get(PATH).json()["bytes_sent"] == 50
    assert stack.stage(KEY, session=token, file_name="w.gguf", bytes_sent=100).status_code == 204
    found = stack.get(PATH).json()
    assert (found["file_name"], found["bytes_sent"], found["session"]) == ("w.gguf", 100, "")
    assert all(token not in str(stack.kv().get(key)) for key in stack.kv().keys("wb:1:staging:*"))


def test_the_end_of_a_copy_does_not_refuse_the_owner_of_its_load(stack):
    token = stack.claim(KEY)
    stack.load(KEY, token, state="staging", bytes_sent=50, total_bytes=200)
    assert stack.call("DELETE", PATH, token="worker").status_code == 204
    assert stack.get(PATH).status_code == 404
    stack.load(KEY, token, state="staging", bytes_sent=60, total_bytes=200)
    assert stack.get(PATH).json()["bytes_sent"] == 60


def test_an_ended_session_stays_out_past_a_new_claim(stack):
    stack.stage(KEY, session="one")
    stack.call("DELETE", PATH, token="worker")
    stack.claim(KEY)
    assert stack.stage(KEY, session="one").status_code == 409


def test_row_only_is_shown_on_every_worker(stack):
    token = stack.claim(KEY)
    stack.load(KEY, token, state="staging", node_id="id-1", node_name="gpu-1", bytes_sent=50, total_bytes=200)
    stack.kv().flushdb()
    wait_until(lambda: stack.entry(KEY)["message"] == "", "the row alone")
    assert all(stack.entry(KEY)["progress"] == 25 for _ in range(20))


@pytest.mark.parametrize("state", ["loading", "failed"])
def test_loading_and_failed_hide_any_overlay(stack, state):
    token = stack.claim(KEY)
    stack.load(KEY, token, state="staging", bytes_sent=1, total_bytes=2)
    assert stack.entry(KEY)
    if state == "loading":
        assert stack.load(KEY, token, state="loading").status_code == 200
    else:
        assert stack.call("POST", JOB + "/fail", {"claim_token": token, "error": "disk full"},
                          token="worker").status_code == 204
        assert stack.get(JOB).json()["last_error"] == "disk full"
    assert stack.entry(KEY) is None
    stack.put_overlay(KEY, file_name="late", bytes_sent=1, total_bytes=2)
    seen = stack.metric("weighbridge_snapshots_total")
    wait_until(lambda: stack.entry(KEY) is None and stack.metric("weighbridge_snapshots_total") > seen + 2,
               "two more snapshots")
    assert stack.entry(KEY) is None


def test_a_failed_load_that_counts_as_gone_hides_no_new_copy(stack):
    """No housekeeping runs here: nothing but time makes it count so."""
    token = stack.claim(KEY)
    stack.load(KEY, token, state="staging", bytes_sent=1, total_bytes=2)
    assert stack.call("POST", JOB + "/fail", {"claim_token": token, "error": "disk full"}, token="worker").ok
    assert stack.stage(KEY, session="another", file_name="w.gguf", bytes_sent=1, total_bytes=2).status_code == 204
    assert stack.entry(KEY) is None
    stack.sql("UPDATE model_load_jobs SET created_at = now() - interval '1 hour', last_progress = NULL,"
              " updated_at = now() - interval '16 s'")
    assert stack.stage(KEY, session="another", bytes_sent=2).status_code == 204
    entry = wait_until(lambda: stack.entry(KEY), "the new copy")
    assert (entry["progress"], entry["nodeName"]) == (100, "n1") and "nodeID" not in entry


def test_done_removes_row_and_overlay_and_is_idempotent(stack):
    token = stack.claim(KEY)
    stack.load(KEY, token, state="staging", bytes_sent=1, total_bytes=2)
    for _ in range(2):
        assert stack.load(KEY, token, "DELETE").status_code == 204
    assert stack.entry(KEY) is None
    assert stack.get(JOB).status_code == 404
    assert stack.load(KEY, token, state="staging").status_code == 409


def test_an_orphan_is_replaced_and_its_owner_refused(stack):
    old = stack.claim(KEY, "dead")
    stack.load(KEY, old, state="staging", bytes_sent=80, total_bytes=100)
    stack.sql("UPDATE model_load_jobs SET last_progress = now() - interval '61 s',"
              " updated_at = now() - interval '61 s', created_at = created_at")
    stack.sql("UPDATE model_load_jobs SET created_at = now() - interval '61 s'")
    stack.sql("UPDATE load_job_claims SET claimed_created_at = (SELECT created_at FROM model_load_jobs)")
    held = stack.call("POST", JOB + "/claim", {"owner": "next"}, token="worker")
    assert held.status_code == 200, "a live overlay of its claim keeps it"
    stack.kv().flushdb()
    new = stack.claim(KEY, "next")
    assert stack.load(KEY, old, state="staging", bytes_sent=90, total_bytes=100).status_code == 409
    stack.load(KEY, new, state="staging", bytes_sent=5, total_bytes=100)
    assert stack.entry(KEY)["progress"] == 5, "a dead owner's 80 % does not beat its successor's 5 %"


def test_progress_does_not_run_backwards_within_one_claim(stack):
    token = stack.claim(KEY)
    stack.load(KEY, token, state="staging", bytes_sent=60, total_bytes=100)
    stack.sql("UPDATE model_load_jobs SET bytes_sent = 70, updated_at = now() + interval '1 s'")
    wait_until(lambda: stack.entry(KEY)["progress"] == 70, "the newer row is further")
    stack.sql("UPDATE model_load_jobs SET bytes_sent = 10, updated_at = now() + interval '2 s'")
    seen = stack.metric("weighbridge_snapshots_total")
    wait_until(lambda: stack.entry(KEY) and stack.metric("weighbridge_snapshots_total") > seen + 2, "refreshes")
    assert stack.entry(KEY)["progress"] == 60, "the newer row is behind: the overlay stands"


def test_a_heartbeat_takes_nothing_back_of_what_was_held_back(stack):
    token = stack.claim(KEY)
    for sent in (10, 90):
        stack.load(KEY, token, state="staging", node_name="n", bytes_sent=sent, total_bytes=100)
    assert stack.load(KEY, token).json() == {"durable": True}
    assert stack.get(PATH).json()["bytes_sent"] == 90
    wait_until(lambda: stack.entry(KEY)["progress"] == 90, "the last report")
    stack.sql("UPDATE model_load_jobs SET last_progress = now() - interval '2 s'")
    assert stack.load(KEY, token).json() == {"durable": True}
    assert stack.sql("SELECT bytes_sent FROM model_load_jobs") == [(90,)]
    stack.call("POST", PATH + "/file-complete", {"session": token, "file_index": 1, "total_files": 1}, token="worker")
    stack.load(KEY, token)
    assert stack.get(PATH).json()["progress"] == 100


@pytest.mark.touches("redis")
def test_what_is_called_durable_is_stored_without_redis(stack):
    token = stack.claim(KEY)
    stack.load(KEY, token, state="staging", bytes_sent=10, total_bytes=100)
    stack.dev("stop", "redis")
    for sent in (20, 90):
        assert stack.load(KEY, token, bytes_sent=sent).json() == {"durable": True}
        assert stack.sql("SELECT bytes_sent FROM model_load_jobs") == [(sent,)]


def test_the_load_jobs_list_has_progress_age_stall_and_eta(stack):
    assert stack.get("/api/v1/load-jobs").json() == {"load_jobs": []}
    for key in ("b", "a"):
        token = stack.claim(key)
        stack.load(key, token, state="staging", bytes_sent=25, total_bytes=100)
    jobs = stack.get("/api/v1/load-jobs").json()["load_jobs"]
    assert [j["tracking_key"] for j in jobs] == ["a", "b"]
    assert jobs[0]["progress"] == 25 and jobs[0]["stalled"] is False and "eta_seconds" not in jobs[0]
    stack.sql("UPDATE model_load_jobs SET started_at = now() - interval '10 s'")
    assert 29 <= stack.get("/api/v1/load-jobs/a").json()["eta_seconds"] <= 32
    stack.sql("UPDATE load_job_claims SET bytes_moved_at = now() - interval '301 s'")
    assert stack.get("/api/v1/load-jobs/a").json()["stalled"] is True


def test_waiting_by_polling_load_jobs_is_cheap(stack):
    stack.claim(KEY)
    first = stack.get(JOB)
    wait_until(lambda: stack.get(JOB, headers={"If-None-Match": stack.get(JOB).headers["ETag"]}).status_code
               == 304, "a 304")
    assert first.headers["ETag"].startswith('"')


@pytest.mark.touches("postgres")
def test_without_postgres_the_owner_keeps_its_overlay_fresh_and_others_get_503(stack):
    token = stack.claim(KEY)
    stack.load(KEY, token, state="staging", bytes_sent=10, total_bytes=100)
    stack.dev("stop", "postgres")
    answer = stack.load(KEY, token, bytes_sent=50)
    assert (answer.status_code, answer.json()) == (200, {"durable": False})
    assert stack.load(KEY, "0" * 64, bytes_sent=99).status_code == 503
    assert stack.load(KEY, token, state="loading").status_code == 503
    assert stack.call("POST", JOB + "/claim", {"owner": "x"}, token="worker").status_code == 503
    stack.kv().flushdb()
    assert stack.load(KEY, token, bytes_sent=60).status_code == 503
    stack.dev("start", "postgres")
    wait_until(lambda: stack.load(KEY, token, bytes_sent=70).json() == {"durable": True}, "durable again")


# --- rows and values of other programs ---

def test_rows_as_localai_writes_them(stack):
    stack.sql("INSERT INTO model_load_jobs (tracking_key, state, owner_replica, node_id, node_name, bytes_sent,"
              " total_bytes, started_at, last_progress, created_at, updated_at) VALUES"
              " ('theirs', 'staging', 'r', 'n', 'node', 30, 60, '0001-01-01', '0001-01-01', now(), now()),"
              " ('nulls', 'staging', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, now()),"
              " ('orphan', 'staging', 'r', 'n', 'node', 30, 60, '0001-01-01', now() - interval '61 s',"
              "  now() - interval '2 h', now() - interval '61 s')")
    wait_until(lambda: len(stack.operations()) == 2, "the live ones")
    assert [e["name"] for e in stack.operations()] == ["nulls", "theirs"]
    assert stack.entry("theirs")["progress"] == 50
    assert len(stack.get("/api/v1/load-jobs").json()["load_jobs"]) == 3


def test_malformed_overlays_count_as_absent_and_in_a_metric(stack):
    bad = ["", "x", "[]", "null", '{"progress":"1"}', '{"progress":NaN}', '{"bytes_sent":-1}',
           '{"bytes_sent":1e300}', '{"message":7}', b'{"message":"\xff"}', '{"a":' * 50 + "1" + "}" * 50,
           '{"message":"' + "x" * 9000 + '"}', '{"model_id":"other"}', '{"message":"\\u0000"}']
    before = stack.metric("weighbridge_overlay_malformed_total")
    for i, raw in enumerate(bad):
        stack.put_overlay(f"bad{i}", raw=raw)
    stack.put_overlay("good", file_name="f", bytes_sent=1, total_bytes=2)
    wait_until(lambda: stack.entry("good"), "the good one")
    assert [e["name"] for e in stack.operations()] == ["good"]
    assert stack.metric("weighbridge_overlay_malformed_total") >= before + len(bad)


def test_an_overlay_with_a_claim_counts_only_beside_its_row(stack):
    stack.put_overlay("fenced", claim="0123456789abcdef", bytes_sent=1, total_bytes=2)
    stack.put_overlay("free", bytes_sent=1, total_bytes=2)
    wait_until(lambda: stack.entry("free"), "the one without a claim")
    assert [e["name"] for e in stack.operations()] == ["free"]


def test_entries_are_sorted_by_progress_then_id_in_byte_order(stack):
    for key, sent in (("b", 50), ("a", 50), ("Z", 50), ("é", 50), ("y", 99), ("x", 1)):
        stack.stage(key, file_name="f", bytes_sent=sent, total_bytes=100)
    assert [e["name"] for e in stack.operations()] == ["x", "Z", "a", "b", "é", "y"]


KEYS = ["a/b", "a//b", "/", "@", ":", "%", "%2F", "a b", "é", "日本", "x" * 255, "a?b", "a#b", "a+b", "...", "a\\b", '"',
        "&<>", "staging:x", "node:a:b"]


@pytest.mark.parametrize("key", KEYS)
def test_keys_travel_undamaged(stack, key):
    assert stack.stage(key).status_code == 204
    assert stack.entry(key)["name"] == key
    assert stack.get("/api/v1/staging/" + quote(key, safe="")).json()["model_id"] == key
    token = stack.claim(key)
    assert stack.load(key, token, state="staging", bytes_sent=1, total_bytes=2).status_code == 200
    assert stack.entry(key)["phase"] == "staging"
    assert stack.load(key, token, "DELETE").status_code == 204
