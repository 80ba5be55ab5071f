# SPDX-License-Identifier: Apache-2.0
"""docs/operations.md says what is: its lines are run against a site as it describes, its metrics compared."""
import pytest

from conftest import wait_until
from guide import check_answer, metrics_of, metrics_told, page, questions

GUIDE = page("operations.md")
QUESTIONS = questions(GUIDE)
MIB = 1 << 20


def begin_loads(stack):
    token = stack.claim("llama-3", "front-1")
    assert stack.load("llama-3", token, state="staging", node_name="gpu-1", bytes_sent=300 * MIB, total_bytes=1000 * MIB).status_code == 200
    failing = stack.claim("qwen-2", "front-1")
    failure = {"claim_token": failing, "error": "no space left on gpu-2"}
    assert stack.call("POST", "/api/v1/load-jobs/qwen-2/fail", failure, token="worker").status_code < 300
    assert stack.stage("phi-4", node_name="gpu-3", file_name="model.gguf", bytes_sent=512 * MIB, total_bytes=5120 * MIB,
                       speed="210 MiB/s").status_code == 204


def begin_installations(stack):
    def operation(name, **report):
        job = "job-" + name
        body = {"id": job, "gallery_element_name": name, "op_type": "model_install", "cancellable": True}
        assert stack.call("POST", "/api/v1/operations", body, token="worker").status_code == 201
        assert stack.call("PUT", "/api/v1/operations/" + job, report, token="worker").status_code == 200
    operation("piper", status="downloading", progress=40.2, nodes=[
        {"node_id": "2", "node_name": "gpu-2", "status": "downloading", "percentage": 40.2},
        {"node_id": "1", "node_name": "gpu-1", "status": "success", "percentage": 100}])
    operation("whisper", status="failed", error="no such backend")


@pytest.fixture(scope="module")
def site(_stack):
    _stack.empty()
    begin_loads(_stack)
    begin_installations(_stack)
    wait_until(lambda: len(_stack.operations()) == 4, "all of the site's operations")
    return _stack


def test_there_are_twenty_questions_and_each_is_one_line():
    assert len(QUESTIONS) == 20
    assert all(command.count("\n") == 1 and command.startswith("curl ") for _, _, command, _ in QUESTIONS)


# In the order of the page: later lines change what earlier ones show.
@pytest.mark.parametrize("number, question, command, answer", QUESTIONS, ids=[number for number, *_ in QUESTIONS])
def test_the_line_answers_its_question(site, number, question, command, answer):
    check_answer(site, question, command, answer)


def test_what_question_20_says_of_the_log(site):
    """A refused call is in the log, with who called; a stranger's, and a read, are not."""
    def traced(trace, method, token, path="/api/v1/staging/phi-4"):
        body = {"node_name": "gpu-3", "bytes_sent": -5} if method == "PUT" else None
        answer = site.call(method, path, body, token=token, headers={"X-Request-Id": trace})
        assert 400 <= answer.status_code < 500 and answer.json()["request_id"] == trace
    traced("trace-stranger", "PUT", None)
    traced("trace-reader", "GET", "viewer", "/api/v1/staging/nothing-like-it")
    traced("trace-refused", "PUT", "worker")

    def lines():
        return (site.var / "log" / "operations.log").read_text(errors="replace").splitlines()
    line = wait_until(lambda: [found for found in lines() if "trace-refused" in found], "the refusal's line")
    assert len(line) == 1 and "status=400" in line[0] and "caller=worker" in line[0] and "bytes_sent" in line[0]
    assert not [found for found in lines() if "trace-stranger" in found or "trace-reader" in found]


def test_the_eta_of_question_6_is_a_number(site):
    def eta():
        return site.get("/api/v1/load-jobs/llama-3").json().get("eta_seconds")
    assert wait_until(eta, "an eta, one second after the first bytes") > 0


def test_every_metric_is_in_the_guide_with_its_meaning(site):
    every = metrics_of(GUIDE, "Of every program")
    assert metrics_told(site.get("/metrics")) == {**every, **metrics_of(GUIDE, "Of weighbridge-operations")}
    assert metrics_told(site.get("/jobs/metrics")) == every
