# SPDX-License-Identifier: Apache-2.0
"""How lines run on an inference server that is not always well, and how a batch ends. Batch contract, "Running" and "Progress"."""
import time

import pytest

from batching import _batches, line, service  # noqa: F401  fixtures
from conftest import wait_until
from planning import Double, certificate

CHAT = "POST /v1/chat/completions"


def said(n):
    return {f"id-{i}": f"line {i}" for i in range(n)}


# --- tries ---

@pytest.mark.parametrize("fault", [
    {"do": "status", "status": 429, "body": {"error": {"message": "slow down"}}},
    {"do": "status", "status": 503, "body": {}},
    {"do": "status", "status": 500, "text": "oops"},
    {"do": "status", "status": 408, "body": {}},
    {"do": "status", "status": 200, "text": "no JSON at all"},
    {"do": "status", "status": 200, "text": "[1]"},
    {"do": "status", "status": 200, "text": ""},
    {"do": "drop"},
], ids=["429", "503", "500", "408", "garbage", "no object", "empty", "reset"])
def test_a_line_is_tried_again_after_what_may_pass(service, fault):
    service.upstream.fault(CHAT, **{"times": 4, **fault})
    with service.runner():
        batch = service.batch([line(i) for i in range(10)])
        assert service.until(batch, "completed")["request_counts"] == {"total": 10, "completed": 10, "failed": 0}
        assert service.outputs(batch) == said(10)
    assert len(service.upstream.calls("POST", "/v1/chat/completions")) >= 14


def test_retry_after_is_honoured(service):
    service.upstream.fault(CHAT, "status", status=429, body={}, headers={"Retry-After": 1})
    with service.runner():
        began = time.monotonic()
        service.until(service.batch([line(1)]), "completed")
        assert time.monotonic() - began >= 1


@pytest.mark.parametrize("status", [400, 401, 404, 422, 501])
def test_a_refused_line_is_an_error_at_once_with_what_the_server_said(service, status):
    service.upstream.fault(CHAT, "status", status=status, body={"error": {"message": "never"}})
    with service.runner():
        batch = service.batch([line(1)])
        done = service.until(batch, "completed")
        assert (done["request_counts"], done["output_file_id"]) == ({"total": 1, "completed": 0, "failed": 1}, None)
        error = service.errors(batch)["id-1"]
        assert (error["response"]["status_code"], error["response"]["body"]) == (status, {"error": {"message": "never"}})
    assert len(service.upstream.calls("POST", "/v1/chat/completions")) == 1


def test_tries_have_an_end_and_the_last_answer_is_told(service):
    service.upstream.fault(CHAT, "status", times=-1, status=500, text="secretly broken")
    with service.runner():
        batch = service.batch([line(1)], aibrix={"client": {"retry_policy": {"max_retries": 2}}})
        service.until(batch, "completed")
        error = service.errors(batch)["id-1"]
        assert (error["response"]["status_code"], error["error"]) == (500, None)
        assert error["response"]["body"] == {"error": {"message": "secretly broken"}}
    assert len(service.upstream.calls("POST", "/v1/chat/completions")) == 3


def test_an_answer_that_does_not_come_in_time_is_a_try_and_its_error_says_so(service):
    service.upstream.fault(CHAT, "hold", name="stalled", times=-1)
    with service.runner(WB_BATCH_REQUEST_TIMEOUT_S=1):
        batch = service.batch([line(1)], aibrix={"client": {"retry_policy": {"max_retries": 0}}})
        service.until(batch, "completed")
        assert service.errors(batch)["id-1"]["error"]["code"] == "request_timeout"


def test_a_server_that_is_away_is_waited_for_and_uses_up_no_tries(service):
    with service.runner(WB_BATCH_UPSTREAM="http://127.0.0.1:9", WB_BATCH_MAX_RETRIES=0) as runner:
        batch = service.batch([line(1)])
        wait_until(lambda: runner.metric("weighbridge_batch_retries_total") >= 3, "some tries")
        assert service.get(batch)["status"] == "in_progress"
    with service.runner(WB_BATCH_MAX_RETRIES=0):
        service.until(batch, "completed")
        assert service.outputs(batch) == {"id-1": "line 1"}


# --- upstream ---

def test_redirects_are_refused(service):
    service.upstream.fault(CHAT, "status", status=307, body={}, headers={"Location": service.upstream.url + "/v1/chat/completions"})
    with service.runner():
        batch = service.batch([line(1)])
        service.until(batch, "completed")
        assert service.errors(batch)["id-1"]["response"]["status_code"] == 307
    assert len(service.upstream.calls("POST", "/v1/chat/completions")) == 1


def test_the_token_comes_from_a_file_and_no_result_tells_it(service, tmp_path):
    (tmp_path / "right").write_text("the-right-token\n")
    (tmp_path / "wrong").write_text("the-wrong-token\n")
    upstream = Double("inference", "--token", "the-right-token")
    try:
        with service.runner(WB_BATCH_UPSTREAM=upstream.url, WB_BATCH_UPSTREAM_TOKEN_FILE=tmp_path / "right"):
            batch = service.batch([line(1)])
            service.until(batch, "completed")
            assert service.outputs(batch) == {"id-1": "line 1"}
        with service.runner(WB_BATCH_UPSTREAM=upstream.url, WB_BATCH_UPSTREAM_TOKEN_FILE=tmp_path / "wrong") as runner:
            batch = service.batch([line(1)])
            done = service.until(batch, "completed")
            text = service.content(done["error_file_id"])
            assert '"status_code":401' in text and "Incorrect API key" in text
            assert "the-wrong-token" not in text + runner.text()
    finally:
        upstream.close()


def test_certificates_are_verified(service, tmp_path):
    tls = certificate(tmp_path)
    upstream = Double("inference", tls=tls)
    client = {"client": {"retry_policy": {"no_endpoint_max_retries": 1}}}
    try:
        with service.runner(WB_BATCH_UPSTREAM=upstream.url):
            batch = service.batch([line(1)], aibrix=client)
            service.until(batch, "completed")
            assert service.errors(batch)["id-1"]["error"]["code"] == "upstream_unreachable"
        assert upstream.calls("POST", "/v1/chat/completions") == []
        with service.runner(WB_BATCH_UPSTREAM=upstream.url, WB_BATCH_UPSTREAM_CA_FILE=f"{tls}/cert"):
            batch = service.batch([line(1)])
            service.until(batch, "completed")
            assert service.outputs(batch) == {"id-1": "line 1"}
    finally:
        upstream.close()


def test_a_model_goes_to_its_own_server(service):
    other = Double("inference")
    try:
        with service.runner(WB_BATCH_MODELS=f"special={other.url}/v1"):
            batch = service.batch([line(1), line(2, model="special")])
            service.until(batch, "completed")
            assert service.outputs(batch) == {"id-1": "line 1", "id-2": "line 2"}
        assert list(other.state()["answered"]) == ["line 2"]
    finally:
        other.close()


@pytest.mark.parametrize("endpoint", ["/v1/completions", "/v1/embeddings"])
def test_other_endpoints_run_too(service, endpoint):
    with service.runner():
        batch = service.batch([line(i, endpoint) for i in range(3)], endpoint=endpoint)
        done = service.until(batch, "completed")
        assert done["request_counts"] == {"total": 3, "completed": 3, "failed": 0}
        assert {x["custom_id"] for x in service.results(done["output_file_id"])} == {"id-0", "id-1", "id-2"}


# --- how many at once ---

def test_no_more_are_in_flight_than_the_batch_asks_for(service):
    service.upstream.order(latency_ms=20)
    with service.runner():
        batch = service.batch([line(i) for i in range(40)], aibrix={"client": {"max_concurrency": 3}})
        service.until(batch, "completed")
        assert service.outputs(batch) == said(40)
    assert service.upstream.state()["most"] <= 3


def test_batches_take_turns_by_line(service):
    """A small batch does not wait for a large one that came before."""
    service.upstream.order(latency_ms=5)
    with service.runner(WB_BATCH_MAX_CONCURRENCY=2):
        large = service.batch([line(i) for i in range(2000)])
        wait_until(lambda: service.get(large)["request_counts"]["completed"] > 0, "the large one")
        small = service.batch([line(i) for i in range(10)])
        service.until(small, "completed")
        assert service.get(large)["status"] == "in_progress"
        assert service.call("POST", f"/batches/{large}/cancel").status_code == 200


# --- usage and counts ---

def test_usage_is_summed_and_counts_are_seen_while_it_runs(service):
    service.upstream.fault(CHAT, "hold", name="rest", times=-1, skip=5)
    with service.runner():
        batch = service.batch([line(i) for i in range(8)])
        counts = wait_until(lambda: (now := service.get(batch)["request_counts"])["completed"] == 5 and now, "five")
        assert counts == {"total": 8, "completed": 5, "failed": 0}
        service.upstream.order(clear=True)
        usage = service.until(batch, "completed")["usage"]
    assert usage == {"input_tokens": 16, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 16,
                     "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 32}


# --- cancel and expiry ---

def test_cancel_stops_new_lines_and_keeps_what_there_is(service):
    service.upstream.fault(CHAT, "hold", name="rest", times=-1, skip=5)
    with service.runner() as runner:
        batch = service.batch([line(i) for i in range(50)], aibrix={"client": {"max_concurrency": 2}})
        wait_until(lambda: service.get(batch)["request_counts"]["completed"] == 5, "five")
        answer = service.call("POST", f"/batches/{batch}/cancel")
        assert (answer.status_code, answer.json()["status"]) == (200, "cancelling")
        assert service.call("POST", f"/batches/{batch}/cancel").status_code == 200
        wait_until(lambda: 'msg="begins no more lines"' in runner.text(), "no more lines")
        service.upstream.order(clear=True)  # the two that run end well
        done = service.until(batch, "cancelled")
        outputs = service.outputs(batch)
        assert (len(outputs), outputs.items() <= said(50).items()) == (7, True) and done["cancelled_at"]
        assert done["request_counts"] == {"total": 50, "completed": 7, "failed": 0} and done["error_file_id"] is None
        again = service.call("POST", f"/batches/{batch}/cancel")
        assert (again.status_code, again.headers["x-should-retry"]) == (409, "false")


def test_lines_that_do_not_end_after_a_cancel_are_broken_off(service):
    service.upstream.fault(CHAT, "hold", name="rest", times=-1, skip=5)
    with service.runner(WB_BATCH_STOP_WAIT_MS=200):
        batch = service.batch([line(i) for i in range(50)], aibrix={"client": {"max_concurrency": 2}})
        wait_until(lambda: service.get(batch)["request_counts"]["completed"] == 5, "five")
        service.call("POST", f"/batches/{batch}/cancel")
        service.until(batch, "cancelled")
        assert len(service.outputs(batch)) == 5


def test_a_batch_that_nobody_runs_yet_can_be_cancelled(service):
    batch = service.batch([line(1)])
    assert service.call("POST", f"/batches/{batch}/cancel").json()["status"] == "cancelling"
    with service.runner():
        done = service.until(batch, "cancelled")
    assert (done["output_file_id"], done["error_file_id"]) == (None, None)


def test_expiry_keeps_what_there_is_and_tells_of_the_lines_that_never_began(service):
    service.upstream.fault(CHAT, "hold", name="rest", times=-1, skip=5)
    with service.runner(WB_BATCH_STOP_WAIT_MS=200):
        batch = service.batch([line(i) for i in range(20)], aibrix={"client": {"max_concurrency": 2}})
        wait_until(lambda: service.get(batch)["request_counts"]["completed"] == 5, "five")
        service.stack.sql("UPDATE batch SET expires_at = clock_timestamp() WHERE id = %s", [batch])
        done = service.until(batch, "expired")
        outputs = service.outputs(batch)
        assert len(outputs) == 5 and done["expired_at"]
        assert done["request_counts"] == {"total": 20, "completed": 5, "failed": 15}
        errors = service.errors(batch)
        assert set(errors) == set(said(20)) - set(outputs)
        assert {(e["error"]["code"], e["response"]) for e in errors.values()} == {("batch_expired", None)}


def test_a_batch_that_expires_before_anybody_has_it_tells_of_all_its_lines(service):
    batch = service.batch([line(i) for i in range(3)])
    service.stack.sql("UPDATE batch SET expires_at = clock_timestamp() WHERE id = %s", [batch])
    with service.runner():
        done = service.until(batch, "expired")
        assert done["request_counts"] == {"total": 3, "completed": 0, "failed": 3} and len(service.errors(batch)) == 3
    assert service.upstream.calls("POST", "/v1/chat/completions") == []
