# SPDX-License-Identifier: Apache-2.0
"""Acting on gallery operations through the whole stack: cancel, pause, dismiss, control, history. Operations
contract, section 4."""
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta, timezone
from functools import partial

import pytest

from conftest import at_once, exactly_one, wait_until
from gallery import control, history, jobs, listening, outcome, row, two_more_snapshots
from test_input import check_error

ENDED_ORDER = ["id", "name", "jobID", "isBackend", "nodeID", "taskType", "outcome", "error", "startedAt", "finishedAt"]


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
    for job in (f"j{i}" for i in range(5)):
        stack.admit(job, cancellable=True)
        words = ("cancel", "pause") * 2
        answers, again = at_once([partial(stack.act, job, w) for w in words])
        winner = exactly_one(answers, again, won=200, lost=400)
        assert control(stack, job) in ([words[answers.index(winner)]] if winner else words)


def test_a_row_that_is_held_for_a_moment_is_waited_for(stack):
    """Whoever has it lets it go before the deadline, but later than one lock is waited for."""
    stack.admit("j", cancellable=True)
    with closing(stack.pg()) as holder, holder.cursor() as cursor, ThreadPoolExecutor() as pool:
        holder.autocommit = False
        cursor.execute("SELECT FROM gallery_operations WHERE id = 'j' FOR UPDATE")
        answer = pool.submit(stack.act, "j", "cancel")
        waits = "SELECT xact_start FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%gallery_operations%'"
        first = wait_until(lambda: stack.sql(waits), "one that waits")
        wait_until(lambda: answer.done() or stack.sql(waits) not in ([], first), "it waits again")
        holder.rollback()
    assert answer.result().status_code == 200, answer.result().text


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
