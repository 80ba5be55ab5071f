# SPDX-License-Identifier: Apache-2.0
"""What the service does when its surroundings change under it: files that are truncated, removed or broken, workers
that are killed. It goes on with what it has, and puts right what it can. Design, "Processes"."""
import os
import signal
from contextlib import contextmanager

import pytest

from conftest import wait_until
from program import Program, answer_of, ask, begin, connect, whole_request
from test_program import cgi

pytestmark = pytest.mark.touches("operations")


def log_of(stack):
    return stack.var / "log" / "operations.log"


@contextmanager
def nobody_dies(stack):
    """The same processes before and after."""
    before = stack.processes()
    yield
    assert (stack.processes()[0], sorted(stack.processes()[1])) == (before[0], sorted(before[1]))


def first_reports_are_seen(stack, name, n=10):
    """By whichever worker is asked, at once: they share what tells a change."""
    for i in range(n):
        assert stack.stage(f"{name}{i}").status_code == 204
        assert stack.entry(f"{name}{i}")


def is_shared_with_cgi(stack):
    """A CGI process finds the service's memory: what it counts is counted there."""
    name = 'weighbridge_http_requests_total{code="4xx"}'
    before = stack.metric(name)
    assert cgi(stack, "GET", "/nowhere")[0] == 404
    return stack.metric(name) > before


# --- files that somebody else changes ---

def test_truncating_what_lies_in_the_runtime_folder_kills_nobody(stack):
    stack.stage("k")
    assert stack.entry("k")
    with nobody_dies(stack):
        for path in (stack.var / "run").glob("operations.*"):
            if path.is_file():
                os.truncate(path, 0)
        first_reports_are_seen(stack, "a")
        wait_until(lambda: is_shared_with_cgi(stack), "the shared memory to be found again")
        for path in (stack.var / "run").glob("operations.snap.*"):
            os.truncate(path, 40)
        first_reports_are_seen(stack, "b")


# --- what is counted of killed workers ---

def connections(program, token):
    """(open, of these waiting) as the service has it; one is the question's own."""
    status, text = ask(program.socket, "/metrics", token=token)
    assert status == 200
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return int(values["weighbridge_fcgi_connections"]), int(values["weighbridge_fcgi_connections_waiting"])


def test_connections_of_killed_workers_are_counted_no_more(stack, tmp_path):
    token, kept = stack.env["WB_VIEWER_TOKEN"], []
    with Program(stack, WB_RUNTIME_DIR=str(tmp_path / "run")) as program:
        program.ready()

        def are(*expected):
            return lambda: connections(program, token) == expected
        wait_until(are(1, 0), "rest")
        for _ in range(20):
            idle, begun = connect(program.socket), connect(program.socket)
            kept += idle, begun
            idle.sendall(whole_request("/healthz", keep=True))
            assert answer_of(idle)[0] == 200
            begun.sendall(begin())
        wait_until(are(41, 20), "all to be counted")
        for pid in program.workers():
            os.kill(pid, signal.SIGKILL)
        wait_until(are(1, 0), "what the killed ones had to be forgotten")
        for s in kept:
            s.close()
        wait_until(are(1, 0), "rest")
