# SPDX-License-Identifier: Apache-2.0
"""What becomes of requests when processes are reloaded, stopped, killed and frozen: nothing acknowledged is lost,
nobody who is silent stands in another's way, and what is left behind is cleared up. Design, "Processes" and "Shutdown"."""
import http.client
import json
import os
import signal
import subprocess
import threading
from contextlib import contextmanager, suppress

import pytest

from conftest import HANG_S, ROOT, wait_until
from program import (BEGIN, GET_VALUES, PARAMS, STDIN, Program, answer_of, ask, begin, connect, freeze, is_alive,
                     operations_with, pairs, params_of, record, signal_all, whole_request)
from test_flicker import Pollers

pytestmark = pytest.mark.touches("operations")
THREADS = 4
COPIES = 400  # so few that the web server takes a poll's answer in one piece, and can ask again for one cut short
WORKER_THREADS = 5  # of a worker: [fcgi] threads and the main one


class Senders:
    """Threads that send numbered requests over kept connections until `total` are answered or it is told to stop.
    `request(n)` is (method, path, body); `answers` has the status of each n, None for no answer at all."""

    def __init__(self, stack, request, total=1 << 30, token="worker"):
        self.stack, self.request, self.total = stack, request, total
        self.headers = {"Authorization": "Bearer " + stack.env[f"WB_{token.upper()}_TOKEN"],
                        "Content-Type": "application/json"}
        self.answers, self.errors = {}, {}
        self.next, self.lock, self.stop = 0, threading.Lock(), threading.Event()
        self.threads = [threading.Thread(target=self._run) for _ in range(THREADS)]

    def _take(self):
        with self.lock:
            n = self.next
            self.next += 1
            return n if n < self.total and not self.stop.is_set() else None

    def _run(self):
        connection = None
        while (n := self._take()) is not None:
            self.answers[n] = None
            method, path, body = self.request(n)
            connection = connection or http.client.HTTPConnection("127.0.0.1", self.stack.port, timeout=HANG_S)
            try:
                connection.request(method, path, body, self.headers)
                answer = connection.getresponse()
                text = answer.read()
                self.answers[n] = answer.status
                if answer.status >= 400:
                    self.errors[n] = answer.status, text
            except (OSError, http.client.HTTPException) as e:
                self.errors[n] = None, repr(e)
                connection.close()
                connection = None

    def of(self, *statuses):
        return {n for n, status in self.answers.items() if status in statuses}

    def wait_for(self, n):
        wait_until(lambda: len(self.answers) > n or not any(t.is_alive() for t in self.threads), "answers", 600)

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, kind, *_):
        if kind or self.total == 1 << 30:
            self.stop.set()
        for t in self.threads:
            t.join()


def claim(n):
    return "POST", f"/api/v1/load-jobs/key{n}/claim", '{"owner":"o"}'


def report(n):
    return "PUT", f"/api/v1/staging/copy{n % COPIES}", '{"node_name":"n"}'


def poll(_n):
    return "GET", "/api/operations", None


def claimed_rows(stack):
    return {int(key.removeprefix("key")) for (key,) in stack.sql("SELECT tracking_key FROM model_load_jobs")}


def reports_there(stack):
    return {int(key.decode().removeprefix("wb:1:staging:copy")) for key in stack.kv().keys("wb:1:staging:copy*")}


def new_generation(stack, old):
    """A generation has come and none of its predecessors takes new connections: all of it is new, or drains."""
    def there():
        return stack.metric('weighbridge_reloads_total{result="ok"}')
    before = there()
    supervisor = stack.processes()[0]
    os.kill(supervisor, signal.SIGHUP)
    wait_until(lambda: there() > before, "a new generation")
    assert len(set(stack.processes()[1]) - set(old)) == 2


def socket_of(stack):
    return stack.var / "run" / "operations.sock"


# --- reload ---

def reload_under_load(stack, total, reloads):
    with Senders(stack, claim, total) as senders:
        for i in range(reloads):
            senders.wait_for(total * (i + 1) // (reloads + 1))
            new_generation(stack, stack.processes()[1])
    assert senders.errors == {}
    assert senders.of(201) == set(range(total))
    assert claimed_rows(stack) == set(range(total))


def test_a_reload_under_load_loses_no_post(stack):
    """Report 11 (test_reports.py). nginx does not send a POST again."""
    reload_under_load(stack, 3000, 3)


@pytest.mark.long
def test_many_reloads_under_load_lose_no_post(stack):
    reload_under_load(stack, 100000, 25)


@contextmanager
def ini_with(stack, line):
    ini = stack.var / "weighbridge.ini"
    before = ini.read_text()
    ini.write_text(before + line)
    try:
        yield
    finally:
        ini.write_text(before)


def test_a_reload_with_a_bad_configuration_keeps_the_old_generation(stack):
    def failed():
        return stack.metric('weighbridge_reloads_total{result="failed"}')
    supervisor, old = stack.processes()
    before, log = failed(), stack.var / "log" / "operations.log"
    start = log.stat().st_size
    with ini_with(stack, "colour = blue\n"):
        os.kill(supervisor, signal.SIGHUP)
        wait_until(lambda: failed() > before, "the failure")
        assert stack.operations() == []
        wait_until(lambda: not set(stack.processes()[1]) - set(old), "the old ones and no others")
    said = log.read_text(errors="replace")[start:]
    assert "colour" in said and "the old one stays" in said
    new_generation(stack, old)
    assert stack.operations() == []


# --- kill -9 ---

def test_killing_workers_loses_nothing_acknowledged(stack):
    with Senders(stack, claim) as claims, Senders(stack, report) as reports, \
            Senders(stack, poll, token="viewer") as polls:
        for _ in range(6):
            seen = len(claims.answers), len(reports.answers), len(polls.answers)
            wait_until(lambda s=seen: len(claims.answers) > s[0] + 50 and len(reports.answers) > s[1] + 50 and
                       len(polls.answers) > s[2] + 50, "load")
            killed = stack.kill_worker(0)
            wait_until(lambda k=killed: k not in (w := stack.processes()[1]) and len(w) == 2, "a successor")
    assert claims.of(201) and claims.of(201) <= claimed_rows(stack)
    assert reports.of(204) and {n % COPIES for n in reports.of(204)} <= reports_there(stack)
    assert polls.errors == {} and set(polls.answers.values()) == {200}


def test_a_killed_supervisor_leaves_no_orphans_and_a_start_works(stack):
    supervisor, workers = stack.processes()
    os.kill(supervisor, signal.SIGKILL)
    stack.dev("start", "operations")
    assert not [pid for pid in (supervisor, *workers) if is_alive(pid)]
    again, new = stack.processes()
    assert again and len(new) == 2
    assert stack.stage("k").status_code == 204 and stack.entry("k")


# --- stop ---

@contextmanager
def locked_rows(stack):
    """Whoever asks for rows waits until unlock() is called."""
    connection = stack.pg()
    connection.autocommit = False
    try:
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLE model_load_jobs IN ACCESS EXCLUSIVE MODE")
        yield connection.rollback
    finally:
        with suppress(Exception):
            connection.rollback()
        connection.close()


def waiting_for_rows(stack):
    return stack.sql("SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted"
                     " AND application_name ~ '^weighbridge-operations/[0-9]'")[0][0]


def test_a_stop_lets_requests_in_flight_complete(stack):
    """Report 3 (test_reports.py)."""
    log = stack.var / "log" / "operations.log"
    with operations_with(stack, WB_DB_TIMEOUT_MS="60000"):
        start = log.stat().st_size
        supervisor, workers = stack.processes()
        with locked_rows(stack) as unlock, Senders(stack, claim, THREADS) as senders:
            wait_until(lambda: waiting_for_rows(stack) == THREADS, "requests that wait for rows")
            stop = subprocess.Popen([str(ROOT / "dev"), "stop", "operations"], env=stack.environ,
                                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_until(lambda: 'msg=stopping' in (text := log.read_text(errors="replace")[start:]) or
                       'msg="stopping"' in text, "the stop")
            unlock()
        assert stop.wait(HANG_S) == 0
        assert list(senders.answers.values()) == [201] * THREADS
        assert claimed_rows(stack) == set(range(THREADS))
        assert not [pid for pid in (supervisor, *workers) if is_alive(pid)]
        assert stack.get("/api/operations").status_code == 503, "in JSON, by the web server"
        stack.dev("start", "operations")
        assert len(stack.get("/api/v1/load-jobs").json()["load_jobs"]) == THREADS


# --- beside each other ---

class Asker:
    """Asks on fresh connections while other processes at the same socket are frozen. The kernel may have told one of
    their threads of a connection before it told ours, each at most once: such a request is made anew, and counted."""

    def __init__(self, path, frozen_threads):
        self.path, self.lost, self.allowed = path, 0, frozen_threads

    def ask(self, uri, **kw):
        while True:
            with connect(self.path) as s:
                s.settimeout(2)
                s.sendall(whole_request(uri, **kw))
                with suppress(TimeoutError):
                    return answer_of(s)
                self.lost += 1
                assert self.lost <= self.allowed, "nobody answers"


def test_a_second_instance_runs_beside_the_first(stack):
    first = [stack.processes()[0], *stack.processes()[1]]
    with Pollers(stack) as pollers, Program(stack) as second:
        second.ready()
        their = [second.pid, *second.workers()]
        assert len(their) == 3 and not set(their) & set(first)
        for frozen in (first, their):  # each serves new connections while the other cannot
            freeze(frozen)
            asker = Asker(socket_of(stack), 2 * WORKER_THREADS)
            try:
                for _ in range(10):
                    assert asker.ask("/healthz")[0] == 200
            finally:
                signal_all(signal.SIGCONT, frozen)
        stack.dev("stop", "operations")
        wait_until(lambda: "took over the listening socket" in second.text(), "the lock changes hands")
        assert stack.stage("k").status_code == 204 and stack.entry("k")
        stack.dev("start", "operations")
    assert stack.stage("k2").status_code == 204 and stack.entry("k2")
    assert {status for _, _, status, _, _ in pollers.polls} == {200}


def test_two_machines_see_each_others_first_reports(stack, tmp_path):
    folder = tmp_path / "run"
    changes = stack.kv().pubsub()
    changes.subscribe("wb:1:changes")
    wait_until(lambda: (changes.get_message() or {}).get("type") == "subscribe", "subscribed")
    token = stack.env["WB_VIEWER_TOKEN"]
    with Program(stack, WB_RUNTIME_DIR=str(folder)) as other:
        other.ready()

        def theirs():
            status, body = ask(other.socket, "/api/operations", token=token)
            assert status == 200, body
            return [o["name"] for o in json.loads(body)["operations"]]

        for i in range(10):
            theirs()
            assert stack.stage(f"k{i}").status_code == 204
            told = wait_until(changes.get_message, "a word to other machines")
            assert told["type"] == "message"
            wait_until(lambda n=i: f"k{n}" in theirs(), "seen on the other machine", 2)
        assert theirs() == [o["name"] for o in stack.operations()]
        assert stack.call("DELETE", "/api/v1/staging/k0", token="worker").status_code == 204
        wait_until(lambda: "k0" not in theirs(), "the end seen on the other machine", 2)


@pytest.mark.parametrize("which", [0, 1])
def test_a_frozen_worker_does_not_stop_polls_that_land_on_the_other(stack, which):
    """Also when it holds the lease: one of the two does, while somebody polls."""
    token = stack.env["WB_VIEWER_TOKEN"]
    stack.operations()
    frozen = sorted(stack.processes()[1])[which]
    freeze([frozen])
    asker = Asker(socket_of(stack), WORKER_THREADS)
    try:
        wait_until(lambda: asker.ask("/api/operations", token=token)[0] == 200, "the lease changes hands")
        for i in range(10):
            body = b'{"node_name":"n"}'
            uri = f"/api/v1/staging/k{i}"
            assert asker.ask(uri, method="PUT", body=body, token=stack.env["WB_WORKER_TOKEN"])[0] == 204
            status, body = asker.ask("/api/operations", token=token)
            assert status == 200 and f'"staging:k{i}"' in body
    finally:
        os.kill(frozen, signal.SIGCONT)


# --- clients that are silent, slow or odd ---

def test_idle_and_silent_connections_do_not_stand_in_the_way(stack):
    """Reports 1 and 2 (test_reports.py). With an hour to become whole, one that held a thread would hold it for ever."""
    with operations_with(stack, WB_FCGI_READ_TIMEOUT_MS="600000"):
        path, kept = socket_of(stack), []
        params = record(PARAMS, pairs(params_of("/api/v1/load-jobs/k/claim", "POST", body=b"x" * 60000)))
        try:
            for _ in range(40):
                idle, silent, begun, half, partly = (connect(path) for _ in range(5))
                kept += idle, silent, begun, half, partly
                idle.sendall(whole_request("/healthz", keep=True))
                assert answer_of(idle)[0] == 200
                begun.sendall(begin())
                half.sendall(begin()[:5])
                partly.sendall(begin() + params + record(PARAMS) + record(STDIN, b"x" * 30000))
            for i in range(20):
                assert stack.stage(f"k{i}").status_code == 204
                assert stack.entry(f"k{i}")
            for s in kept[::5]:
                s.sendall(whole_request("/healthz", keep=True))
                assert answer_of(s)[0] == 200, "what was idle goes on"
        finally:
            for s in kept:
                s.close()
    assert stack.operations() is not None


def test_get_values_over_and_over_harms_nobody(stack):
    """Report 5 (test_reports.py): libfcgi prints its answer into 64 bytes."""
    _, workers = stack.processes()
    ask_values = record(GET_VALUES, pairs({"FCGI_MAX_CONNS": "", "FCGI_MPXS_CONNS": ""}), request=0)
    for one_by_one in (True, False):
        with suppress(OSError), connect(socket_of(stack)) as s:
            for _ in range(12):
                s.sendall(ask_values)
                if one_by_one:
                    s.recv(4096)
            s.sendall(whole_request("/healthz"))
            s.recv(4096)
    for _ in range(12):
        with suppress(OSError), connect(socket_of(stack)) as s:
            s.sendall(ask_values)
    for _ in range(20):
        assert ask(socket_of(stack), "/healthz")[0] == 200
        assert stack.operations() == []
    assert sorted(stack.processes()[1]) == sorted(workers), "no worker died of it"


@pytest.mark.parametrize("bytes_sent", [
    b"GET / HTTP/1.0\r\n\r\n", b"\0" * 64, b"\xff" * 64, record(BEGIN, b"x"), record(STDIN, b"x"), begin() + begin(),
    begin() + record(PARAMS, b"\x7f"), record(11, b"x" * 8, request=0)])
def test_what_is_no_fastcgi_harms_nobody(stack, bytes_sent):
    _, workers = stack.processes()
    for _ in range(8):
        with suppress(OSError), connect(socket_of(stack)) as s:
            s.sendall(bytes_sent)
            s.shutdown(1)
            s.recv(4096)
    assert ask(socket_of(stack), "/healthz")[0] == 200
    assert sorted(stack.processes()[1]) == sorted(workers)
