# SPDX-License-Identifier: Apache-2.0
"""What the tests of gallery operations ask the stack."""
import json

import redis

from conftest import HANG_S, wait_until


def jobs(stack):
    return {e["jobID"] for e in stack.operations()}


def two_more_snapshots(stack):
    seen = stack.metric("weighbridge_snapshots_total")
    wait_until(lambda: stack.operations() is not None and stack.metric("weighbridge_snapshots_total") > seen + 2,
               "two more snapshots")


def history(stack, **kw):
    answer = stack.get("/api/operations/history", **kw)
    assert answer.status_code == 200, answer.text
    assert list(answer.json()) == ["operations"]
    return answer.json()["operations"]


def outcome(stack, job):
    found = [e for e in history(stack) if e["jobID"] == job]
    return found[0]["outcome"] if found else None


def row(stack, job, columns):
    return stack.sql(f"SELECT {columns} FROM gallery_operations WHERE id = %s", [job])[0]


def control(stack, job):
    answer = stack.get(f"/api/operations/{job}/control")
    assert answer.status_code == 200 and list(answer.json()) == ["control"], answer.text
    return answer.json()["control"]


class listening:
    """The channel wb:control; the value is a function that waits for the next message."""

    def __init__(self, stack):
        self.pubsub = redis.Redis(unix_socket_path=stack.env["WB_REDIS"].removeprefix("unix:"),
                                  socket_timeout=HANG_S).pubsub(ignore_subscribe_messages=True)

    def __enter__(self):
        self.pubsub.subscribe("wb:control")
        wait_until(lambda: self.pubsub.get_message(timeout=1) is None and self.pubsub.subscribed, "the subscription")
        return lambda: json.loads(wait_until(lambda: self.pubsub.get_message(timeout=1), "a message")["data"])

    def __exit__(self, *_):
        self.pubsub.close()
