# SPDX-License-Identifier: Apache-2.0
"""docs/publishing.md says what is: its lines are run against a site as it describes, its metrics compared."""
import pytest

from artifacts import Version, empty_store
from guide import check_answer, metrics_of, metrics_told, page, questions

GUIDE = page("publishing.md")
QUESTIONS = questions(GUIDE)


@pytest.fixture(scope="module")
def site(_stack):
    _stack.empty()
    empty_store(_stack)
    Version(_stack, {"config.json": b"hello world"}, artifact="llama").publish()
    Version(_stack, {"config.json": b"other words"}, artifact="llama", version="v2").announce()
    assert _stack.call("PUT", "/api/v1/nodes/gpu-1", {"rack": "r1"}).status_code == 200
    return _stack


# In the order of the page: later lines change what earlier ones show.
@pytest.mark.parametrize("number, question, command, answer", QUESTIONS, ids=[number for number, *_ in QUESTIONS])
def test_the_line_answers_its_question(site, number, question, command, answer):
    assert command.count("\n") == 1 and command.startswith("curl ")
    check_answer(site, question, command, answer)


def test_every_metric_is_in_the_guide_with_its_meaning(site):
    every = metrics_of(page("operations.md"), "Of every program")
    assert metrics_told(site.get("/artifacts/metrics")) == {**every, **metrics_of(GUIDE, "Of weighbridge-artifacts")}
