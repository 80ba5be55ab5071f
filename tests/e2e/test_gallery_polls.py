# SPDX-License-Identifier: Apache-2.0
"""Gallery operations never flicker, and what was done to one is seen by every poll after the answer, on every process
and machine, also while a store is away. Operations contract, sections 1, 3 and 4."""
import json
import os
import signal
import threading
import time

import pytest

from conftest import wait_until
from gallery import control, history, jobs, listening, outcome, row
from program import Program, ask, freeze
from test_flicker import Pollers
from test_input import check_error
from test_outages import degraded, hung, stopped, wait_for_503, WAYS

JOB = "op-1"
PERIOD_S = 0.05  # 20 reports a second
NODES = [{"node_id": "n1", "node_name": "gpu-1", "status": "downloading", "percentage": 50}]


class Worker:
    """Does an operation for some seconds: reports 20 times a second until told to stop."""

    def __init__(self, stack, seconds):
        self.stack, self.seconds = stack, seconds
        self.statuses, self.settled = [], None

    def run(self, midway=None):
        began, fired = time.monotonic(), None
        due = began
        while (share := (time.monotonic() - began) / self.seconds) < 1:
            answer = self.stack.report(JOB, status="downloading", phase="downloading", progress=round(100 * share, 2),
                                       current_bytes=1 + int(1e9 * share), total_bytes=10**9, nodes=NODES)
            self.statuses.append(answer.status_code)
            if answer.status_code == 200 and answer.json()["settled"]:
                self.settled = time.monotonic()
                break
            if midway and not fired and share > 0.08:
                fired = threading.Thread(target=midway)
                fired.start()
            due += PERIOD_S
            time.sleep(max(0, due - time.monotonic()))  # the pace of the reports
        if fired:
            fired.join()


def entries_of(poll):
    return [e for e in poll[3] if e["jobID"] == JOB]


def check_never_backwards(polls, steps_back=0):
    """Only polls that do not overlap can be told apart in time."""
    ordered, last_end = [], 0.0
    for p in sorted(polls, key=lambda p: p[0]):
        if p[0] >= last_end:
            ordered.append(entries_of(p)[0]["progress"])
            last_end = p[1]
    assert sum(b < a for a, b in zip(ordered, ordered[1:])) <= steps_back, ordered
    assert len(set(ordered)) > 10


def watch(stack, midway=None, seconds=6, steps_back=0, until=lambda: True):
    """An operation from its admission until it is cancelled, polled all the while."""
    worker = Worker(stack, seconds * 5)
    with Pollers(stack) as pollers:
        assert stack.admit(JOB, cancellable=True).status_code == 201
        admitted = time.monotonic()
        work = threading.Thread(target=worker.run, args=(midway,))
        work.start()
        end = admitted + seconds
        wait_until(lambda: time.monotonic() > end and until(), "its time", seconds + 30)
        # A worker that has not tried Postgres again yet says so and does nothing.
        for _ in range(100):
            asked = time.monotonic()
            if (answer := stack.act(JOB, "cancel")).status_code != 503:
                break
            time.sleep(0.1)  # the pace of asking again
        assert answer.status_code == 200, answer.text
        cancelled = time.monotonic()
        work.join()
        rest = time.monotonic() + 1
        wait_until(lambda: time.monotonic() > rest, "the polls after the end")
    during = [p for p in pollers.polls if p[0] > admitted and p[1] < asked]
    after = [p for p in pollers.polls if p[0] > cancelled]
    assert len(during) >= 10 * seconds and len(after) > 10
    for p in during:
        assert p[2] == 200 and len(entries_of(p)) == 1, f"{p[0] - admitted:.3f} s after the admission"
    for p in after:
        assert p[2] == 200 and not entries_of(p), f"{p[0] - cancelled:.3f} s after it was cancelled"
    check_never_backwards(during, steps_back)
    assert worker.settled, "the worker learns of it by its next report"
    assert control(stack, JOB) == "cancel" and outcome(stack, JOB) == "cancelled"
    return worker, pollers


def test_an_operation_never_flickers_and_is_gone_at_once_when_cancelled(stack):
    assert len(stack.processes()[1]) == 2
    worker, pollers = watch(stack)
    assert set(worker.statuses) == {200}
    assert {p[4] for p in pollers.polls} == {None}


def test_an_operation_never_flickers_while_a_worker_is_killed(stack):
    watch(stack, stack.kill_worker)
    wait_until(lambda: len(stack.processes()[1]) == 2, "the worker's successor")


@pytest.mark.touches("redis")
def test_an_operation_never_flickers_while_redis_restarts(stack):
    """Losing Redis may step back once, to a value the row held; cancelling works without it."""
    def restart():
        stack.dev("stop", "redis")
        stack.dev("start", "redis")

    worker, _ = watch(stack, restart, steps_back=1)
    assert set(worker.statuses) == {200}, "the row takes the reports"


@pytest.mark.touches("postgres")
def test_an_operation_never_flickers_while_postgres_is_away(stack):
    def outage():
        stack.dev("stop", "postgres")
        end = time.monotonic() + 3
        wait_until(lambda: time.monotonic() > end, "three seconds")
        stack.dev("start", "postgres")
        over.set()

    over = threading.Event()
    worker, pollers = watch(stack, outage, seconds=6, until=lambda: over.is_set() and degraded(stack) is None)
    assert "postgres" in {p[4] for p in pollers.polls}
    assert worker.statuses.count(200) > 0.9 * len(worker.statuses), "the overlay carries the reports"


# --- every process and machine ---

def jobs_at(path, token):
    """What a process knows. It may say that it does not know, when it is starved and its stores seem slow."""
    def known():
        status, body = ask(path, "/api/operations", token=token)
        assert status in (200, 503), body
        return [{e["jobID"] for e in json.loads(body)["operations"]}] if status == 200 else None

    return wait_until(known, "a process that knows")[0]


def turn_to(runs, rests):
    freeze([rests])
    os.kill(runs, signal.SIGCONT)


@pytest.mark.touches("operations")
def test_an_act_on_one_worker_is_seen_by_the_next_poll_on_the_other(stack):
    path, tokens = stack.var / "run" / "operations.sock", {r: stack.env[f"WB_{r.upper()}_TOKEN"] for r in ("admin", "worker")}
    body = json.dumps({"gallery_element_name": "m", "op_type": "model_install", "cancellable": True}).encode()
    workers = sorted(stack.processes()[1])
    assert len(workers) == 2

    def call(method, uri, status, role="admin", **kw):
        got, text = ask(path, uri, method=method, token=tokens[role], **kw)
        assert got == status, text
        return json.loads(text)

    def seen():
        return jobs_at(path, tokens["admin"])

    def acts():
        made = call("POST", "/api/v1/operations", 201, "worker", body=body)["id"]
        yield True, made
        call("PUT", f"/api/v1/operations/{made}", 200, "worker", body=b'{"status":"failed","error":"why"}')
        yield True, made
        call("POST", f"/api/operations/{made}/dismiss", 200)
        yield False, made
        made = call("POST", "/api/v1/operations", 201, "worker", body=body)["id"]
        yield True, made
        call("POST", f"/api/operations/{made}/cancel", 200)
        yield False, made

    try:
        for _ in range(2):
            one, other = workers
            turn_to(one, other)
            for there, job in acts():
                turn_to(other, one)
                assert (job in seen()) is there
                turn_to(one, other)
            workers.reverse()
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGCONT)


def test_other_machines_learn_of_acts(stack, tmp_path):
    changes = stack.kv().pubsub(ignore_subscribe_messages=True)
    changes.subscribe("wb:1:changes")
    wait_until(lambda: changes.get_message(timeout=1) is None and changes.subscribed, "subscribed")
    with Program(stack, WB_RUNTIME_DIR=str(tmp_path / "run")) as other:
        other.ready()

        def theirs():
            return jobs_at(other.socket, stack.env["WB_VIEWER_TOKEN"])

        def told():
            return wait_until(lambda: changes.get_message(timeout=1), "a word to other machines")["data"].endswith(b" rows")

        for i in range(5):
            theirs()
            assert stack.admit(f"j{i}", cancellable=True).status_code == 201
            assert told()
            wait_until(lambda n=i: f"j{n}" in theirs(), "the admission seen on the other machine", 2)
            assert stack.act(f"j{i}", ("cancel", "pause")[i % 2]).status_code == 200
            assert told()
            wait_until(lambda n=i: f"j{n}" not in theirs(), "the end seen on the other machine", 2)


# --- a store is away: section 3 ---

def running(stack):
    """Two of them: one whose row lags behind its overlay, one of another program. And one that ended."""
    stack.gallery_row("doomed", status="completed", cancellable=True)
    assert stack.admit(JOB, cancellable=True).ok
    assert stack.report(JOB, status="downloading", phase="p", progress=10, nodes=NODES).ok
    assert stack.report(JOB, progress=20, message="fresh").ok
    # As of somebody who reports elsewhere: what is reported here is written to the row in the end.
    key, kv = "wb:1:op:" + JOB, stack.kv()
    kv.set(key, json.dumps({**json.loads(kv.get(key)), "of_row": False}), keepttl=True)
    stack.gallery_row("theirs", progress=5)
    wait_until(lambda: jobs(stack) == {JOB, "theirs"} and stack.job(JOB)["progress"] == 20, "both")


@pytest.mark.touches("postgres")
@WAYS
def test_postgres_out_last_good_operations_with_the_live_overlay(stack, way):
    running(stack)
    with way(stack, "postgres"):
        wait_until(lambda: degraded(stack) == "postgres", "X-Degraded: postgres")
        assert jobs(stack) == {JOB, "theirs"}
        if way in (stopped, hung):
            answer = wait_until(lambda: (a := stack.report(JOB, progress=30)).ok and a, "the report taken")
            assert answer.json() == {"settled": False, "durable": False}
            wait_until(lambda: stack.job(JOB)["progress"] == 30, "the live overlay on top")
            assert stack.job(JOB)["nodes"] == NODES and stack.job(JOB)["message"] == "fresh"
            if way is stopped:
                check_error(stack.report(JOB, progress=31, status="completed"), 503)
                wait_until(lambda: stack.job(JOB)["progress"] == 30, "how it ends is not for the overlay to tell")
            # A server that hangs may still do later what it was asked for.
            for refused in (stack.report("doomed", status="completed"), stack.report("theirs", progress=5),
                            stack.admit("doomed"), stack.act("doomed", "cancel"), stack.act("doomed", "dismiss"),
                            stack.get("/api/operations/history"), stack.get(f"/api/operations/{JOB}/control")):
                check_error(refused, 503)
                assert refused.headers["Retry-After"]
            assert "not cleared" in check_error(stack.call("DELETE", "/api/operations/history"), 500)
        assert jobs(stack) == {JOB, "theirs"}
    wait_until(lambda: degraded(stack) is None, "recovery by itself")
    assert wait_until(lambda: stack.report(JOB, progress=40).json().get("durable"), "durable again")
    wait_until(lambda: stack.job(JOB)["progress"] == 40, "and shown")


@pytest.mark.parametrize("table", ["model_load_jobs", "gallery_operations"])
def test_while_one_table_cannot_be_read_the_last_good_rows_of_both_stand(stack, table):
    running(stack)
    token = stack.claim("m")
    assert stack.load("m", token, state="staging", bytes_sent=1, total_bytes=2).ok
    stack.kv().flushdb()
    wait_until(lambda: jobs(stack) == {JOB, "theirs", "staging:m"} and stack.job(JOB)["progress"] == 10, "rows alone")
    connection = stack.pg()
    connection.autocommit = False
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        wait_until(lambda: degraded(stack) == "postgres", "X-Degraded: postgres")
        assert jobs(stack) == {JOB, "theirs", "staging:m"}
    finally:
        connection.rollback()
        connection.close()
    wait_until(lambda: degraded(stack) is None and jobs(stack) == {JOB, "theirs", "staging:m"}, "recovery by itself")


@pytest.mark.touches("redis")
@WAYS
def test_redis_out_rows_with_the_last_overlay_until_its_ttl(stack, way):
    running(stack)
    kv = stack.kv()
    kv.pexpire("wb:1:op:" + JOB, 4000)
    kv.zincrby("wb:1:live", -56000, "op:" + JOB)
    seen = stack.metric("weighbridge_snapshots_total")
    wait_until(lambda: stack.operations() and stack.metric("weighbridge_snapshots_total") > seen + 2, "the shorter life seen")
    with way(stack, "redis"):
        wait_until(lambda: degraded(stack) == "redis", "X-Degraded: redis")
        wait_until(lambda: stack.job(JOB)["progress"] == 10, "the row alone, when the overlay's time is over")
        assert stack.job(JOB)["nodes"] == NODES and jobs(stack) == {JOB, "theirs"}
        assert stack.report(JOB, progress=50, phase="q").json() == {"status": "downloading", "settled": False, "durable": True}
        assert stack.job(JOB)["progress"] == 50
        assert stack.act(JOB, "pause").status_code == 200
        assert jobs(stack) == {"theirs"} and control(stack, JOB) == "pause"
    wait_until(lambda: degraded(stack) is None, "recovery by itself")
    assert jobs(stack) == {"theirs"}


@pytest.mark.touches("redis")
def test_what_redis_kept_of_a_stopped_operation_stays_hidden(stack):
    """It hung when the overlay should have gone: the row hides what is left, and late reports do not bring it back."""
    running(stack)
    with hung(stack, "redis"):
        assert stack.act(JOB, "cancel").status_code == 200
        assert jobs(stack) == {"theirs"}
    wait_until(lambda: degraded(stack) is None, "recovery by itself")
    assert jobs(stack) == {"theirs"}
    assert stack.report(JOB, progress=99).json()["settled"] is True
    assert jobs(stack) == {"theirs"} and not stack.kv().exists("wb:1:op:" + JOB)


@pytest.mark.touches("postgres")
def test_operations_survive_the_death_of_the_refresher_during_an_outage(stack):
    running(stack)
    with stopped(stack, "postgres"):
        wait_until(lambda: degraded(stack) == "postgres", "the outage")
        for pid in stack.processes()[1]:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: len(stack.processes()[1]) == 2, "successors")
        wait_until(lambda: degraded(stack) == "postgres", "an answer")
        assert jobs(stack) == {JOB, "theirs"}, "rows that these processes never read"
        assert stack.job(JOB)["nodes"] == NODES and stack.job("theirs")["progress"] == 5
    wait_until(lambda: degraded(stack) is None, "recovery by itself")


@pytest.mark.touches("postgres", "operations")
def test_without_rows_to_go_by_overlay_entries_only_and_never_an_empty_200(stack):
    running(stack)
    stack.dev("stop", "operations")
    stack.dev("stop", "postgres")
    for left in (stack.var / "run").glob("operations.s*"):
        left.unlink()
    stack.dev("start", "operations")
    wait_until(lambda: degraded(stack) == "postgres", "the outage")
    assert jobs(stack) == {JOB}, "the overlay holds the whole entry"
    assert stack.job(JOB)["nodes"] == NODES
    stack.kv().flushdb()
    assert wait_for_503(stack).headers["X-Degraded"] == "postgres"
    stack.dev("start", "postgres")
    wait_until(lambda: degraded(stack) is None and jobs(stack) == {JOB, "theirs"}, "recovery by itself")


@pytest.mark.touches("postgres", "redis")
def test_an_acknowledged_act_is_never_answered_with_the_rows_before_it(stack):
    running(stack)
    with listening(stack) as heard:
        assert stack.act(JOB, "cancel").status_code == 200
        assert heard()["control"] == "cancel"
    with hung(stack, "postgres"), hung(stack, "redis"):
        for _ in range(20):
            answer = stack.get("/api/operations")
            assert answer.status_code == 503 or {e["jobID"] for e in answer.json()["operations"]} == {"theirs"}
    wait_until(lambda: degraded(stack) is None and jobs(stack) == {"theirs"}, "recovery by itself")
    assert row(stack, JOB, "status")[0] == "cancelled" and history(stack)[0]["jobID"] == JOB
