# SPDX-License-Identifier: Apache-2.0
"""Jobs contract section 5, "Housekeeping": any planner does it, claimed, so that several do it once. What goes by which rule:
tests/store/test_housekeeping.c and test_chore.c."""
import re
from contextlib import ExitStack
from datetime import datetime, timezone

import pytest

from conftest import wait_until
from planning import Yard
from test_housekeeping import put_old


@pytest.fixture
def yard(stack):
    y = Yard(stack)
    y.empty()
    yield y
    y.close()


def rows_of(planners, chore):
    """What each planner says it did of a chore."""
    found = [re.findall(rf'msg="chore done" chore={chore} rows=(\d+)', p.text()) for p in planners]
    return [[int(n) for n in one] for one in found]


def month_after(n):
    now = datetime.now(timezone.utc)
    month = now.month - 1 + n
    return f"job_event_{now.year + month // 12}_{month % 12 + 1:02d}"


def partitions(stack):
    return {row[0] for row in stack.sql("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'job_event'::regclass")}


def end_of(yard, job, days_ago):
    yard.stack.call("POST", f"/api/v1/jobs/job_{job}/cancel", {})
    yard.stack.sql("UPDATE job SET finished_at = now() - %s * interval '1 day' WHERE id = %s::uuid", (days_ago, job))


def test_load_jobs_and_gallery_operations_that_nobody_needs_go_by_one_of_the_planners(yard):
    put_old(yard.stack)
    with ExitStack() as running:
        planners = [running.enter_context(yard.planner()).joined() for _ in range(3)]
        wait_until(lambda: sum(sum(n) for n in rows_of(planners, "housekeeping")) == 6, "one of each kind, by whoever")
        assert sum(map(len, rows_of(planners, "housekeeping"))) == 1
    assert yard.stack.sql("SELECT (SELECT count(*) FROM model_load_jobs) + (SELECT count(*) FROM load_job_claims)"
                          " + (SELECT count(*) FROM operation_control)")[0][0] == 0
    assert yard.stack.sql("SELECT id, status FROM gallery_operations") == [("stale", "failed")]


def test_beside_a_localai_its_tables_are_left_alone(yard):
    put_old(yard.stack)
    with yard.planner(WB_OPERATIONS_READ_ONLY="on") as p:
        wait_until(lambda: rows_of([p], "housekeeping") == [[2]], "the side tables")
    assert yard.stack.sql("SELECT count(*) FROM model_load_jobs")[0][0] == 2


def test_ended_jobs_and_old_events_go_and_partitions_are_made_ahead_by_one_of_the_planners(yard):
    stack = yard.stack
    old, young, live = yard.enqueue(3)
    end_of(yard, old, 91)
    end_of(yard, young, 89)
    stack.sql(f"DROP TABLE IF EXISTS {month_after(1)}")
    stack.sql("CREATE TABLE IF NOT EXISTS job_event_2020_01 PARTITION OF job_event FOR VALUES FROM ('2020-01-01Z') TO ('2020-02-01Z')")
    with ExitStack() as running:
        planners = [running.enter_context(yard.planner(WB_LOCAL_SLOTS="0")).joined() for _ in range(3)]
        for chore in ("event_partitions", "drop_events", "retire_jobs"):
            wait_until(lambda name=chore: any(rows_of(planners, name)), chore)
            assert sorted(rows_of(planners, chore)) == [[], [], [1]], chore
        holders = dict(stack.sql("SELECT name, holder FROM chore"))
        assert {"event_partitions", "drop_events", "retire_jobs", "housekeeping"} <= set(holders)
    assert {row[0] for row in stack.sql("SELECT id FROM job")} == {young, live}
    assert {month_after(0), month_after(1), "job_event_default"} <= partitions(stack)
    assert "job_event_2020_01" not in partitions(stack)


def test_retention_is_an_option_and_0_keeps_for_ever(yard):
    (job,) = yard.enqueue()
    end_of(yard, job, 5)
    with yard.planner(WB_PLANNER_KEEP_DAYS="0") as p:
        wait_until(lambda: yard.stack.sql("SELECT count(*) FROM chore WHERE name = 'housekeeping'")[0][0], "chores")
        assert not rows_of([p], "retire_jobs")[0]
    assert yard.state(job) == "cancelled"
    yard.stack.sql("DELETE FROM chore")
    with yard.planner(WB_PLANNER_KEEP_DAYS="4") as p:
        wait_until(lambda: rows_of([p], "retire_jobs") == [[1]], "the job")
