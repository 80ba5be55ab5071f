# SPDX-License-Identifier: Apache-2.0
"""What was reported of other FastCGI programs, and must not be so here. Tests name the reports by these numbers; what
needs the whole stack and has no place elsewhere is in this file, the others are in tests/unit, tests/store and beside it.

 1 idle kept connections hold the threads        https://github.com/ruven/iipsrv/issues/203
 2 a silent client holds one for ever            https://github.com/fmadio/public/issues/132
 3 TERM is ignored while idle                    https://github.com/MapServer/MapServer/pull/7504
 4 requests are served one after the other       https://stackoverflow.com/questions/5829869
 5 lengths that overflow, GET_VALUES             https://github.com/FastCGI-Archives/fcgi2/issues/67
 6 parameters over 8192 bytes                    https://github.com/FastCGI-Archives/fcgi2/issues/13
 7 the socket's mode                             https://github.com/eddic/fastcgipp/issues/97
 8 large bodies                                  https://github.com/eddic/fastcgipp/issues/17
 9 bodies over the web server's buffer           https://github.com/pjincz/nginx-cgi/issues/25
10 stalled bodies hold the threads               https://github.com/ErugoOSS/Erugo/pull/258
11 a POST is lost at a reload, a 502 for JSON    https://github.com/openresty/openresty/issues/200
13 try_files empties PATH_INFO                   https://github.com/nginx/nginx/issues/879
15 answers without a body on kept connections    https://github.com/perusio/drupal-with-nginx/issues/160
17 SIGPIPE on a socket of Redis that is dead     https://github.com/redis/hiredis/issues/910
18 the timeout of Redis is lost                  https://github.com/redis/hiredis/issues/593
20 a prepared statement does not exist           https://github.com/pgbouncer/pgbouncer/issues/1067
21 the program dies when Postgres restarts       https://github.com/brianc/node-postgres/issues/2386
22 noise in numbers                              https://github.com/json-c/json-c/issues/154
23 the locale and threads                        https://github.com/json-c/json-c/issues/855
25 a leftover in Redis beats the end             https://github.com/RolnickLab/antenna/issues/1285
"""
import hashlib
import os
import signal
from contextlib import contextmanager

import pytest

from conftest import free_port, wait_until
from program import answer_of, begin, connect, operations_with, pairs, params_of, record
from program import PARAMS, STDIN
from test_flicker import Pollers
from test_processes import Senders, socket_of
from wire import Answers, head, http, others_are_served, put

FOREVER = {"WB_FCGI_READ_TIMEOUT_MS": "600000"}  # what holds a thread holds it for longer than any guard


@contextmanager
def unbuffered(stack):
    """The port of a server that hands bodies on as they come, and keeps 1 KiB of them at most."""
    port, nginx = free_port(), stack.var / "nginx"
    own, extra = nginx / "weighbridge" / "unbuffered.conf", nginx / "extra-http" / "unbuffered.conf"
    settings = (nginx / "weighbridge" / "server.conf").read_text()
    assert "client_body_buffer_size 96k;" in settings and "fastcgi_request_buffering" not in settings
    own.write_text(settings.replace("client_body_buffer_size 96k;", "client_body_buffer_size 1k;"))
    extra.parent.mkdir(exist_ok=True)
    extra.write_text(f"""server {{
        listen 127.0.0.1:{port};
        fastcgi_request_buffering off;
        include weighbridge/unbuffered.conf;
    }}""")
    stack.dev("reload", "nginx")
    try:
        wait_until(lambda: answers_at(stack, port), "the second server")
        yield port
    finally:
        extra.unlink()
        own.unlink()
        stack.dev("reload", "nginx")


def answers_at(stack, port):
    try:
        with http(stack, port) as s:
            s.sendall(head(stack, "GET", "/healthz"))
            return Answers(s).next()[0] == 200
    except OSError:
        return False


# --- idle, silent and slow clients ---

def test_connections_that_the_web_server_keeps_hold_no_thread(stack):
    """Report 1. Two nginx workers, more kept connections than threads."""
    def kept():
        return stack.metric("weighbridge_fcgi_connections")
    with operations_with(stack, **FOREVER), Senders(stack, lambda n: ("GET", "/healthz", None)) as senders:
        wait_until(lambda: len(senders.answers) > 2000, "many requests at once")
        with Senders(stack, lambda n: ("PUT", f"/api/v1/staging/k{n % 20}", '{"node_name":"n"}'), 400) as others:
            pass
        assert kept() > 1
        assert others.errors == {} and others.of(204) == set(range(400))
    assert senders.errors == {}


def test_stalled_uploads_hold_no_thread_either(stack):
    """Reports 2 and 10. Bodies that never come to their end, handed on by the web server as far as they came."""
    request = put(stack, "stalled", b'{"node_name":' + b" " * 30000 + b'"n"}')
    kept = []
    with operations_with(stack, **FOREVER), unbuffered(stack) as port:
        try:
            with Pollers(stack) as pollers:
                for _ in range(30):
                    s = http(stack, port)
                    kept.append(s)
                    s.sendall(request[:-10000])
                wait_until(lambda: stack.metric("weighbridge_fcgi_connections_waiting") == 30, "all of them begun")
                for i in range(20):
                    assert stack.stage(f"k{i}").status_code == 204
                for s in kept[:10]:
                    s.sendall(request[-10000:])
                    assert Answers(s).next()[0] == 204
            assert pollers.polls and {status for _, _, status, _, _ in pollers.polls} == {200}
        finally:
            for s in kept:
                s.close()
        wait_until(lambda: stack.metric("weighbridge_fcgi_connections_waiting") == 0, "the others are forgotten")


# --- sizes ---

SIZES = (200, 1023, 1024, 1025, 8191, 8192, 8193, 32767, 65535, 65536)  # about each buffer on the way, and the limit


def sent_in_chunks(body):
    parts = [body[at:at + 1000] for at in range(0, len(body), 1000)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("buffered", [True, False], ids=["buffered", "unbuffered"])
def test_bodies_of_all_sizes_arrive_whole(stack, buffered, chunked):
    """Reports 8 and 9. What is said at a body's end is stored. Chunked and handed on as it comes, it has no length: that
    is refused, not empty."""
    with unbuffered(stack) as other:
        for size in SIZES:
            key = f"size{size}"
            token, why = stack.claim(key), hashlib.sha256(b"%d" % size).hexdigest()
            said = b'"claim_token":"%b","error":"%b"}' % (token.encode(), why.encode())
            body = b"{" + b" " * (size - 1 - len(said)) + said
            framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
            with http(stack, stack.port if buffered else other) as s:
                s.sendall(head(stack, "POST", f"/api/v1/load-jobs/{key}/fail", "Content-Type: application/json", framing) +
                          (sent_in_chunks(body) if chunked else body))
                status = Answers(s).next()[0]
            stored = stack.get(f"/api/v1/load-jobs/{key}").json()["last_error"]
            if chunked and not buffered and status != 204:  # a short body may have come whole, and has its length then
                assert (status, stored) == (411, ""), size
            else:
                assert (status, stored) == (204, why), size


def test_parameters_larger_than_a_buffer_arrive(stack):
    """Report 6. Cookies and addresses about 8192 bytes and far over."""
    with others_are_served(stack), http(stack) as s:
        answers = Answers(s)
        for size in (8100, 8191, 8192, 8193, 12000, 20000):
            for data in (head(stack, "GET", "/api/v1/staging", "Cookie: " + "x" * size, token="viewer"),
                         head(stack, "GET", "/api/v1/staging?x=" + "y" * (size - 200), token="viewer")):
                s.sendall(data)
                assert answers.next()[0] == 200, size


# --- routing ---

@pytest.mark.parametrize("params", [
    {"PATH_INFO": ""}, {"PATH_INFO": "", "SCRIPT_NAME": "/api/v1/staging/k"}, {"PATH_INFO": "/nothing"},
    {"SCRIPT_NAME": "", "PATH_INFO": "", "DOCUMENT_URI": "/x", "SCRIPT_FILENAME": "/nowhere", "PATH_TRANSLATED": "/y"},
    {"DOCUMENT_URI": "/api/v1/staging/other"}, {"SCRIPT_NAME": "/api", "PATH_INFO": "/v1/staging/other"}], ids=str)
def test_the_route_is_the_requests_uri(stack, params):
    """Report 13. try_files empties PATH_INFO; rewrites change the others."""
    assert stack.stage("k", file_name="mine").status_code == 204
    sent = params_of("/api/v1/staging/k", token=stack.env["WB_VIEWER_TOKEN"]) | params
    with connect(socket_of(stack)) as s:
        s.sendall(begin() + record(PARAMS, pairs(sent)) + record(PARAMS) + record(STDIN))
        status, body = answer_of(s)
    assert status == 200 and '"mine"' in body


# --- stores ---

def test_a_redis_that_was_restarted_between_polls_kills_nobody(stack):
    """Report 17. A write to the dead socket raises SIGPIPE."""
    workers = sorted(stack.processes()[1])
    for i in range(4):
        for _ in range(20):  # every thread has a connection that will be dead
            assert stack.stage(f"k{i}").status_code == 204
        stack.dev("stop", "redis")
        stack.dev("start", "redis")
        wait_until(lambda n=i: stack.stage(f"k{n}").status_code == 204, "reports are taken again")
        wait_until(lambda n=i: stack.entry(f"k{n}"), "shown again")
    assert sorted(stack.processes()[1]) == workers


def end_sessions(stack):
    stack.sql("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
              " WHERE pid <> pg_backend_pid() AND application_name LIKE 'weighbridge%'")


@pytest.mark.parametrize("prepared", ["on", "off"])
def test_sessions_that_end_cost_no_call(stack, prepared):
    """Report 20. Calls on sessions that an admin ended, with prepared statements and as behind a pooler that has none."""
    with operations_with(stack, WB_DB_PREPARED=prepared):
        for i in range(6):
            token = stack.claim(f"k{i}")
            end_sessions(stack)
            assert stack.load(f"k{i}", token, state="staging", bytes_sent=1, total_bytes=2).status_code == 200
            end_sessions(stack)
            assert stack.entry(f"k{i}")
            end_sessions(stack)
            assert stack.load(f"k{i}", token, "DELETE").status_code == 204
            assert stack.sql("SELECT count(*) FROM pg_prepared_statements") == [(0,)]
        assert stack.get("/api/v1/load-jobs").json() == {"load_jobs": []}


@pytest.mark.touches("postgres")
def test_a_postgres_that_was_killed_is_not_seen_by_polls(stack):
    """Report 21. Stopped at once, without a word to its sessions."""
    token = stack.claim("k")
    assert stack.load("k", token, state="staging", bytes_sent=1, total_bytes=2).status_code == 200
    supervisor, workers = stack.processes()
    with Pollers(stack) as pollers:
        for _ in range(2):
            pid = int((stack.var / "log" / "postgres.pid").read_text())
            kill_at_once(pid)
            stack.dev("start", "postgres")
            wait_until(lambda: "X-Degraded" not in stack.get("/api/operations").headers, "recovery")
    assert {status for _, _, status, _, _ in pollers.polls} == {200}
    assert {e["name"] for _, _, _, entries, _ in pollers.polls for e in entries} == {"k"}
    assert stack.processes()[0] == supervisor and sorted(stack.processes()[1]) == sorted(workers)


def kill_at_once(pid):
    os.kill(pid, signal.SIGQUIT)
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "the end of postgres")


# --- numbers ---

def test_numbers_have_no_noise(stack):
    """Report 22. 78.27 is not 78.269999999999996."""
    token = stack.claim("k")
    assert stack.load("k", token, state="staging", bytes_sent=7827, total_bytes=10000).status_code == 200
    for path in ("/api/v1/load-jobs/k", "/api/v1/load-jobs", "/api/v1/staging/k"):
        assert '"progress":78.27,' in stack.get(path).text.replace("}", ","), path
