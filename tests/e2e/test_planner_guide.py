# SPDX-License-Identifier: Apache-2.0
"""docs/planner.md says what is: its lines are run against a site as it describes, with the planners that ./dev runs; its crash
points and the guide's metrics are compared with the program's."""
import os
import re
import signal
from contextlib import contextmanager

import pytest

from conftest import ROOT, wait_until
from guide import check_answer, metrics_of, metrics_told, page, questions
from planning import Yard
from program import freeze

GUIDE = page("planner.md")
QUESTIONS = questions(GUIDE)


class Site:
    """What the lines of the page are asked on; a method for what must be the case before one of them."""

    def __init__(self, stack):
        self.stack, self.yard, self.env = stack, Yard(stack), {}
        self.environ = dict(stack.environ)
        self.yard.empty()
        stack.sql("DELETE FROM pool WHERE name <> 'default'")
        self.start(WB_LOCAL_SLOTS="0", WB_PLANNER_POLL_S="1", WB_PLANNER_CLAIM_MS="1500", WB_BATCH_URL=self.yard.batches.url)

    def start(self, **env):
        self.stack.environ.update(env)
        self.stack.dev("stop", "planner")
        self.stack.dev("start", "planner")

    def close(self):
        self.stack.environ = self.environ
        self.yard.batches.order(clear=True)
        self.stack.dev("stop", "planner")
        self.yard.close()

    def planner(self):
        return self.stack.get("/api/v1/planner").json()["pools"][0]

    def before(self, number):
        prepare = getattr(self, f"before_{number}", None)
        return prepare() if prepare else {}

    def before_1(self):
        self.job = self.yard.create()
        wait_until(lambda: self.yard.history(self.job)[-2:] == ["planned", "queued"], "no capacity")
        return {}

    def before_5(self):
        self.start(WB_LOCAL_SLOTS="2")
        self.yard.reaches(self.job, "completed")
        return {}

    def before_6(self):
        self.yard.nothing_left()
        return {}

    def before_9(self):
        self.yard.batches.order(auto=False)
        self.job = self.yard.create()
        self.yard.reaches(self.job, "scheduling")
        self.yard.batches.fault(".*", "drop", times=-1)
        assert self.stack.call("POST", f"/api/v1/jobs/{self.job}/cancel").status_code == 200
        wait_until(lambda: self.yard.hurry() or self.yard.job(self.job)["errorMessage"], "the error")
        return {}

    def before_11(self):
        self.stack.sql("INSERT INTO intent (job_id, pool_id, kind, subject, idem_key, next_at, error, attempts) SELECT j, id, 3, j || ':1', 'test',"
                       " now() + interval '1 hour', 'the key was withdrawn', 7 FROM pool, gen_random_uuid() j WHERE name = 'default'")
        return {}

    def before_14(self):
        return {"HOLDER": wait_until(lambda: self.planner()["leaseholder"], "a leader")}

    def before_15(self):
        names = ("housekeeping", "retire_jobs", "event_partitions", "drop_events")
        wait_until(lambda: self.stack.sql("SELECT count(*) FROM chore WHERE name IN %s", (names,))[0][0] == 4, "chores")
        return {}


@pytest.fixture(scope="module")
def site(_stack):
    _stack.empty()
    place = Site(_stack)
    try:
        yield place
    finally:
        place.close()


# In the order of the page: later lines find what earlier ones have done.
@pytest.mark.parametrize("number, question, command, answer", QUESTIONS, ids=[number for number, *_ in QUESTIONS])
def test_the_line_answers_its_question(site, number, question, command, answer):
    assert command.count("\n") == 1 and command.startswith(("curl ", "psql "))
    env = site.before(number)
    check_answer(site.stack, question, command, answer, JOB=site.job, **env)


@contextmanager
def frozen(pid):
    freeze([pid])
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_fenced_planner_decides_and_finds_out_nothing_any_more(site):
    """The line of question 14, with a holder that does not move and whose leases would last for the whole test."""
    def steps_down():
        return (site.stack.var / "log" / "planner.log").read_text(errors="replace").count("steps down")
    site.start(WB_PLANNER_LEASE_MS="60000", WB_PLANNER_CLAIM_MS="60000")
    site.yard.batches.order(clear=True)
    wait_until(lambda: site.planner()["leaseholder"], "a leader")
    before, told = site.planner(), steps_down()
    with frozen(int(before["leaseholderName"].rpartition("/")[2])):
        job = site.yard.create()
        command, answer = next((c, a) for number, _, c, a in QUESTIONS if number == "14")
        check_answer(site.stack, "fence", command, answer, JOB=job, HOLDER=before["leaseholder"])
        with site.yard.planner() as other:  # the service's other process would do, but looks every 20 s here
            wait_until(lambda: site.planner()["leaseholder"] not in ("", before["leaseholder"]), "another leader")
            assert int(site.planner()["epoch"]) > int(before["epoch"]) + 1
            site.yard.reaches(job, "scheduling")
            assert other.alive()
    wait_until(lambda: steps_down() > told, "the old leader to step down")


def test_every_crash_point_is_on_the_page_with_its_place():
    source = (ROOT / "lib" / "base" / "fault_points.def").read_text(encoding="utf8")
    points = dict(re.findall(r'^FAULT\(\w+, "([^"]+)", "([^"]+)"\)', source, re.M))
    assert points and len(points) == len(re.findall(r"^FAULT\(", source, re.M))
    table = GUIDE.split("## When a process dies")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([a-z.]+)` \| (.*?) \| (.+) \|$", table, re.M)
    assert {name: where for name, where, _ in rows} == points
    assert len(rows) == len(points) and all(what.strip() for *_, what in rows)


def test_time_outs_of_provisioners_are_as_the_page_says():
    said = dict(re.findall(r"^\| `(\w+)` \| (\d+ (?:s|min)) \|", GUIDE, re.M))
    seconds = {name: int(n) * (60 if unit == "min" else 1) for name, (n, unit) in ((k, v.split()) for k, v in said.items())}
    sources = [p.read_text() for p in (ROOT / "lib" / "provision").glob("*.c")]
    told = {re.search(r'\.type = "(\w+)"', s)[1]: int(re.search(r"\.ready_s = (\d+)", s)[1]) for s in sources if ".ready_s = " in s}
    assert seconds == told


def test_every_metric_of_the_planner_is_in_the_guide_with_its_meaning_and_what_to_do(site):
    guide = page("operations.md")
    own = metrics_of(guide, "Of weighbridge-planner")
    assert metrics_told(site.stack.get("/planner/metrics")) == {**metrics_of(guide, "Of every program"), **own}
    table = guide.split("### Of weighbridge-planner\n")[1]
    assert len(re.findall(r"^\| `\w+` \|[^|]*\|[^|]*\|[^|]*\| \S[^|]* \|$", table, re.M)) == len(own)
