# SPDX-License-Identifier: Apache-2.0
"""The planner with the provisioner `local` and the double of the batch service. Jobs contract, sections 2 and 5."""
import pytest

from conftest import wait_until
from planning import Yard


@pytest.fixture
def yard(stack):
    y = Yard(stack)
    y.empty()
    yield y
    y.close()


def test_a_job_runs_its_course(yard):
    with yard.planner() as p:
        job = yard.create(name="first")
        yard.reaches(job, "completed")
        history = yard.history(job)
        assert history[:4] == ["queued", "planned", "resource_preparing", "submitting"]
        assert history[-1] == "completed"
        yard.nothing_left()
    shown = yard.job(job)
    assert shown["status"] == "completed" and shown["batchId"] == yard.batches_of(job)[0]["id"]
    assert len(yard.batches_of(job)) == 1
