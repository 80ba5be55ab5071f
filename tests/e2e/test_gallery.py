# SPDX-License-Identifier: Apache-2.0
"""Gallery operations through the whole stack: how they are shown, acting on them, reporting them. Operations
contract, sections 2 to 5."""
import json
import re
import threading
from datetime import datetime, timedelta, timezone

import pytest
import redis

from conftest import HANG_S, wait_until
from program import Program, ask
from test_input import check_error

ORDER = ["id", "jobID", "name", "fullName", "progress", "taskType", "isDeletion", "isBackend", "isQueued",
         "cancellable", "message", "nodeID", "phase", "currentBytes", "totalBytes", "error", "nodes"]
ENDED_ORDER = ["id", "name", "jobID", "isBackend", "nodeID", "taskType", "outcome", "error", "startedAt", "finishedAt"]
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def shown(stack, job):
    """Rows of other programs come with the next snapshot."""
    return wait_until(lambda: stack.job(job), f"the entry of {job}")


def jobs(stack):
    return {e["jobID"] for e in stack.operations()}


def two_more_snapshots(stack):
    seen = stack.metric("weighbridge_snapshots_total")
    wait_until(lambda: stack.operations() is not None and stack.metric("weighbridge_snapshots_total") > seen + 2,
               "two more snapshots")


def history(stack, **kw):
    answer = stack.get("/api/operations/history", **kw)
    assert answer.status_code == 200, answer.text
    assert list(answer.json()) == ["operations"]
    return answer.json()["operations"]


def outcome(stack, job):
    found = [e for e in history(stack) if e["jobID"] == job]
    return found[0]["outcome"] if found else None


def row(stack, job, columns):
    return stack.sql(f"SELECT {columns} FROM gallery_operations WHERE id = %s", [job])[0]


def control(stack, job):
    answer = stack.get(f"/api/operations/{job}/control")
    assert answer.status_code == 200 and list(answer.json()) == ["control"], answer.text
    return answer.json()["control"]


# --- entries: section 3 ---

def test_an_entry_has_the_contracts_keys_in_their_order(stack):
    stack.admit("j", gallery_element_name="gallery@llama", cache_key="node:n1:gallery@llama", is_backend_op=True,
                op_type="backend_install", cancellable=True)
    stack.report("j", progress=41.9, phase="downloading", message="halfway", current_bytes=1, total_bytes=2,
                 nodes=[{"node_id": "n1", "node_name": "gpu", "status": "downloading", "percentage": 41.9}])
    entry = wait_until(lambda: (e := stack.job("j")) and e.get("nodes") and e, "the report")
    assert list(entry) == [k for k in ORDER if k != "error"]
    assert entry == {
        "id": "gallery@llama", "jobID": "j", "name": "llama", "fullName": "gallery@llama", "progress": 41,
        "taskType": "installation", "isDeletion": False, "isBackend": True, "isQueued": False, "cancellable": True,
        "message": "halfway", "nodeID": "n1", "phase": "downloading", "currentBytes": 1, "totalBytes": 2,
        "nodes": [{"node_id": "n1", "node_name": "gpu", "status": "downloading", "percentage": 41.9}]}
    stack.report("j", status="failed", error="disk full")
    assert list(stack.job("j")) == ORDER


def test_what_is_empty_or_zero_is_left_out(stack):
    stack.gallery_row("j")
    assert list(shown(stack, "j")) == ORDER[:11]


@pytest.mark.parametrize("columns,expected", [
    ({"cache_key": "a@b"}, ("a@b", "b", None)),
    ({"cache_key": "", "gallery_element_name": "elem"}, ("elem", "elem", None)),
    ({"cache_key": None, "gallery_element_name": "a@b@c"}, ("a@b@c", "b@c", None)),
    ({"cache_key": "node:n1:back:end"}, ("back:end", "back:end", "n1")),
    ({"cache_key": "node:n1:g@b"}, ("g@b", "b", "n1")),
    ({"cache_key": "node::b"}, ("node::b", "node::b", None)),
    ({"cache_key": "node:n1:"}, ("node:n1:", "node:n1:", None)),
    ({"cache_key": "node:n1"}, ("node:n1", "node:n1", None)),
    ({"cache_key": "nodes:n1:b"}, ("nodes:n1:b", "nodes:n1:b", None))])
def test_id_name_and_node_id_come_from_cache_key_or_element_name(stack, columns, expected):
    stack.gallery_row("j", **columns)
    entry = shown(stack, "j")
    assert (entry["id"], entry["name"], entry.get("nodeID")) == expected
    assert entry["fullName"] == entry["id"]


@pytest.mark.parametrize("op_type,backend,expected", [
    ("model_install", None, ("installation", False, False)), ("model_delete", False, ("deletion", True, False)),
    ("backend_install", False, ("installation", False, True)), ("backend_delete", None, ("deletion", True, True)),
    ("model_install", True, ("installation", False, True)), (None, None, ("installation", False, False))])
def test_task_deletion_and_backend_come_from_the_type(stack, op_type, backend, expected):
    stack.gallery_row("j", op_type=op_type, is_backend_op=backend)
    entry = shown(stack, "j")
    assert (entry["taskType"], entry["isDeletion"], entry["isBackend"]) == expected


@pytest.mark.parametrize("columns,queued", [
    ({}, True), ({"phase": "queued", "progress": 3}, True), ({"phase": "", "progress": 0}, True),
    ({"phase": "downloading"}, False), ({"progress": 1}, False), ({"status": "downloading"}, False),
    ({"status": "processing", "phase": "queued"}, False)])
def test_queued_is_pending_without_phase_and_progress_or_with_the_phase_queued(stack, columns, queued):
    stack.gallery_row("j", **columns)
    assert shown(stack, "j")["isQueued"] is queued


@pytest.mark.parametrize("progress,expected", [
    (0, 0), (0.99, 0), (41.99, 41), (99.999, 99), (100, 100), (250, 100), (-5, 0), ("NaN", 0), ("Infinity", 0), (None, 0)])
def test_progress_is_clamped_and_truncated_and_never_scaled(stack, progress, expected):
    stack.gallery_row("j", progress=progress)
    assert shown(stack, "j")["progress"] in ((expected, 100) if progress == "Infinity" else (expected,))


def ago(**kw):
    return datetime.now(timezone.utc) - timedelta(**kw)


def test_active_rows_are_shown_for_30_minutes_and_undismissed_failures_for_24_hours(stack):
    old = {"created_at": ago(days=2)}
    for status in ("pending", "downloading", "processing"):
        stack.gallery_row("live-" + status, status=status, updated_at=ago(minutes=29), **old)
        stack.gallery_row("old-" + status, status=status, updated_at=ago(minutes=31), **old)
    stack.gallery_row("live-failed", status="failed", updated_at=ago(hours=23), error="why", **old)
    stack.gallery_row("old-failed", status="failed", updated_at=ago(hours=25), **old)
    stack.gallery_row("dismissed", status="failed")
    stack.sql("INSERT INTO operation_control (job_id, dismissed_at) VALUES ('dismissed', now())")
    for status in ("completed", "cancelled", "a new word"):
        stack.gallery_row("over-" + status, status=status)
    stack.gallery_row("over-null", status=None)
    live = {"live-pending", "live-downloading", "live-processing", "live-failed"}
    wait_until(lambda: jobs(stack) == live, "those that are live")
    two_more_snapshots(stack)
    assert jobs(stack) == live
    assert stack.job("live-failed")["error"] == "why"


def test_nodes_are_sorted_and_hold_only_what_is_not_empty(stack):
    stack.admit("j")
    node = {"node_id": "2", "node_name": "b", "status": "queued", "percentage": 0}
    full = {"node_id": "3", "node_name": "a", "status": "error", "percentage": 100, "file_name": "f", "current": "1 B",
            "total": "2 B", "phase": "p", "error": "e"}
    assert stack.report("j", nodes=[node, {**node, "node_id": "1", "file_name": "", "error": None}, full]).ok
    entry = wait_until(lambda: (e := stack.job("j")) and e.get("nodes") and e, "the nodes")
    assert entry["nodes"] == [full, {**node, "node_id": "1"}, node]
    assert [list(n) for n in entry["nodes"]] == [list(full), list(node), list(node)]


@pytest.mark.parametrize("nodes", [[], [{"node_id": "n", "status": "success"}]])
def test_reported_nodes_replace_those_before(stack, nodes):
    stack.admit("j")
    stack.report("j", phase="one", nodes=[{"node_id": "a", "status": "queued"}, {"node_id": "b", "status": "queued"}])
    stack.report("j", phase="two", nodes=nodes)
    wait_until(lambda: stack.job("j")["phase"] == "two", "the second report")
    assert [n["node_id"] for n in stack.job("j").get("nodes", [])] == [n["node_id"] for n in nodes]


def test_the_array_is_sorted_over_both_kinds_by_progress_id_and_job(stack):
    stack.stage("m", file_name="f", bytes_sent=50, total_bytes=100)
    for job, name, progress in (("2", "x", 50), ("1", "x", 50), ("3", "a", 50), ("4", "z", 7), ("5", "é", 50)):
        stack.gallery_row(job, gallery_element_name=name, progress=progress)
    wait_until(lambda: len(stack.operations()) == 6, "all")
    assert [(e["progress"], e["id"], e["jobID"]) for e in stack.operations()] == [
        (7, "z", "4"), (50, "a", "3"), (50, "staging:m", "staging:m"), (50, "x", "1"), (50, "x", "2"), (50, "é", "5")]


def test_rows_as_localai_writes_them_are_shown(stack):
    """Status stays at pending while its own programs run an operation; the phase tells."""
    stack.gallery_row("j", user_id="", cache_key="localai@m", is_backend_op=False, progress=12.5, phase="downloading",
                      current_bytes=10, total_bytes=80, message="m.gguf", error="", file_name="m.gguf",
                      total_file_size="80 B", downloaded_file_size="10 B", frontend_id="f", cancellable=True)
    entry = shown(stack, "j")
    assert (entry["progress"], entry["phase"], entry["isQueued"], entry["cancellable"]) == (12, "downloading", False, True)


# --- the overlay over its row: sections 2 and 3 ---

def test_a_report_is_shown_before_its_row_is_written(stack):
    stack.admit("j")
    stack.report("j", phase="downloading", progress=1)
    stack.report("j", progress=37.5, message="fresh", current_bytes=3, total_bytes=8)
    assert row(stack, "j", "progress")[0] == 1, "less than a second later"
    entry = wait_until(lambda: (e := stack.job("j"))["progress"] == 37 and e, "the overlay")
    assert (entry["message"], entry["currentBytes"], entry["totalBytes"], entry["phase"]) == ("fresh", 3, 8, "downloading")


def test_the_row_is_written_at_most_once_a_second_and_at_once_when_status_or_phase_change(stack):
    stack.admit("j")
    assert stack.report("j", phase="downloading", progress=1).ok
    assert row(stack, "j", "phase, progress") == ("downloading", 1)
    assert stack.report("j", progress=2).ok
    assert row(stack, "j", "progress")[0] == 1
    stack.sql("UPDATE gallery_operations SET updated_at = now() - interval '1001 ms'")
    assert stack.report("j", progress=3).ok
    assert row(stack, "j", "progress")[0] == 3
    assert stack.report("j", progress=4, status="processing").ok
    assert row(stack, "j", "progress, status") == (4, "processing")
    assert stack.report("j", progress=5, phase="verifying").ok
    assert row(stack, "j", "progress, phase") == (5, "verifying")


def test_progress_does_not_run_backwards_when_the_row_is_newer(stack):
    stack.admit("j")
    stack.report("j", progress=60, phase="downloading")
    wait_until(lambda: stack.job("j")["progress"] == 60, "the report")
    stack.sql("UPDATE gallery_operations SET progress = 70, updated_at = now()")
    wait_until(lambda: stack.job("j")["progress"] == 70, "the newer row is further")
    stack.sql("UPDATE gallery_operations SET progress = 10, updated_at = now()")
    two_more_snapshots(stack)
    assert stack.job("j")["progress"] == 60, "the newer row is behind: the overlay stands"


@pytest.mark.parametrize("status", ["completed", "cancelled", "failed"])
def test_a_row_that_ended_hides_its_overlay(stack, status):
    stack.admit("j")
    stack.report("j", progress=60, message="live")
    wait_until(lambda: stack.job("j")["progress"] == 60, "the overlay")
    stack.sql("UPDATE gallery_operations SET status = %s, error = 'why', message = 'row', updated_at = now()", [status])
    wait_until(lambda: (e := stack.job("j")) is None or e.get("error"), "the row's word")
    two_more_snapshots(stack)
    entry = stack.job("j")
    assert entry is None if status != "failed" else (entry["message"], entry["error"]) == ("row", "why")


def test_an_overlay_without_its_row_is_shown_as_it_holds_the_whole_entry(stack):
    stack.put_overlay("j", kind="op", gallery_element_name="g@m", op_type="model_install", status="downloading",
                      progress=12.5, phase="p", message="m", cancellable=True)
    entry = shown(stack, "j")
    assert (entry["id"], entry["name"], entry["progress"], entry["message"], entry["cancellable"]) == (
        "g@m", "m", 12, "m", True)


def test_malformed_overlays_of_operations_count_as_absent_and_in_a_metric(stack):
    """And never break the answer, nor the row beneath."""
    good = {"job_id": "bad", "gallery_element_name": "m", "op_type": "model_install", "status": "pending"}
    bad = ["", "x", "[]", "null", *(json.dumps({**good, **change}) for change in (
        {"progress": "1"}, {"progress": -1}, {"progress": 101}, {"current_bytes": -1}, {"total_bytes": 1e300},
        {"message": 7}, {"nodes": 7}, {"nodes": [7]}, {"nodes": [{"node_id": "n", "status": "asleep"}]},
        {"status": "a new word"}, {"status": "completed"}, {"job_id": "other"}, {"cancellable": 1}, {"phase": "x" * 33})),
        '{"job_id":"bad","status":"pending","progress":NaN}', b'{"job_id":"bad","status":"pending","message":"\xff"}',
        '{"job_id":"bad","status":"pending","message":"\\u0000"}', '{"message":"' + "x" * 200000 + '"}']
    before = stack.metric("weighbridge_overlay_malformed_total")
    stack.gallery_row("bad0", progress=7)
    for i, raw in enumerate(bad):
        text = raw if isinstance(raw, bytes) else raw.encode()
        stack.put_overlay(f"bad{i}", kind="op", raw=text.replace(b'"bad"', b'"bad%d"' % i))
    stack.put_overlay("good", kind="op", **{**good, "job_id": "good"})
    wait_until(lambda: jobs(stack) == {"bad0", "good"}, "the good one, and the row")
    assert stack.job("bad0")["progress"] == 7
    assert stack.metric("weighbridge_overlay_malformed_total") >= before + len(bad)
    stack.admit("bad1")
    assert stack.report("bad1", progress=5, phase="p").status_code == 200, "a report replaces what makes no sense"
    wait_until(lambda: stack.job("bad1")["progress"] == 5, "the report")


def test_stored_nodes_that_make_no_sense_are_left_out_and_counted(stack):
    before = stack.metric("weighbridge_nodes_malformed_total")
    for i, nodes in enumerate(("7", "{}", '[{"node_id":7}]', '["x"]', '[{"node_id":"n","status":"asleep"}]')):
        stack.gallery_row(f"j{i}")
        stack.sql("INSERT INTO operation_control (job_id, nodes) VALUES (%s, %s::jsonb)", [f"j{i}", nodes])
    wait_until(lambda: len(jobs(stack)) == 5, "all")
    assert all("nodes" not in e for e in stack.operations())
    assert stack.metric("weighbridge_nodes_malformed_total") >= before + 5


# --- cancel, pause, dismiss, control: section 4 ---

@pytest.mark.parametrize("what,word,text", [("cancel", "cancel", "Operation cancelled"), ("pause", "pause", "Operation paused")])
def test_a_stopped_operation_is_gone_at_once_and_its_worker_learns_of_it(stack, what, word, text):
    stack.admit("j", cancellable=True)
    stack.report("j", progress=60, message="live")
    assert control(stack, "j") == ""
    with listening(stack) as heard:
        answer = stack.act("j", what)
        assert (answer.status_code, answer.text) == (200, '{"success":true,"message":"%s"}' % text)
        assert stack.job("j") is None
        assert not stack.kv().exists("wb:1:op:j"), "its overlay went with it"
        assert heard() == {"jobID": "j", "control": word}
    assert control(stack, "j") == word
    assert row(stack, "j", "status, cancellable") == ("cancelled", False)
    assert outcome(stack, "j") == "cancelled"
    late = stack.report("j", progress=61, phase="downloading")
    assert late.status_code == 200 and late.json()["settled"] is True
    two_more_snapshots(stack)
    assert stack.job("j") is None


class listening:
    """The channel wb:control; the value is a function that waits for the next message."""

    def __init__(self, stack):
        self.pubsub = redis.Redis(unix_socket_path=stack.env["WB_REDIS"].removeprefix("unix:"),
                                  socket_timeout=HANG_S).pubsub(ignore_subscribe_messages=True)

    def __enter__(self):
        self.pubsub.subscribe("wb:control")
        wait_until(lambda: self.pubsub.get_message(timeout=1) is None and self.pubsub.subscribed, "the subscription")
        return lambda: json.loads(wait_until(lambda: self.pubsub.get_message(timeout=1), "a message")["data"])

    def __exit__(self, *_):
        self.pubsub.close()


@pytest.mark.parametrize("what", ["cancel", "pause"])
def test_what_cannot_be_stopped_is_400_with_the_reason(stack, what):
    assert "no operation nobody" in check_error(stack.act("nobody", what), 400)
    stack.admit("fixed", cancellable=False)
    assert "not cancellable" in check_error(stack.act("fixed", what), 400)
    assert row(stack, "fixed", "status")[0] == "pending" and control(stack, "fixed") == ""
    for status in ("completed", "failed", "cancelled"):
        stack.gallery_row(status, status=status, cancellable=True)
        assert status in check_error(stack.act(status, what), 400)
        assert row(stack, status, "status, cancellable") == (status, True)
    stack.stage("m")
    assert "copy" in check_error(stack.act("staging:m", what), 400)
    assert "copy" in check_error(stack.act("staging:" + "m" * 200, what), 400)
    assert stack.entry("m")
    check_error(stack.act("x" * 37, what), 400)


def test_a_stopped_operation_is_not_stopped_again(stack):
    stack.admit("j", cancellable=True)
    assert stack.act("j", "pause").status_code == 200
    assert "ended already" in check_error(stack.act("j", "cancel"), 400)
    assert control(stack, "j") == "pause"


def test_of_many_at_the_same_moment_exactly_one_stops_it(stack):
    for i in range(5):
        stack.admit(f"j{i}", cancellable=True)
        barrier, answers = threading.Barrier(4), []

        def act(what, job=f"j{i}"):
            barrier.wait()
            answers.append((stack.act(job, what).status_code, what))

        threads = [threading.Thread(target=act, args=(w,)) for w in ("cancel", "pause") * 2]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        won = [w for status, w in answers if status == 200]
        assert len(won) == 1 and sorted(s for s, _ in answers) == [200, 400, 400, 400]
        assert control(stack, f"j{i}") == won[0]


def test_dismissing_a_failure_takes_it_off_the_list_and_leaves_it_in_the_history(stack):
    stack.admit("j")
    stack.report("j", status="failed", error="disk full")
    assert stack.job("j")["error"] == "disk full"
    for _ in range(2):
        answer = stack.act("j", "dismiss")
        assert (answer.status_code, answer.text) == (200, '{"success":true,"message":"Operation dismissed"}')
        assert stack.job("j") is None
        assert outcome(stack, "j") == "failed"


@pytest.mark.parametrize("job", ["nobody", "live", "done", "staging:m", "staging:" + "m" * 200, "x" * 37, "a b/ä"])
def test_dismissing_what_is_no_failure_is_200_and_does_nothing(stack, job):
    stack.admit("live")
    stack.gallery_row("done", status="completed")
    stack.stage("m")
    answer = stack.act(job, "dismiss")
    assert (answer.status_code, answer.text) == (200, '{"success":true,"message":"Operation dismissed"}')
    assert stack.job("live") and stack.entry("m") and outcome(stack, "done") == "completed"
    stack.report("live", status="failed", error="later")
    assert stack.job("live")["error"] == "later", "not dismissed in advance"


def test_acting_calls_need_no_body_and_look_at_none(stack):
    for i, (body, kind) in enumerate(((None, None), (b"", None), (b"{}", "application/json"), (b"{", "application/json"),
                                      (b"x=1", "application/x-www-form-urlencoded"))):
        for what in ("cancel", "pause", "dismiss"):
            job = f"{what}{i}"
            stack.admit(job, cancellable=True)
            answer = stack.call("POST", f"/api/operations/{job}/{what}", data=body,
                                headers={"Content-Type": kind} if kind else {})
            assert answer.status_code == 200, answer.text


def test_control_of_what_is_unknown_is_404(stack):
    check_error(stack.get("/api/operations/nobody/control"), 404)


def test_a_control_outlives_the_history(stack):
    stack.admit("j", cancellable=True)
    stack.act("j", "cancel")
    assert stack.call("DELETE", "/api/operations/history").status_code == 200
    assert outcome(stack, "j") is None
    assert control(stack, "j") == "cancel"


def test_an_id_that_is_used_again_begins_anew(stack):
    stack.admit("j", cancellable=True)
    stack.report("j", message="one")
    stack.act("j", "cancel")
    assert stack.call("DELETE", "/api/operations/history").status_code == 200
    stack.admit("j", cancellable=True)
    assert control(stack, "j") == "" and stack.job("j")["message"] == ""
    stack.report("j", message="two")  # too early for the row
    assert stack.job("j")["message"] == "two"


# --- history: section 4 ---

def test_the_history_holds_ended_operations_newest_first_with_their_keys_in_order(stack):
    begun = datetime(2026, 1, 2, 3, 4, 5, 678901, timezone.utc)
    for i, status in enumerate(("completed", "failed", "cancelled", "pending")):
        stack.gallery_row(f"j{i}", cache_key="node:n1:g@b", op_type="backend_install", status=status, error="why" if i == 1 else "",
                          created_at=begun, updated_at=begun + timedelta(minutes=i))
    found = history(stack)
    assert [e["jobID"] for e in found] == ["j2", "j1", "j0"]
    assert list(found[1]) == ENDED_ORDER
    assert [list(found[i]) for i in (0, 2)] == [[k for k in ENDED_ORDER if k != "error"]] * 2
    assert found[1] == {
        "id": "g@b", "name": "b", "jobID": "j1", "isBackend": True, "nodeID": "n1", "taskType": "installation",
        "outcome": "failed", "error": "why", "startedAt": "2026-01-02T03:04:05.678901Z",
        "finishedAt": "2026-01-02T03:05:05.678901Z"}


def test_the_history_is_of_50_at_most(stack):
    now = datetime.now(timezone.utc)
    for i in range(55):
        stack.gallery_row(f"j{i:02}", status="completed", updated_at=now + timedelta(seconds=i), created_at=now)
    assert [e["jobID"] for e in history(stack)] == [f"j{i:02}" for i in range(54, 4, -1)]


def test_clearing_the_history_leaves_live_and_undismissed_failed_operations(stack):
    for job, status in (("done", "completed"), ("gone", "cancelled"), ("failed", "failed"), ("seen", "failed"),
                        ("live", "downloading")):
        stack.gallery_row(job, status=status)
    stack.act("seen", "dismiss")
    answer = stack.call("DELETE", "/api/operations/history")
    assert (answer.status_code, answer.text) == (200, '{"success":true}')
    assert [e["jobID"] for e in history(stack)] == ["failed"]
    assert jobs(stack) == {"failed", "live"}
    assert stack.call("DELETE", "/api/operations/history").text == '{"success":true}'


def test_the_history_has_an_etag(stack):
    stack.gallery_row("j", status="completed")
    tag = stack.get("/api/operations/history").headers["ETag"]
    assert stack.get("/api/operations/history", headers={"If-None-Match": tag}).status_code == 304
    head = stack.call("HEAD", "/api/operations/history")
    assert (head.status_code, head.headers["ETag"], head.text) == (200, tag, "")


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


def test_where_anonymous_may_view_they_see_the_poll_and_the_history_and_nothing_else(stack, tmp_path):
    stack.gallery_row("j", status="completed")
    with Program(stack, WB_RUNTIME_DIR=str(tmp_path), WB_AUTH_ANONYMOUS="viewer") as program:
        program.ready()

        def status(path, method="GET"):
            return ask(program.socket, path, method=method)[0]

        for method in ("GET", "HEAD"):
            assert status("/api/operations", method) == status("/api/operations/history", method) == 200
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
