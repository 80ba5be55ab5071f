# SPDX-License-Identifier: Apache-2.0
"""Failure rules of GET /api/operations (operations contract, section 3), each with the real server
stopped, hung and slow. A poll is watched from several connections all the while: it never errs unless
the table says so, and a dead store never delays it."""
import json
import os
import subprocess
import threading
import time
from contextlib import contextmanager

import pytest

from conftest import wait_until
from program import Program, ask
from test_flicker import Pollers

ROW, OVERLAY = "model-with-a-row", "model-with-an-overlay"
# A rule says 150 ms more for a poll after the first; a shared machine is given several times that.
DELAY_GUARD_S = 1.5


@contextmanager
def stopped(stack, name):
    stack.dev("stop", name)
    try:
        yield
    finally:
        stack.dev("start", name)


@contextmanager
def hung(stack, name):
    stack.dev("freeze", name)
    try:
        yield
    finally:
        stack.dev("thaw", name)


@contextmanager
def slow(stack, name):
    """Answers, but after far more than the 100 ms that count as slow."""
    if name == "redis":
        kv = stack.kv()
        stop = threading.Event()

        def pause():
            while not stop.is_set():
                kv.execute_command("CLIENT", "PAUSE", "400", "ALL")
                stop.wait(0.4)

        thread = threading.Thread(target=pause)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
    else:
        connection = stack.pg()
        connection.autocommit = False
        try:
            with connection.cursor() as cursor:
                cursor.execute("LOCK TABLE model_load_jobs IN ACCESS EXCLUSIVE MODE")
            yield
        finally:
            connection.rollback()
            connection.close()


WAYS = pytest.mark.parametrize("way", [stopped, hung, slow], ids=lambda w: w.__name__)


def two_entries(stack):
    token = stack.claim(ROW)
    assert stack.load(ROW, token, state="staging", node_id="n", node_name="gpu", bytes_sent=10,
                      total_bytes=100).status_code == 200
    stack.kv().delete("wb:1:staging:" + ROW)
    assert stack.stage(OVERLAY, file_name="w.gguf", bytes_sent=50, total_bytes=100).status_code == 204
    wait_until(lambda: ids(stack) == {ROW, OVERLAY}, "both entries")


def ids(stack):
    answer = stack.get("/api/operations")
    if answer.status_code != 200:
        return None
    return {e["name"] for e in answer.json()["operations"]}


def wait_for_503(stack):
    """The program's own 503 (the web server's has no X-Degraded)."""
    def probe():
        answer = stack.get("/api/operations")
        return [answer] if answer.status_code == 503 and "X-Degraded" in answer.headers else None

    return wait_until(probe, "a 503 that says what is missing")[0]


def degraded(stack):
    return stack.get("/api/operations").headers.get("X-Degraded")


def check_watched(pollers, names, also=()):
    assert len(pollers.polls) > 5
    for began, ended, status, entries, _ in pollers.polls:
        assert status == 200
        assert [e["name"] for e in entries].count(names[0]) == 1
        assert {e["name"] for e in entries} <= set(names) | set(also)
        assert ended - began < DELAY_GUARD_S


@pytest.mark.touches("postgres")
@WAYS
def test_postgres_out_redis_up_last_good_rows_with_the_live_overlay(stack, way):
    two_entries(stack)
    with Pollers(stack) as pollers:
        with way(stack, "postgres"):
            wait_until(lambda: degraded(stack) == "postgres", "X-Degraded: postgres")
            assert ids(stack) == {ROW, OVERLAY}
            assert stack.stage(OVERLAY, bytes_sent=75).status_code == 204, "the overlay lives"
            wait_until(lambda: stack.entry(OVERLAY)["progress"] == 75, "the live overlay on top")
        wait_until(lambda: degraded(stack) is None, "recovery by itself")
    check_watched(pollers, (ROW, OVERLAY))


@pytest.mark.touches("postgres", "operations")
def test_rows_that_a_starved_process_read_a_while_before_the_outage_still_stand(stack):
    """Report of a test that failed on a busy machine only: two seconds between the last good read and the outage, and the rows were
    gone from the answers, though they may stand for 60 s."""
    two_entries(stack)
    stack.dev("freeze", "operations")
    frozen = time.monotonic()
    stack.dev("stop", "postgres")
    wait_until(lambda: time.monotonic() - frozen > 2.5, "processes that got no time meanwhile")
    stack.dev("thaw", "operations")
    wait_until(lambda: degraded(stack) == "postgres", "X-Degraded: postgres")
    assert ids(stack) == {ROW, OVERLAY}


@pytest.mark.touches("redis")
@WAYS
def test_redis_out_postgres_up_rows_with_the_last_overlay_until_its_ttl(stack, way):
    two_entries(stack)
    kv = stack.kv()
    kv.pexpire("wb:1:staging:" + OVERLAY, 4000)
    kv.zincrby("wb:1:live", -56000, "staging:" + OVERLAY)
    polled = time.monotonic() + 1
    wait_until(lambda: stack.operations() and time.monotonic() > polled, "the shorter life seen")
    with Pollers(stack) as pollers:
        with way(stack, "redis"):
            wait_until(lambda: degraded(stack) == "redis", "X-Degraded: redis")
            wait_until(lambda: ids(stack) == {ROW}, "the overlay's end by its TTL, then rows only")
        wait_until(lambda: degraded(stack) is None, "recovery by itself")
    check_watched(pollers, (ROW, OVERLAY))


@pytest.mark.touches("postgres", "redis")
@WAYS
def test_both_out_last_snapshot_while_under_5_s_then_503(stack, way):
    """Report 11 (test_reports.py). The JSON of a 503 is ours, not the web server's."""
    two_entries(stack)
    with way(stack, "postgres"), way(stack, "redis"):
        wait_until(lambda: degraded(stack) == "postgres,redis", "both found out")
        answer = stack.get("/api/operations")
        if answer.status_code == 200:
            assert {e["name"] for e in answer.json()["operations"]} == {ROW, OVERLAY}
        gone = wait_for_503(stack)
        assert gone.headers["Retry-After"]
        assert set(gone.json()) == {"error", "request_id"}
        assert gone.headers["X-Degraded"] == "postgres,redis"
    wait_until(lambda: ids(stack) is not None and degraded(stack) is None, "recovery by itself")
    assert ROW in ids(stack)


@pytest.mark.touches("postgres", "operations")
def test_never_an_empty_200_out_of_ignorance(stack):
    """A fresh process that never saw the rows, Postgres down, nothing in the overlay: 503."""
    stack.dev("stop", "operations")
    stack.dev("stop", "postgres")
    for left in (stack.var / "run").glob("operations.s*"):
        left.unlink()
    stack.dev("start", "operations")
    answer = wait_for_503(stack)
    assert answer.headers["X-Degraded"] == "postgres"
    assert answer.headers["Retry-After"]
    assert stack.stage(OVERLAY).status_code == 204
    wait_until(lambda: ids(stack) == {OVERLAY}, "overlay entries only")
    stack.dev("start", "postgres")
    wait_until(lambda: degraded(stack) is None, "recovery by itself")


@pytest.mark.touches("postgres")
def test_one_log_line_per_outage_not_per_poll(stack):
    def lines():
        log = (stack.var / "log" / "operations.log").read_text(errors="replace")
        return sum("postgres does not answer" in line for line in log.splitlines())

    stack.operations()
    before = lines()
    with stopped(stack, "postgres"):
        wait_until(lambda: degraded(stack) == "postgres", "the outage")
        for _ in range(50):
            stack.get("/api/operations")
    assert 1 <= lines() - before <= 2, "one for the refresher of each process that held the lease"
    wait_until(lambda: degraded(stack) is None, "recovery by itself")


@pytest.mark.touches("postgres")
def test_outage_survives_the_death_of_the_refresher(stack):
    """Last good rows are known to whoever refreshes next, whichever process that is."""
    two_entries(stack)
    with stopped(stack, "postgres"):
        wait_until(lambda: degraded(stack) == "postgres", "the outage")
        for pid in stack.processes()[1]:
            os.kill(pid, 9)
        wait_until(lambda: len(stack.processes()[1]) == 2, "successors")
        wait_until(lambda: ids(stack) == {ROW, OVERLAY}, "the rows, from a process that never read them")
    wait_until(lambda: degraded(stack) is None, "recovery by itself")


@pytest.mark.touches("postgres")
def test_postgres_restart_and_killed_sessions_are_not_seen_by_polls(stack):
    """Reports 20 and 21 (test_reports.py)."""
    two_entries(stack)
    with Pollers(stack) as pollers:
        for _ in range(3):
            stack.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                      " WHERE pid <> pg_backend_pid() AND application_name LIKE 'weighbridge%'")
            wait_until(lambda: degraded(stack) is None, "polls go on")
        stack.dev("stop", "postgres")
        stack.dev("start", "postgres")
        wait_until(lambda: degraded(stack) is None, "recovery")
    check_watched(pollers, (ROW, OVERLAY))


@pytest.mark.touches("redis")
def test_redis_frozen_twice_is_bounded_both_times(stack):
    """Report 18 (test_reports.py). The timeout was lost with the first connection."""
    two_entries(stack)
    for _ in range(2):
        with hung(stack, "redis"):
            wait_until(lambda: degraded(stack) == "redis", "the outage")
            assert stack.stage(OVERLAY, bytes_sent=60).status_code == 503
        wait_until(lambda: degraded(stack) is None, "recovery")
        wait_until(lambda: stack.stage(OVERLAY, bytes_sent=60).status_code == 204, "writes again")


# --- what a store's trouble must not do to the other, and what is not known ---

@pytest.mark.touches("postgres")
def test_a_hung_postgres_does_not_make_redis_count_as_down(stack):
    """Neither for polls nor for writes: the owner of a live overlay goes on with durable:false."""
    token = stack.claim(ROW)
    assert stack.load(ROW, token, state="staging", bytes_sent=10, total_bytes=100).status_code == 200
    stack.operations()
    with hung(stack, "postgres"):
        wait_until(lambda: degraded(stack), "the outage")
        seen = {degraded(stack) for _ in range(100)}
        assert seen == {"postgres"}
        answers = [stack.load(ROW, token, bytes_sent=20 + i) for i in range(5)]
        assert [(a.status_code, a.json()) for a in answers] == [(200, {"durable": False})] * 5
        assert stack.stage(OVERLAY, bytes_sent=1, total_bytes=2).status_code == 204
        wait_until(lambda: ids(stack) == {ROW, OVERLAY}, "both")
    wait_until(lambda: degraded(stack) is None, "recovery by itself")


def idle(seconds):
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > end, "nobody polls")


@pytest.mark.touches("postgres")
def test_rows_read_long_before_the_outage_are_not_the_last_good_ones(stack):
    """Nobody polled for a while, a row came, Postgres hung: the rows are not known, hence no empty 200."""
    stack.gallery_row("ended meanwhile")
    wait_until(lambda: len(stack.operations()) == 1, "an operation of another program")
    idle(16)
    stack.sql("UPDATE gallery_operations SET status = 'completed'")
    stack.sql("INSERT INTO model_load_jobs (tracking_key, state, updated_at) VALUES ('theirs', 'staging', now())")
    with hung(stack, "postgres"):
        assert wait_for_503(stack).headers["X-Degraded"] == "postgres"
    wait_until(lambda: ids(stack) == {"theirs"}, "recovery by itself")


@pytest.mark.touches("postgres", "redis")
def test_an_acknowledged_change_is_never_answered_with_the_rows_before_it(stack):
    assert stack.operations() == []
    idle(2.5)
    token = stack.claim(ROW)
    assert stack.load(ROW, token, state="staging", bytes_sent=1, total_bytes=2).status_code == 200
    with hung(stack, "postgres"), hung(stack, "redis"):
        for _ in range(20):
            answer = stack.get("/api/operations")
            assert answer.status_code == 503 or ids_of(answer) == {ROW}
    wait_until(lambda: degraded(stack) is None and ids(stack) == {ROW}, "recovery by itself")
    assert stack.load(ROW, token, "DELETE").status_code == 204
    with hung(stack, "postgres"):
        for _ in range(20):
            answer = stack.get("/api/operations")
            assert answer.status_code == 503 or ids_of(answer) == set(), "no ghost of what was ended"


def ids_of(answer):
    return {e["name"] for e in answer.json()["operations"]}


def test_a_full_runtime_folder_does_not_stop_polls(stack, tmp_path):
    """No snapshot can be written: polls ask the stores themselves, and the log says so once."""
    room = tmp_path / "run"
    room.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(room)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("no small folder of its own to fill")
    try:
        two_entries(stack)
        with Program(stack, WB_RUNTIME_DIR=str(room)) as full:
            full.ready()

            def names():
                status, body = ask(full.socket, "/api/operations", token=stack.env["WB_VIEWER_TOKEN"])
                return {e["name"] for e in json.loads(body)["operations"]} if status == 200 else body

            assert names() == {ROW, OVERLAY}
            fill(room / "filler")
            for _ in range(10):
                assert names() == {ROW, OVERLAY}
            wait_until(lambda: full.text().count("snapshots cannot be written") >= 1, "a word of it")
            assert full.text().count("snapshots cannot be written") <= 2, "once for each process"
            (room / "filler").unlink()
            wait_until(lambda: full.text().count("snapshots can be written again") >= 1 or names() is None,
                       "recovery by itself")
            assert names() == {ROW, OVERLAY}
    finally:
        subprocess.run(["umount", "-l", str(room)], check=False)


def fill(path):
    with open(path, "wb", buffering=0) as out:
        try:
            while out.write(b"x" * 512):
                pass
        except OSError:
            return
