# SPDX-License-Identifier: Apache-2.0
"""The reason Weighbridge exists: a copy in progress is in every answer exactly once, from whichever
worker, its progress never goes back, and it is gone when it ended. Operations contract, sections 1, 3."""
import os
import threading
import time

import pytest
import requests

from conftest import wait_until

SIZE = 256 << 20
CHUNK = 1 << 20
KEY = "hf/llama@70b:q4"
ID = "staging:" + KEY
POLLERS, PERIOD_S = 4, 0.2  # 20 polls a second


class Pollers:
    """Polls from several connections until told to stop; keeps (began, ended, status, entries)."""

    def __init__(self, stack):
        self.stack, self.polls, self.stop = stack, [], threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(i,)) for i in range(POLLERS)]

    def _run(self, i):
        session = requests.Session()
        due = time.monotonic() + i * PERIOD_S / POLLERS
        while not self.stop.wait(max(0, due - time.monotonic())):
            due += PERIOD_S
            began = time.monotonic()
            answer = self.stack.get("/api/operations", session=session)
            body = answer.json()
            self.polls.append((began, time.monotonic(), answer.status_code,
                               body.get("operations"), answer.headers.get("X-Degraded")))

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for t in self.threads:
            t.join()


class Transfer:
    """Copies a real file, claims the load, reports progress as a sender does, and retries what fails."""

    def __init__(self, stack, tmp_path, seconds):
        self.stack, self.seconds = stack, seconds
        self.source, self.target = tmp_path / "weights.gguf", tmp_path / "landed.gguf"
        block = os.urandom(CHUNK)
        with open(self.source, "wb") as out:
            for _ in range(SIZE // CHUNK):
                out.write(block)
        self.reports = []
        self.shown = self.ended = None

    def run(self, midway):
        token = self.stack.claim(KEY)
        self._report(token, 0)
        self.shown = time.monotonic()
        began, done, fired, reported = time.monotonic(), 0, None, 0.0
        with open(self.source, "rb") as src, open(self.target, "wb") as dst:
            while chunk := src.read(CHUNK):
                dst.write(chunk)
                done += len(chunk)
                ahead = began + self.seconds * done / SIZE - time.monotonic()
                if ahead > 0:
                    time.sleep(ahead)  # the rate of the link
                if done >= SIZE // 4 and fired is None:
                    fired = threading.Thread(target=midway)
                    fired.start()
                if time.monotonic() - reported > 0.1:
                    self._report(token, done)
                    reported = time.monotonic()
        fired.join()
        assert self.target.stat().st_size == SIZE
        wait_until(lambda: self.stack.load(KEY, token, "DELETE").status_code == 204, "the end")
        self.ended = time.monotonic()

    def _report(self, token, done):
        answer = self.stack.load(KEY, token, state="staging", node_id="node-1", node_name="gpu-1",
                                 bytes_sent=done, total_bytes=SIZE, file_index=1, total_files=1)
        self.reports.append(answer.status_code)


def watch(stack, tmp_path, midway, seconds=6, steps_back=0):
    transfer = Transfer(stack, tmp_path, seconds)
    with Pollers(stack) as pollers:
        transfer.run(midway)
        rest = time.monotonic() + 1.5
        wait_until(lambda: time.monotonic() > rest, "the polls after the end")
    during = [p for p in pollers.polls if p[0] > transfer.shown and p[1] < transfer.ended - 0.5]
    after = [p for p in pollers.polls if p[0] > transfer.ended]
    assert len(during) >= 10 * seconds and after

    for began, _, status, entries, _ in during:
        at = f"{began - transfer.shown:.3f} s after the first report"
        assert status == 200, at
        assert [e["id"] for e in entries].count(ID) == 1, at
    progress = [e["progress"] for p in sorted(during, key=lambda p: p[0]) for e in p[3] if e["id"] == ID]
    # Only polls that do not overlap can be told apart in time.
    ordered, last_end, back = [], 0.0, 0
    for p in sorted(during, key=lambda p: p[0]):
        if p[0] >= last_end:
            ordered.append(next(e["progress"] for e in p[3] if e["id"] == ID))
            last_end = p[1]
    back = sum(b < a for a, b in zip(ordered, ordered[1:]))
    assert back <= steps_back, ordered
    assert max(progress) > 80 and len(set(progress)) > 10
    for began, _, status, entries, _ in after:
        assert status == 200 and entries == [], f"{began - transfer.ended:.3f} s after the end"
    return transfer, pollers


def nothing():
    pass


def test_copy_never_flickers(stack, tmp_path):
    assert len(stack.processes()[1]) == 2
    transfer, pollers = watch(stack, tmp_path, nothing)
    assert set(transfer.reports) == {200}
    assert {p[4] for p in pollers.polls} == {None}


def test_copy_never_flickers_while_a_worker_is_killed(stack, tmp_path):
    watch(stack, tmp_path, stack.kill_worker)
    wait_until(lambda: len(stack.processes()[1]) == 2, "the worker's successor")


@pytest.mark.touches("operations")
def test_copy_never_flickers_while_a_worker_is_frozen(stack, tmp_path):
    """Also the one that holds the refresher's lease: another takes over."""
    pids = stack.processes()[1]

    def freeze_each():
        for pid in pids:
            os.kill(pid, 19)
            time.sleep(1)  # the pace of the freezing: several leases long
            os.kill(pid, 18)

    transfer = Transfer(stack, tmp_path, 6)
    # A request that a frozen worker has taken waits for it; what is answered must be right all the same.
    with Pollers(stack) as pollers:
        transfer.run(freeze_each)
    during = [p for p in pollers.polls if p[0] > transfer.shown and p[1] < transfer.ended]
    assert all([e["id"] for e in p[3]].count(ID) == 1 for p in during if p[2] == 200)
    assert sum(p[2] == 200 for p in during) > 0.9 * len(during)


def test_copy_never_flickers_during_a_reload(stack, tmp_path):
    old = set(stack.processes()[1])
    watch(stack, tmp_path, stack.reload)
    assert not old & set(wait_until(lambda: (w := stack.processes()[1]) and not old & set(w) and w,
                                    "the new generation alone", 60))


@pytest.mark.touches("redis")
def test_copy_never_flickers_while_redis_restarts(stack, tmp_path):
    """Losing Redis may step back once, to a value the row held."""
    def restart():
        stack.dev("stop", "redis")
        stack.dev("start", "redis")

    watch(stack, tmp_path, restart, steps_back=1)


@pytest.mark.touches("postgres")
def test_copy_never_flickers_while_postgres_is_down_for_10_s(stack, tmp_path):
    def outage():
        stack.dev("stop", "postgres")
        end = time.monotonic() + 10
        wait_until(lambda: time.monotonic() > end, "ten seconds")
        stack.dev("start", "postgres")

    transfer, pollers = watch(stack, tmp_path, outage, seconds=20)
    assert "postgres" in {p[4] for p in pollers.polls}
    assert pollers.polls[-1][4] is None, "back by itself"
    assert transfer.reports.count(200) > 0.9 * len(transfer.reports), "the overlay carries the reports"
