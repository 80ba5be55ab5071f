# SPDX-License-Identifier: Apache-2.0
"""How gallery operations are shown through the whole stack: entries, and the overlay over its row. Operations
contract, sections 2 and 3."""
import json
from datetime import datetime, timedelta, timezone

import pytest

from conftest import wait_until
from gallery import jobs, row, two_more_snapshots

ORDER = ["id", "jobID", "name", "fullName", "progress", "taskType", "isDeletion", "isBackend", "isQueued",
         "cancellable", "message", "nodeID", "phase", "currentBytes", "totalBytes", "error", "nodes"]


def shown(stack, job):
    """Rows of other programs come with the next snapshot."""
    return wait_until(lambda: stack.job(job), f"the entry of {job}")


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


@pytest.mark.parametrize("status,age", [("completed", {"minutes": 6}), ("cancelled", {"days": 3}), ("failed", {"hours": 25})])
def test_a_row_that_ended_long_ago_hides_its_overlay(stack, status, age):
    """Its stamp may be of a clock that is wrong; the poll's list has no such row."""
    stack.gallery_row("j", status=status, created_at=ago(days=9), updated_at=ago(**age))
    stack.gallery_row("live")
    stack.put_overlay("j", kind="op", gallery_element_name="m", op_type="model_install", status="downloading", progress=12.5)
    wait_until(lambda: stack.kv().exists("wb:1:op:j") and jobs(stack) == {"live"}, "the live one")
    two_more_snapshots(stack)
    assert jobs(stack) == {"live"}


def test_a_row_that_nobody_wrote_for_long_is_shown_while_somebody_reports_it(stack):
    stack.gallery_row("j", status="downloading", created_at=ago(hours=2), updated_at=ago(hours=1), cache_key="g@row")
    stack.put_overlay("j", kind="op", gallery_element_name="m", op_type="model_install", status="downloading", progress=12.5)
    assert (shown(stack, "j")["fullName"], stack.job("j")["progress"]) == ("g@row", 12)


def test_an_operation_whose_row_was_deleted_is_gone_with_its_overlay(stack):
    """By a front end beside us, say, which clears its history and knows nothing of overlays."""
    for job in ("j", "k"):
        stack.admit(job)
        stack.report(job, progress=60, phase="p")
    assert jobs(stack) == {"j", "k"}
    stack.sql("DELETE FROM gallery_operations WHERE id = 'j'")
    wait_until(lambda: jobs(stack) == {"k"}, "it is gone")
    assert stack.kv().exists("wb:1:op:j")
    two_more_snapshots(stack)
    assert jobs(stack) == {"k"}


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
    wait_until(lambda: len(jobs(stack)) == 5 and stack.metric("weighbridge_nodes_malformed_total") >= before + 5, "all")
    assert all("nodes" not in e for e in stack.operations())
