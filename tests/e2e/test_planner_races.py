# SPDX-License-Identifier: Apache-2.0
"""Jobs contract, section 6: several planners and users at once. Frozen leaders, the limit of a pool, cancels at any moment."""
import heapq
import os
import random
import signal
import time
from contextlib import ExitStack

import pytest

from conftest import wait_until
from planning import Fleet, Yard
from traffic import Traffic

LONG = pytest.mark.long


@pytest.fixture
def yard(stack):
    y = Yard(stack)
    y.empty()
    y.env["WB_LOCAL_SLOTS"] = "1000"
    yield y
    y.close()


def leader(yard):
    """(process, epoch) of whoever leads the default pool, None while nobody does."""
    rows = yard.stack.sql("SELECT l.holder_name, l.epoch FROM planner_lease l JOIN pool p ON p.id = l.pool_id"
                          " WHERE p.name = 'default' AND l.expires_at > clock_timestamp()")
    return (int(rows[0][0].rpartition("/")[2]), rows[0][1]) if rows else None


def plans_before(yard, epoch):
    """What was planned in epochs that are over, as far as it is committed."""
    return set(yard.stack.sql("SELECT job_id, at FROM job_event WHERE to_state = 1 AND epoch < %s", (epoch,)))


def taken_over(yard, frozen_pid, epoch):
    """Another leads: its epoch, and what the old ones had planned by then."""
    def probe():
        yard.hurry()
        now = leader(yard)
        return now is not None and now[0] != frozen_pid and now[1] > epoch and now[1]
    new = wait_until(probe, "another leader")
    return new, plans_before(yard, new)


def is_fenced(yard, planner, takeovers, told):
    """SIGCONT: it steps down, and whatever it had begun is not to be seen."""
    planner.send(signal.SIGCONT)
    wait_until(lambda: planner.text().count("steps down") > told, "the old leader to step down")
    for epoch, planned in takeovers:
        assert plans_before(yard, epoch) == planned, f"a plan from before epoch {epoch} was committed after it began"


@pytest.mark.parametrize("rounds, jobs", [(1, 15), pytest.param(50, 2000, marks=LONG)])
def test_a_leader_frozen_for_longer_than_its_lease_commits_no_plan(yard, rounds, jobs):
    """Wherever it happens to be. Jobs contract, section 5, "Decide"."""
    yard.pool("default", max_concurrent_provisioning=3)
    yard.enqueue(jobs)
    takeovers = []
    with ExitStack() as running:
        planners = {p.pid: p for p in (running.enter_context(yard.planner(WB_PLANNER_LEASE_MS=500)) for _ in range(3))}
        for _ in range(rounds):
            pid, epoch = wait_until(lambda: leader(yard), "a leader")
            told = planners[pid].text().count("steps down")
            planners[pid].send(signal.SIGSTOP)
            takeovers.append(taken_over(yard, pid, epoch))
            is_fenced(yard, planners[pid], takeovers, told)
        yard.all_end()
    assert 0 < yard.most_provisioning() <= 3
    for epoch, planned in takeovers:
        assert plans_before(yard, epoch) == planned
    print(f"\n{len(takeovers)} leaders frozen, {jobs} jobs, epoch {takeovers[-1][0]} at the end")


@pytest.mark.parametrize("point", ["plan.begin", "plan.commit"])
def test_a_leader_frozen_at_a_plan_wakes_up_to_find_that_it_counts_no_more(yard, point):
    """Just before it, or within: then it holds the row of the lease, and nobody could take over until Postgres ends its session."""
    yard.enqueue(10)
    mark, also = yard.mark(), yard.mark()
    with yard.planner(WB_FAULTS_SET=f"{point}=stop!{mark}") as frozen:
        wait_until(mark.exists, "the freeze")
        pid, epoch = wait_until(lambda: leader(yard), "the leader")
        assert pid == frozen.pid
        # The next one leads, and leaves something to plan for whoever thinks that it leads.
        with yard.planner(WB_PLANNER_LEASE_MS=60000, WB_FAULTS_SET=f"plan.begin=stop!{also}") as other:
            new, planned = taken_over(yard, pid, epoch)
            wait_until(also.exists, "the freeze of the other")
            assert planned == set() and yard.states() == {"queued": 10}
            is_fenced(yard, frozen, [(new, planned)], 0)
            assert yard.states() == {"queued": 10}
            other.send(signal.SIGCONT)
            yard.all_end()
            assert other.alive() and frozen.alive()
    assert plans_before(yard, new) == set()


@pytest.mark.parametrize("jobs", [100, pytest.param(2000, marks=LONG)])
def test_five_planners_never_provision_for_more_than_the_limit(yard, jobs):
    """At no moment of the audit trail, though leaders are killed meanwhile."""
    yard.pool("default", max_concurrent_provisioning=3)
    yard.enqueue(jobs)
    kills = 0
    with Fleet(yard, 5, WB_PLANNER_LEASE_MS=500, WB_PLANNER_CLAIM_MS=500) as fleet:
        def probe():
            nonlocal kills
            yard.hurry()
            fleet.tend()
            ended = yard.states().get("completed", 0)
            holder = leader(yard)
            if holder and kills < 3 and ended > jobs * kills / 5 and holder[0] in [p.pid for p in fleet.planners]:
                os.kill(holder[0], signal.SIGKILL)
                kills += 1
            return ended == jobs
        wait_until(probe, "all jobs to be completed", 600)
        lost = fleet.losses
    assert yard.most_provisioning() == 3
    yard.nothing_left()
    assert lost == kills == 3
    print(f"\n{jobs} jobs, at most 3 of them planned or preparing at any moment, {lost} leaders lost")


class Cancels:
    """Cancels of all jobs, each at a moment of its own."""

    def __init__(self, traffic, span_s):
        self.traffic, self.span_s, self.due = traffic, span_s, []

    def add(self, ids):
        for job in ids:
            heapq.heappush(self.due, (time.monotonic() + self.traffic.random.uniform(0, self.span_s), job))

    def act(self):
        while self.due and self.due[0][0] <= time.monotonic():
            answer = self.traffic.yard.stack.call("POST", f"/api/v1/jobs/job_{heapq.heappop(self.due)[1]}/cancel", {})
            assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("jobs", [200, pytest.param(10000, marks=LONG)])
def test_jobs_cancelled_at_random_moments_end_once_and_leave_nothing_outside(yard, jobs):
    """In the queue, with machines that do not run yet, with a batch that is being made, that runs or that has ended."""
    seed = random.randrange(10 ** 9)
    traffic = Traffic(yard, seed)
    traffic.cloud.order(boot_polls=2)
    cancels = Cancels(traffic, 2)
    print(f"\nseed {seed}")
    with Fleet(yard, 3, WB_PLANNER_SWEEP_S=3600) as fleet:  # which would hide what intents forget
        def probe():
            fleet.tend()
            cancels.act()
            live = traffic.drive()
            if len(traffic.kind) < jobs and live < 200:
                for kind in ("local", "cloud"):
                    cancels.add(traffic.add(kind, 10))
                traffic.add("cancelled", 5)  # those in a phase drawn by lot, so that the last ones are met, too
            return len(traffic.kind) >= jobs and not cancels.due and live == 0
        wait_until(probe, "all jobs to end", 1200)
        launched = traffic.nothing_is_left()
    ends = traffic.each_ended_once()
    assert set(ends) <= {"cancelled", "completed"} and ends["cancelled"] > jobs / 4, ends
    states = yard.stack.sql("SELECT count(DISTINCT from_state) FROM job_event WHERE event = 18")[0][0]
    assert states > 3, "cancels in too few states to tell"
    assert not [b for made in traffic.batches_by_job().values() if len(made) > 1 for b in made]
    print(f"{len(traffic.kind)} jobs cancelled in {states} states: {ends}, {len(traffic.batches_by_job())} batches, {launched} machines")
