# SPDX-License-Identifier: Apache-2.0
"""Jobs contract, section 6: kill -9 at every point between commits. Planners die at each point that the program has, one after the
other, with jobs in every phase; whatever they had in hand is finished by others, once."""
import itertools
import subprocess
import tempfile
from pathlib import Path

import pytest
import requests

from conftest import HANG_S, wait_until
from planning import Fleet, Yard
from program import binary
from traffic import KINDS, Traffic

PATIENCE_S = 180
LONG_S = 1200  # for what has no other end than that it is done


@pytest.fixture
def yard(stack):
    y = Yard(stack)
    y.empty()
    yield y
    y.close()


@pytest.fixture
def marks():
    with tempfile.TemporaryDirectory(prefix="wbk-", dir="/tmp") as folder:
        yield Path(folder)


def points_of(stack):
    done = subprocess.run([binary(stack, "weighbridge-planner"), "--dump-faults"], capture_output=True, text=True, timeout=HANG_S, check=True)
    return [line.split("\t")[0] for line in done.stdout.splitlines()]


def once_each(points, marks):
    return " ".join(f"{p}=kill!{marks}/{p}" for p in points)


def died_at(marks):
    return {mark.name for mark in marks.iterdir()}


def storm(traffic, fleet, over, live, patience_s=PATIENCE_S):
    """Keeps `live` jobs of all kinds alive until it is over()."""
    kinds = itertools.cycle(KINDS)

    def probe():
        fleet.tend()
        for _ in range(live - traffic.drive()):
            traffic.add(next(kinds))
        return over()
    wait_until(probe, "death at every point", patience_s)


def settle(traffic, fleet, dedupe):
    """All that there is comes to its end, though no hand helps those that have died."""
    traffic.all_end(fleet.tend, PATIENCE_S)
    launched = traffic.nothing_is_left()
    ends = traffic.each_ended_once()
    batches = traffic.one_batch_each() if dedupe else len(traffic.yard.batches.state()["batches"])
    return f"{len(traffic.kind)} jobs ({ends}), {batches} batches, {launched} machines, {fleet.losses} planners lost"


def test_kill_9_at_every_point_leaves_no_machine_and_one_batch_for_each_job(yard, marks):
    points = points_of(yard.stack)
    traffic = Traffic(yard)
    yard.batches.order(dedupe=True)
    traffic.cloud.order(delay_visible=1)
    with Fleet(yard, 3, WB_FAULTS_SET=once_each(points, marks)) as fleet:
        storm(traffic, fleet, lambda: died_at(marks) == set(points), 18)
        told = settle(traffic, fleet, True)
        assert len(points) / 2 < fleet.losses <= len(points)  # two threads may come to their points before the process is dead
    print(f"\n{len(points)} points, {told}")


def twin_of(yard, batch):
    """As if the service had been asked twice."""
    body = {k: batch[k] for k in ("input_file_id", "endpoint", "completion_window", "aibrix")}
    return requests.post(yard.batches.url + "/v1/batches", json=body, timeout=HANG_S).json()["id"]


def test_where_the_service_makes_what_it_is_asked_for_one_batch_at_most_lives(yard, marks):
    """It has made a batch, and whoever asked is dead: the search finds it. And one that was made twice is ended."""
    points = [p for p in points_of(yard.stack) if p.startswith(("submit.", "watch.land"))]
    traffic = Traffic(yard)
    yard.batches.order(auto=False)
    with Fleet(yard, 3, WB_FAULTS_SET=once_each(points, marks)) as fleet:
        def probe():
            fleet.tend()
            if len(traffic.live()) < 20 and died_at(marks) != set(points):
                traffic.add("local")
            traffic.drive()
            return died_at(marks) == set(points) and all(batch for *_, batch in traffic.live())
        wait_until(probe, "death at every point", PATIENCE_S)
        twin, = traffic.add("local")
        wait_until(lambda: fleet.tend() or traffic.drive() and yard.batches_of(twin), "its batch")
        first, = yard.batches_of(twin)
        second = twin_of(yard, first)
        wait_until(lambda: yard.hurry() or second in [b["id"] for b in yard.batches_of(twin) if b["status"] == "cancelling"],
                   "the end of the younger")
        alive = {job: [b for b in made if b["status"] == "scheduling"] for job, made in traffic.batches_by_job().items()}
        assert set(alive) == set(traffic.kind) and all(len(made) == 1 for made in alive.values()), alive
        yard.batches.order(auto=True)
        told = settle(traffic, fleet, False)
    print(f"\n{len(points)} points, {told}")


@pytest.mark.long
def test_three_deaths_at_each_point_by_itself(yard, marks):
    points = points_of(yard.stack)
    traffic = Traffic(yard)
    yard.batches.order(dedupe=True)
    traffic.cloud.order(delay_visible=1)
    losses = 0
    for point in points:
        deaths = {f"{point}.{n}" for n in range(3)}
        faults = " ".join(f"{point}=kill!{marks}/{mark}" for mark in sorted(deaths))
        if point in ("submit.find", "submit.found"):  # reached when the creation is in doubt
            yard.batches.fault("POST /v1/batches", "drop_after", times=-1)
        with Fleet(yard, 3, WB_FAULTS_SET=faults) as fleet:
            storm(traffic, fleet, lambda wanted=deaths: died_at(marks) >= wanted, 30)
            yard.batches.order(clear=True)
            told = settle(traffic, fleet, True)
            assert 0 < fleet.losses <= len(deaths), point
            losses += fleet.losses
        print(f"\n{point}: {told}")
    print(f"{len(points)} points, {losses} planners lost")


@pytest.mark.long
def test_deaths_at_any_point_by_chance(yard):
    traffic = Traffic(yard)
    yard.batches.order(dedupe=True)
    with Fleet(yard, 5, WB_FAULTS_SET="*=kill@0.01") as fleet:
        storm(traffic, fleet, lambda: len(traffic.kind) >= 1000, 60, LONG_S)
        fleet.env.pop("WB_FAULTS_SET")
        fleet.renew()
        told = settle(traffic, fleet, True)
        assert fleet.losses > 20
    print(f"\n{told}")
