# SPDX-License-Identifier: Apache-2.0
"""weighbridge-agent run beside the real web server and the handler: artifacts contract, sections 3 and 4."""
import os

import pytest

from agent_daemon import NODE, Daemon, Gate, assign, assignment, awaits
from artifacts import MIB, Version
from conftest import wait_until

SHARDS = 6


def some_version(stack, **kw):
    return Version(stack, files={"a/weights": os.urandom((SHARDS - 1) * MIB + 77), "config.json": b"{}", "empty": b""}, **kw).publish()


@pytest.fixture
def site(stack):
    stack.sql("TRUNCATE node CASCADE")
    return stack


@pytest.fixture
def gate(site):
    made = Gate(site)
    yield made
    made.close()


@pytest.fixture
def daemon(site, gate, tmp_path):
    made = Daemon(site, tmp_path / "node", gate.url).up()
    made.says("registered")
    yield made
    gate.let()
    made.down()


def test_an_assignment_lands_and_is_seen_steadily_meanwhile(site, gate, daemon):
    v = some_version(site)
    key = f"{v.artifact}@{v.version}:node"
    number = assign(site, v)
    total = v.manifest["total_bytes"]
    wait_until(lambda: site.entry(key), "the copy")
    seen = []
    for n in range(1, SHARDS + 1):
        gate.let(1)
        least = (n - 1) * MIB if n > 1 else 0 # the small ones may have come first
        while not seen or seen[-1] < least:
            shown = site.entry(key)
            assert shown is not None, "it must be there in every poll while it runs"
            assert shown["taskType"] == "staging" and shown["nodeName"] == "node" and shown["totalBytes"] == total
            seen.append(shown.get("currentBytes", 0))
    assert seen == sorted(seen), "it never goes back"
    gate.let()
    wait_until(lambda: site.entry(key) is None, "its end")
    done = awaits(site, number, "landed")
    assert done["bytes"] == total
    assert daemon.content("v1", v.artifact) == v.files
    [spread] = site.get(f"/api/v1/artifacts/{v.artifact}/distribution").json()["versions"]
    assert [(n["node"], n["rack"], n["state"], n["other_digest"]) for n in spread["nodes"]] == [("node", "r1", "landed", False)]
    assert site.sql("SELECT bytes_fetched, bytes_avoided FROM receipt") == [(total, 0)]
    told = wait_until(lambda: site.get(NODE).json()["versions"], "the node says so itself")
    assert told == [{"artifact": v.artifact, "version": "v1", "digest": v.digest, "state": "landed"}]
