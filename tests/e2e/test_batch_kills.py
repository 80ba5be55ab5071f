# SPDX-License-Identifier: Apache-2.0
"""Runners that die, freeze and are taken over: the result is that of a run that nothing disturbed. Batch contract, "Running", "Fairness"."""
import random
import signal
import time

import pytest

from batching import _batches, line, service  # noqa: F401  fixtures
from conftest import wait_until

LINES = 150


def wanted(n=LINES):
    return {f"id-{i}": f"line {i}" for i in range(n)}


def check_whole(service, batch, n=LINES):
    done = service.get(batch)
    assert done["request_counts"] == {"total": n, "completed": n, "failed": 0}
    assert service.outputs(batch) == wanted(n)  # each once, too
    assert done["usage"]["total_tokens"] == 4 * n


def recorded(service, batch):
    return {x for x, in service.stack.sql("SELECT completed FROM batch WHERE id = %s", [batch])}.pop()


def killed_at(service, batch, delay_s):
    """A runner that is killed so long after it began."""
    with service.runner(WB_BATCH_LEASE_MS=500) as runner:
        time.sleep(delay_s)  # the random point in time that is tested: any rate will do
        runner.send(signal.SIGKILL)
        runner.died()


def kills(service, times, seed):
    service.upstream.order(latency_ms=4)
    points = random.Random(seed)
    while times > 0:
        batch = service.batch([line(i) for i in range(LINES)], aibrix={"client": {"max_concurrency": 4}})
        for _ in range(6):
            if times > 0 and service.get(batch)["status"] != "completed":
                killed_at(service, batch, points.uniform(0.05, 0.6))
                times -= 1
        if service.get(batch)["status"] != "completed":
            with service.runner(WB_BATCH_LEASE_MS=500):
                service.until(batch, "completed")
        check_whole(service, batch)


def test_kill_9_at_any_moment_loses_and_doubles_no_line(service):
    kills(service, 6, 1)


@pytest.mark.long
def test_kill_9_at_200_random_points(service):
    kills(service, 200, 2)


def test_a_line_whose_result_was_recorded_does_not_run_again(service):
    service.upstream.fault("POST /v1/chat/completions", "hold", name="rest", times=-1, skip=20)
    batch = service.batch([line(i) for i in range(LINES)], aibrix={"client": {"max_concurrency": 4}})
    with service.runner(WB_BATCH_LEASE_MS=500) as runner:
        wait_until(lambda: recorded(service, batch) == 20, "a checkpoint of twenty")
        runner.send(signal.SIGKILL)
        runner.died()
    first = service.upstream.state()["answered"]
    service.upstream.order(clear=True)
    with service.runner():
        service.until(batch, "completed")
    check_whole(service, batch)
    again = service.upstream.state()["answered"]
    assert sum(first.values()) == 20 and all(again[text] == 1 for text in first)


def test_a_runner_that_was_frozen_past_its_lease_adds_nothing_to_the_result(service):
    """It wakes up with answers in hand, writes them, and is told that the batch is another's."""
    service.upstream.order(latency_ms=5)
    batch = service.batch([line(i) for i in range(LINES)], aibrix={"client": {"max_concurrency": 4}})
    with service.runner(WB_BATCH_LEASE_MS=500) as frozen:
        wait_until(lambda: recorded(service, batch) > 10, "a checkpoint")
        frozen.send(signal.SIGSTOP)
        with service.runner():
            wait_until(lambda: service.stack.sql("SELECT epoch FROM batch WHERE id = %s", [batch]) == [(2,)], "another holder")
            frozen.send(signal.SIGCONT)
            wait_until(lambda: 'msg="batch is another\'s"' in frozen.text(), "word of it")
            service.until(batch, "completed")
        check_whole(service, batch)


def test_a_runner_that_is_told_to_end_makes_safe_what_there_is_and_hands_the_batch_back(service):
    service.upstream.order(latency_ms=10)
    batch = service.batch([line(i) for i in range(LINES)], aibrix={"client": {"max_concurrency": 2}})
    with service.runner() as runner:
        wait_until(lambda: service.get(batch)["request_counts"]["completed"] > 5, "some")
    assert recorded(service, batch) == sum(service.upstream.state()["answered"].values())
    assert service.stack.sql("SELECT holder, lease_until = '-infinity' FROM batch WHERE id = %s", [batch]) == [("", True)]
    with service.runner():
        service.until(batch, "completed")
    check_whole(service, batch)
    assert set(service.upstream.state()["answered"].values()) == {1}


def test_many_runners_share_the_batches_and_each_has_one_holder(service):
    service.upstream.order(latency_ms=5)
    batches = [service.batch([line(i) for i in range(20)]) for _ in range(6)]
    with service.runner(WB_BATCH_BATCHES=2), service.runner(WB_BATCH_BATCHES=2), service.runner(WB_BATCH_BATCHES=2):
        for batch in batches:
            service.until(batch, "completed")
            check_whole(service, batch, 20)
    assert service.stack.sql("SELECT DISTINCT epoch FROM batch") == [(1,)]
    assert sum(service.upstream.state()["answered"].values()) == 120


@pytest.mark.touches("postgres", "redis")
@pytest.mark.parametrize("store", ["postgres", "redis"])
def test_stores_that_go_away_for_a_while_cost_no_line(service, store):
    service.upstream.order(latency_ms=10)
    batch = service.batch([line(i) for i in range(LINES)], aibrix={"client": {"max_concurrency": 4}})
    with service.runner(WB_BATCH_LEASE_MS=5000):
        wait_until(lambda: service.get(batch)["request_counts"]["completed"] > 5, "some")
        service.stack.dev("stop", store)
        service.stack.dev("start", store)
        wait_until(lambda: service.call("GET", f"/batches/{batch}").status_code == 200, "answers")
        service.until(batch, "completed")
    check_whole(service, batch)
    assert set(service.upstream.state()["answered"].values()) == {1}
