# SPDX-License-Identifier: Apache-2.0
"""docs/artifacts.md says what is: its lines are run against a site and on a node as it describes."""
import os
from pathlib import Path

import pytest

from agent import AGENT
from agent_daemon import Daemon, assign
from artifacts import MIB, Version, empty_store
from conftest import wait_until
from guide import check_answer, page, questions

QUESTIONS = questions(page("artifacts.md"))


@pytest.fixture(scope="module")
def site(_stack, tmp_path_factory):
    _stack.empty()
    empty_store(_stack)
    node = Daemon(_stack, tmp_path_factory.mktemp("guide") / "node", WB_AGENT_NODE="gpu-1", WB_AGENT_TOKEN=_stack.env["WB_ADMIN_TOKEN"],
                  WB_AGENT_CAPACITY_BYTES=str(2 * MIB)).up()
    node.says("registered")
    for version, size, state in (("v1", MIB, "landed"), ("v2", 3 * MIB, "failed")):
        v = Version(_stack, {"weights": os.urandom(size)}, artifact="llama", version=version).publish()
        assign(_stack, v, "gpu-1")
        wait_until(lambda s=state: s in {a["state"] for a in _stack.get("/api/v1/nodes/gpu-1/assignments").json()["assignments"]}, state)
    assert _stack.call("PUT", "/api/v1/nodes/gpu-9", {"rack": "r1"}).status_code == 200
    _stack.sql("UPDATE node SET seen_at = now() - interval '61 seconds' WHERE name = 'gpu-9'")
    assert _stack.stage("llama@v3:gpu-2", node_name="gpu-2", bytes_sent=50, total_bytes=100).status_code == 204
    yield _stack, node
    node.down()


# In the order of the page: later lines change what earlier ones show.
@pytest.mark.parametrize("number, question, command, answer", QUESTIONS, ids=[number for number, *_ in QUESTIONS])
def test_the_line_answers_its_question(site, number, question, command, answer):
    stack, node = site
    assert command.count("\n") == 1
    check_answer(stack, question, command, answer, PATH=f"{Path(AGENT).parent}:/usr/bin:/bin", WB_AGENT_ROOT=str(node.root),
                 WB_AGENT_LOG=str(node.log), WB_CONFIG="/dev/null")
