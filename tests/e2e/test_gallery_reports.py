# SPDX-License-Identifier: Apache-2.0
"""Admitting and reporting gallery operations through the whole stack, who may, and what bad input gets. Operations
contract, sections 5 and 7."""
import json
import os
import re
import signal
from contextlib import closing

import pytest

from conftest import wait_until
from gallery import control, history, jobs, outcome, row, two_more_snapshots
from program import Program, ask
from test_input import check_error

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


# --- admission and reports: section 5 ---

def test_an_admission_is_shown_by_every_poll_after_its_answer(stack):
    for i in range(30):
        assert stack.admit(f"j{i}", cancellable=True).status_code == 201
        entry = stack.job(f"j{i}")
        assert entry and entry["isQueued"], i
        assert stack.act(f"j{i}", "cancel").status_code == 200
        assert stack.job(f"j{i}") is None, i


def test_admissions_and_reports_are_counted(stack):
    def counted():
        return [stack.metric(f"weighbridge_{name}_total") for name in ("operations_admitted", "operation_reports")]

    before = counted()
    stack.admit("j")
    stack.admit("j")
    stack.report("j", progress=1)
    stack.report("nobody", progress=1)
    assert counted() == [before[0] + 2, before[1] + 1]


def test_an_admission_without_an_id_gets_one(stack):
    answer = stack.call("POST", "/api/v1/operations", {"gallery_element_name": "m", "op_type": "backend_delete"},
                        token="worker")
    assert answer.status_code == 201
    made = answer.json()
    assert UUID.fullmatch(made["id"])
    assert (made["gallery_element_name"], made["op_type"], made["is_backend_op"], made["status"], made["cancellable"]) == (
        "m", "backend_delete", True, "pending", False)
    assert stack.job(made["id"])["taskType"] == "deletion"


def test_the_same_id_again_fills_in_and_reopens_nothing(stack):
    assert stack.admit("j", cancellable=True).status_code == 201
    again = stack.admit("j", cache_key="node:n1:x", user_id="u")
    assert again.status_code == 201 and again.json()["cache_key"] == "node:n1:x"
    assert (stack.job("j")["id"], stack.job("j")["nodeID"], stack.job("j")["cancellable"]) == ("x", "n1", True)
    assert row(stack, "j", "user_id, gallery_element_name")  == ("u", "m")
    stack.act("j", "cancel")
    settled = stack.admit("j", cancellable=True)
    assert settled.status_code == 201 and settled.json()["settled"] is True and settled.json()["status"] == "cancelled"
    assert stack.job("j") is None and row(stack, "j", "status, cancellable") == ("cancelled", False)
    assert control(stack, "j") == "cancel"


@pytest.mark.parametrize("status", ["completed", "cancelled"])
def test_a_settled_operation_never_changes_again(stack, status):
    stack.admit("j", cancellable=True)
    stack.report("j", progress=76, message="live")
    assert stack.kv().exists("wb:1:op:j")
    ended = stack.report("j", status=status, progress=77)
    assert not stack.kv().exists("wb:1:op:j"), "its overlay goes with it"
    assert ended.status_code == 200 and ended.json()["settled"] is True and ended.json()["status"] == status
    assert stack.job("j") is None
    before = row(stack, "j", "*")
    for later in ({"status": "failed", "error": "late"}, {"status": "pending"}, {"progress": 99, "phase": "downloading"},
                  {"status": "completed" if status == "cancelled" else "cancelled"}, {"cancellable": True}):
        answer = stack.report("j", **later)
        assert answer.status_code == 200 and answer.json()["settled"] is True, answer.text
    assert row(stack, "j", "*") == before
    assert stack.job("j") is None


def test_a_failed_operation_takes_only_its_true_outcome_which_clears_the_error(stack):
    stack.admit("j")
    stack.report("j", status="failed", error="given up by a reaper")
    answer = stack.report("j", status="downloading", progress=50, message="still here")
    assert answer.status_code == 200 and answer.json()["settled"] is False and answer.json()["status"] == "failed"
    two_more_snapshots(stack)
    assert stack.job("j")["error"] == "given up by a reaper" and stack.job("j")["progress"] == 0
    assert stack.report("j", status="completed").json()["settled"] is True
    assert stack.job("j") is None
    assert row(stack, "j", "status, error") == ("completed", "")
    assert "error" not in history(stack)[0]


def test_first_reports_changes_and_outcomes_are_shown_by_every_poll_after_their_answer(stack):
    for i in range(20):
        job = f"j{i}"
        stack.admit(job)
        stack.report(job, progress=i + 1)
        assert stack.job(job)["progress"] == i + 1, "the first report"
        stack.report(job, status="downloading")
        stack.report(job, phase="p")
        assert stack.job(job)["phase"] == "p", "a change of phase"
        stack.report(job, status="failed", error="why")
        assert stack.job(job)["error"] == "why"
        stack.report(job, status="completed")
        assert stack.job(job) is None


def test_missing_and_null_fields_leave_what_is_stored(stack):
    stack.admit("j", cancellable=True)
    stack.report("j", status="downloading", progress=50, phase="p", message="m", current_bytes=1, total_bytes=2, file_name="f",
                 nodes=[{"node_id": "n", "status": "queued"}])
    before = wait_until(lambda: (e := stack.job("j")) and e.get("nodes") and e, "the report")
    assert stack.report("j").status_code == 200
    assert stack.report("j", **dict.fromkeys(("status", "progress", "phase", "message", "current_bytes", "total_bytes",
                                             "file_name", "cancellable", "error", "nodes"))).status_code == 200
    assert stack.report("j", status="", phase="", message="", file_name="", error="").status_code == 200
    two_more_snapshots(stack)
    assert stack.job("j") == before


def test_a_report_of_what_was_not_admitted_is_404(stack):
    check_error(stack.report("nobody", progress=1), 404)
    check_error(stack.report("staging:m", progress=1), 404)
    assert stack.operations() == []


def test_cancellable_can_be_taken_back(stack):
    stack.admit("j", cancellable=True)
    assert stack.report("j", cancellable=False, phase="installing").ok
    assert stack.job("j")["cancellable"] is False
    check_error(stack.act("j", "cancel"), 400)


JOBS = ["a b", "a/b", "%2F", "é" * 36, "?", "#", "...", "a\\b", '"', "&<>", "日本", "node:a:b", "history"]


@pytest.mark.parametrize("job", JOBS)
def test_ids_travel_undamaged(stack, job):
    assert stack.admit(job, cancellable=True).json()["id"] == job
    assert stack.report(job, progress=5, phase="p").status_code == 200
    assert stack.job(job)["jobID"] == job
    assert stack.act(job, "pause").status_code == 200
    assert stack.job(job) is None and outcome(stack, job) == "cancelled"


# --- who may, and bad input: section 7 ---

def test_roles_of_gallery_calls(stack):
    stack.admit("j", cancellable=True)
    for what in ("cancel", "pause", "dismiss"):
        path = f"/api/operations/j/{what}"
        for role in ("viewer", "worker"):
            check_error(stack.call("POST", path, token=role), 403)
        check_error(stack.call("POST", path, token=None), 401)
    for role, status in ((None, 401), ("viewer", 403), ("worker", 403)):
        check_error(stack.call("DELETE", "/api/operations/history", token=role), status)
    for role, status in ((None, 401), ("viewer", 403)):
        check_error(stack.call("POST", "/api/v1/operations", {"gallery_element_name": "m", "op_type": "model_install"},
                               token=role), status)
        check_error(stack.call("PUT", "/api/v1/operations/j", {"progress": 99}, token=role), status)
    for path in ("/api/operations", "/api/operations/history", "/api/operations/j/control"):
        check_error(stack.get(path, token=None), 401)
        for role in ("viewer", "worker", "admin"):
            assert stack.get(path, token=role).status_code == 200
            assert stack.call("HEAD", path, token=role).status_code == 200
    assert jobs(stack) == {"j"} and stack.job("j")["progress"] == 0 and history(stack) == []


@pytest.mark.parametrize("last", [{"phase": "verifying"}, {"status": "failed", "error": "disk full"}])
def test_what_was_held_back_goes_along_with_what_is_written(stack, last):
    stack.admit("j")
    for progress in (10, 90):
        stack.report("j", phase="downloading", progress=progress, current_bytes=progress)
    assert stack.report("j", **last).json()["durable"] is True
    assert row(stack, "j", "progress, current_bytes") == (90, 90)


def held_back(stack, job="j"):
    """A last report that came too soon after the one before to be written; the stamp of its overlay."""
    stack.admit(job)
    stack.report(job, phase="downloading", progress=10, message="first", nodes=[{"node_id": "n", "status": "queued"}])
    # Whatever the machine does meanwhile, the row was written just now.
    stack.sql("UPDATE gallery_operations SET updated_at = now() + interval '900 ms' WHERE id = %s", [job])
    stack.report(job, progress=80, current_bytes=8, total_bytes=10, message="last", nodes=[{"node_id": "n", "status": "success"}])
    stack.sql("UPDATE gallery_operations SET updated_at = now() - interval '1 s' WHERE id = %s", [job])
    assert row(stack, job, "progress, message") == (10, "first")
    return json.loads(stack.kv().get("wb:1:op:" + job))["stamp"]


def is_kept(stack, job="j"):
    stack.operations()  # it is while somebody polls that what was shown must stay
    return row(stack, job, "progress, message, current_bytes, total_bytes") == (80, "last", 8, 10)


def test_the_last_report_stays_when_its_overlay_has_expired(stack):
    """Also where it came within a second of the one before and nothing came after it: progress never runs back."""
    stamp = held_back(stack)
    before = stack.metric("weighbridge_operations_kept_total")
    shown = wait_until(lambda: (e := stack.job("j"))["progress"] == 80 and e, "the overlay")
    wait_until(lambda: is_kept(stack), "the row has it")
    assert stack.sql("SELECT round(extract(epoch FROM updated_at) * 1000000) FROM gallery_operations") == [(stamp,)], "as old as it is"
    assert wait_until(lambda: stack.metric("weighbridge_operations_kept_total"), "counted") == before + 1
    stack.kv().flushdb()
    two_more_snapshots(stack)
    assert stack.job("j") == shown


@pytest.mark.touches("operations")
def test_the_last_report_is_kept_when_the_process_that_took_it_is_killed(stack):
    held_back(stack)
    for pid in stack.processes()[1]:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len(stack.processes()[1]) == 2, "successors")
    wait_until(lambda: stack.get("/api/operations").status_code == 200, "an answer")
    wait_until(lambda: is_kept(stack), "the row has it")


def test_a_row_that_is_held_is_brought_up_when_it_is_let_go(stack):
    held_back(stack, "held")
    with closing(stack.pg()) as holder, holder.cursor() as cursor:
        holder.autocommit = False
        cursor.execute("SELECT FROM gallery_operations WHERE id = 'held' FOR UPDATE")
        held_back(stack, "free")
        wait_until(lambda: is_kept(stack, "free"), "the other row")
        assert not is_kept(stack, "held")
        assert stack.get("/api/operations").headers.get("X-Degraded") is None
        holder.rollback()
    wait_until(lambda: is_kept(stack, "held"), "this one too")


@pytest.mark.touches("redis")
def test_a_report_that_is_called_durable_is_stored_without_redis(stack):
    stack.admit("j")
    stack.dev("stop", "redis")
    for progress in (40, 41):
        assert stack.report("j", progress=progress).json()["durable"] is True
        assert row(stack, "j", "progress") == (progress,)


def test_where_anonymous_may_view_they_see_the_poll_and_the_history_and_nothing_else(stack, tmp_path):
    stack.gallery_row("j", status="completed")
    with Program(stack, WB_RUNTIME_DIR=str(tmp_path), WB_AUTH_ANONYMOUS="viewer") as program:
        program.ready()

        def status(path, method="GET"):
            return ask(program.socket, path, method=method)[0]

        for method in ("GET", "HEAD"):
            assert status("/api/operations", method) == status("/api/operations/history", method) == 200
            for path in ("/api/operations", "/api/operations/history"):
                assert ask(program.socket, path, method=method, token="unknown")[0] == 200
        assert ask(program.socket, "/api/v1/staging", token="unknown")[0] == 401
        for path in ("/api/operations/j/control", "/api/v1/staging", "/api/v1/load-jobs", "/metrics"):
            assert status(path) == 401
        for what in ("cancel", "pause", "dismiss"):
            assert status(f"/api/operations/j/{what}", "POST") == 401
        assert status("/api/operations/history", "DELETE") == 401
    assert outcome(stack, "j") == "completed"


@pytest.mark.parametrize("path,method,allow", [
    ("/api/operations/j/cancel", "GET", {"POST"}), ("/api/operations/j/pause", "PUT", {"POST"}),
    ("/api/operations/j/dismiss", "DELETE", {"POST"}), ("/api/operations/j/control", "POST", {"GET", "HEAD"}),
    ("/api/operations/history", "POST", {"GET", "HEAD", "DELETE"}), ("/api/v1/operations", "GET", {"POST"}),
    ("/api/v1/operations/j", "GET", {"PUT"})])
def test_other_methods_are_405_with_allow(stack, path, method, allow):
    answer = stack.call(method, path)
    check_error(answer, 405)
    assert set(answer.headers["Allow"].split(", ")) == allow


@pytest.mark.parametrize("nodes,where", [
    (7, "nodes"), ([7], "nodes[0]"), ([{}], "status"), ([{"node_id": "n", "status": "asleep"}], "status"),
    ([{"status": "queued"}], "node_id"), ([{"node_id": "n", "status": "queued", "percentage": 101}], "percentage"),
    ([{"node_id": "n", "status": "queued"}, {"node_id": "n", "status": "queued", "current": []}], "nodes[1]"),
    ([{"node_id": "x" * 513, "status": "queued"}], "node_id")])
def test_nodes_that_make_no_sense_are_400_and_named(stack, nodes, where):
    stack.admit("j")
    assert where in check_error(stack.report("j", nodes=nodes), 400)


def test_a_report_of_64_kib_is_taken_and_shown_whole(stack):
    stack.admit("j")
    nodes = [{"node_id": f"n{i:03}", "node_name": "é" * 20, "status": "error", "percentage": 1.5, "error": "x" * 20}
             for i in range(420)]
    assert len(json.dumps(nodes, ensure_ascii=False).encode()) < 65000
    answer = stack.call("PUT", "/api/v1/operations/j", token="worker", headers={"Content-Type": "application/json"},
                        data=json.dumps({"nodes": nodes}, ensure_ascii=False).encode())
    assert answer.status_code == 200, answer.text
    wait_until(lambda: len(stack.job("j").get("nodes", [])) == 420, "all nodes")
