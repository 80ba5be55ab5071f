# SPDX-License-Identifier: Apache-2.0
"""What the service does when its surroundings change under it: files that are truncated, removed or broken, workers
that are killed. It goes on with what it has, and puts right what it can. Design, "Processes"."""
import hashlib
import os
import re
import shutil
import signal
import socket
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from conftest import wait_until
from program import Program, answer_of, ask, begin, connect, freeze, signal_all, whole_request
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


def successors(program, old):
    """Two workers, none of them of `old`."""
    return wait_until(lambda: len(w := program.workers()) == 2 and not set(w) & set(old) and w, "successors")


def kill_workers(program):
    """All at once; returns when their successors are ready."""
    old, ready = program.workers(), program.text().count('msg="worker ready"')
    signal_all(signal.SIGKILL, old)
    successors(program, old)
    program.ready(ready + 2)


def is_answered(path, uri="/healthz", **kw):
    with suppress(OSError, AssertionError):
        return ask(path, uri, **kw)[0] == 200
    return False


def test_a_removed_socket_is_there_again_at_once(stack, tmp_path):
    """Within about a second, and what is connected goes on."""
    token = stack.env["WB_VIEWER_TOKEN"]
    with Program(stack, WB_RUNTIME_DIR=str(tmp_path / "run")) as program, Program(
            stack, WB_RUNTIME_DIR=str(tmp_path / "run")) as beside:
        program.ready()
        beside.ready()
        for stale in (False, True):
            old = [*program.workers(), *beside.workers()]
            with connect(program.socket) as kept:
                kept.sendall(whole_request("/healthz", keep=True))
                assert answer_of(kept)[0] == 200
                program.socket.unlink()
                if stale:
                    with socket.socket(socket.AF_UNIX) as dead:
                        dead.bind(str(program.socket))
                wait_until(lambda: is_answered(program.socket), "somebody who listens", 5)
                kept.sendall(whole_request("/healthz", keep=True))
                assert answer_of(kept)[0] == 200
            wait_until(lambda o=old: not set(o) & {*program.workers(), *beside.workers()}, "both with new workers")
        assert program.text().count("listening on a new one") + beside.text().count("listening on a new one") == 2
        freeze([program.pid, *program.workers()])  # the one beside it has the new one too
        wait_until(lambda: is_answered(program.socket, "/api/operations", token=token), "an answer")


def test_a_removed_runtime_folder_is_made_again(stack, tmp_path):
    token, folder = stack.env["WB_VIEWER_TOKEN"], tmp_path / "run"
    folder.mkdir()
    folder.chmod(0o751)
    with Program(stack, WB_RUNTIME_DIR=str(folder)) as program:
        program.ready()

        def serves():
            return is_answered(program.socket, "/api/operations", token=token)
        wait_until(serves, "an answer")
        shutil.rmtree(folder)
        wait_until(serves, "an answer after the folder was removed", 5)
        wait_until(lambda: list(folder.glob("operations.snap.*")), "snapshots")
        wait_until(lambda: (folder / "operations.shared").exists(), "the name of the shared memory")
        assert folder.stat().st_mode & 0o7777 == 0o751
        assert program.socket.stat().st_mode & 0o7777 == 0o660


def test_what_lies_at_the_sockets_place_is_left_alone(stack, tmp_path):
    with Program(stack, WB_RUNTIME_DIR=str(tmp_path / "run")) as program:
        program.ready()
        program.socket.unlink()
        program.socket.write_text("mine")
        wait_until(lambda: "is not a socket" in program.text(), "a line in the log")
        assert program.socket.read_text() == "mine"
        program.socket.unlink()
        wait_until(lambda: is_answered(program.socket), "somebody who listens")


# --- the configuration that counts ---

def test_after_a_refused_reload_killed_workers_come_back_as_they_were(stack, tmp_path):
    ini = tmp_path / "own.ini"
    good = (stack.var / "weighbridge.ini").read_text()
    ini.write_text(good)
    with Program(stack, args=["--config", str(ini)], WB_RUNTIME_DIR=str(tmp_path / "run")) as program:
        program.ready()
        ini.write_text(good + "colour = blue\n")
        os.kill(program.pid, signal.SIGHUP)
        wait_until(lambda: "the old one stays" in program.text(), "the failure")
        kill_workers(program)
        ini.unlink()
        kill_workers(program)
        assert ask(program.socket, "/healthz")[0] == 200
        assert program.text().count("no such key") <= 2, "only the reload's workers read the broken file"
        ini.write_text(good)
        old = program.workers()
        os.kill(program.pid, signal.SIGHUP)
        wait_until(lambda: "msg=\"generation ready\" generation=3" in program.text(), "a reload that works")
        successors(program, old)


def test_secrets_and_tokens_change_by_a_reload_only(stack, tmp_path):
    tokens, url = tmp_path / "tokens", tmp_path / "url"
    old, new = "old-token-of-a-test", "new-token-of-a-test"

    def line(token):
        return f"{hashlib.sha256(token.encode()).hexdigest()} viewer someone\n"
    tokens.write_text(line(old))
    url.write_text(stack.env["WB_PGURL"] + "\n")
    with Program(stack, WB_RUNTIME_DIR=str(tmp_path / "run"), WB_AUTH_TOKEN_FILE=str(tokens),
                 WB_DB_URL_FILE=str(url)) as program:
        program.ready()

        def counts(token):
            return ask(program.socket, "/api/v1/load-jobs", token=token)[0]
        assert (counts(old), counts(new)) == (200, 401)
        tokens.write_text(line(new))
        url.write_text("host=/nowhere")
        kill_workers(program)
        assert (counts(old), counts(new)) == (200, 401), "as it was accepted, and Postgres is reached"
        url.write_text(stack.env["WB_PGURL"])
        os.kill(program.pid, signal.SIGHUP)
        wait_until(lambda: (counts(old), counts(new)) == (401, 200), "the new token to count")


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


# --- nothing is left behind ---

SOCKETS = 2 * 4 + 3 + 3  # of a worker, at most: stores of its threads, of its refresher and listener; 0, and two clients


def holds(pid):
    """What a process has open: (threads, sockets, the rest by kind, numbers taken off). FileNotFoundError: it left."""
    links = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            links.append(re.sub(r"\d+", "N", os.readlink(fd)))
    sockets = sum(link.startswith("socket:") for link in links)
    return len(list(Path(f"/proc/{pid}/task").iterdir())), sockets, sorted(x for x in links if x[:7] != "socket:")


def segments(pid):
    """How many processes have each segment of shared memory that this one made."""
    rows = [line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
    return [int(row[6]) for row in rows if int(row[4]) == pid]


def store_connections(stack):
    rows = stack.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'weighbridge-operations%%'", ())
    return rows[0][0] + sum(c["name"].startswith("weighbridge-") for c in stack.kv().client_list())


def belongings(stack, program, token):
    """All that a service has while it is polled that does not depend on which worker was asked what."""
    assert ask(program.socket, "/api/operations", token=token)[0] == 200
    workers = []
    for pid in program.workers():
        with suppress(FileNotFoundError):  # one that has been replaced leaves when it likes
            workers.append(holds(pid))
    return {"supervisor": holds(program.pid), "threads": [threads for threads, _, _ in workers],
            "others": [others for _, _, others in workers], "memory": segments(program.pid),
            "too many sockets": [n for _, n, _ in workers if n > SOCKETS],
            "too many at the stores": max(0, store_connections(stack) - 2 * SOCKETS),
            "files": sorted(re.sub(r"snap\..*", "snap", f.name) for f in program.socket.parent.iterdir()),
            "connections": connections(program, token)}


def reload_and_account(stack, tmp_path, reloads):
    token = stack.env["WB_VIEWER_TOKEN"]
    stack.dev("stop", "operations")
    with Program(stack, WB_RUNTIME_DIR=str(tmp_path / "run"), WEIGHBRIDGE_DUMPABLE="1") as program:
        program.ready()
        wait_until(lambda: "operations.snap" in belongings(stack, program, token)["files"], "a snapshot")
        before = belongings(stack, program, token)
        assert before["memory"] == [3] and len(before["others"]) == 2 and before["connections"] == (1, 0)
        for n in range(2, reloads + 2):
            os.kill(program.pid, signal.SIGHUP)
            wait_until(lambda n=n: f'msg="generation ready" generation={n}\n' in program.text(), "the generation")
            assert ask(program.socket, "/api/operations", token=token)[0] == 200
        with suppress(AssertionError):
            wait_until(lambda: belongings(stack, program, token) == before, "what there was before", 10)
        assert belongings(stack, program, token) == before
        assert program.text().count("worker left") == 2 * reloads and "died" not in program.text()


def test_reloads_leave_nothing_behind(stack, tmp_path):
    reload_and_account(stack, tmp_path, 20)


@pytest.mark.long
def test_a_thousand_reloads_leave_nothing_behind(stack, tmp_path):
    reload_and_account(stack, tmp_path, 1000)
