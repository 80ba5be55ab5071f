# SPDX-License-Identifier: Apache-2.0
"""Behind lighttpd and Apache, by FastCGI and by CGI, with the files that we ship for them: the same answers as behind
nginx. And the other ways to be started: spawn-fcgi, systemd. Design, "Processes"; operations contract, sections 3, 5, 7."""
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from urllib.parse import quote, unquote

import pytest

from conftest import HANG_S, wait_until
from program import Program, ask, binary, is_alive
from test_input import check_error, raw
from test_program import cgi
from webservers import WebServer

FASTCGI = ["lighttpd-fastcgi", "apache-fastcgi"]
CGI = ["lighttpd-cgi", "apache-cgi"]
KEYS = ["org/model@1", "a//b", "a%2Fb", "100%", "modèle-模型-🦙", "a b+c&d=e?f#g;h", "node:7:llama", "-", "~", "a.inc", ".htaccess", "a/.ht", "x" * 255, "a/" * 127 + "a"]


@pytest.fixture(scope="module", params=FASTCGI + CGI)
def any_server(_stack, request):
    server = WebServer(_stack, request.param)
    yield server
    server.close()


@pytest.fixture
def web(stack, any_server):
    any_server.reach_socket()
    yield any_server
    assert any_server.process.poll() is None, any_server.log()


def path_of(key):
    return "/api/v1/staging/" + quote(key, safe="")


def seen(stack, web, key):
    """The entry of what was just done: at once, or, as a CGI process of another user shares no memory with the service,
    when Redis has brought the word."""
    return stack.entry(key) if web.way == "fastcgi" else wait_until(lambda: stack.entry(key), "the entry")


def gone(stack, web, key):
    assert web.way == "cgi" or stack.entry(key) is None
    wait_until(lambda: stack.entry(key) is None, "the end of the entry")


# --- the same answers as behind nginx ---

def test_the_poll(stack, web):
    stack.stage("k", file_name="f", bytes_sent=1, total_bytes=4)
    through, direct = web.get("/api/operations", token="viewer"), stack.get("/api/operations", token="viewer")
    assert through.status_code == 200 and through.text == direct.text and '"staging:k"' in through.text
    for name in ("Content-Type", "ETag", "Cache-Control"):
        assert through.headers[name] == direct.headers[name], name
    assert len(through.headers["X-Request-Id"]) >= 8


def test_a_tab_that_knows_the_answer_gets_304(stack, web):
    stack.stage("k")
    etag = web.get("/api/operations").headers["ETag"]
    answer = web.get("/api/operations", headers={"If-None-Match": etag})
    assert answer.status_code == 304 and answer.content == b"" and answer.headers["ETag"] == etag
    assert web.get("/api/operations", headers={"If-None-Match": '"other"'}).status_code == 200


def test_head_is_get_without_the_body(stack, web):
    stack.stage("k")
    head, get = web.call("HEAD", "/api/operations"), web.get("/api/operations")
    assert head.status_code == 200 and head.content == b""
    assert head.headers["ETag"] == get.headers["ETag"] and head.headers["Content-Type"] == get.headers["Content-Type"]
    assert web.call("HEAD", "/api/v1/load-jobs/none").status_code == 404


def test_without_a_token_or_with_a_wrong_one_it_is_401(web):
    assert check_error(web.get("/api/operations", token=None), 401)
    answer = web.get("/api/operations", token=None, headers={"Authorization": "Bearer nonsense"})
    assert check_error(answer, 401) == "unknown token"
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    check_error(web.call("PUT", path_of("k"), {"node_name": "n"}, token="viewer"), 403)


@pytest.mark.parametrize("name", ["WB-Remote-User", "WB_REMOTE_USER", "Remote-User", "X-Remote-User", "X-Forwarded-User"])
def test_a_header_makes_nobody_a_user(web, name):
    check_error(raw(web, "GET", "/api/operations", headers={"Authorization": None, name: "admin"}), 401)


@pytest.mark.parametrize("key", KEYS)
def test_keys_travel_undamaged(stack, web, key):
    assert web.call("PUT", path_of(key), {"node_name": "n", "file_name": "f"}, token="worker").status_code == 204
    assert seen(stack, web, key)["name"] == key
    assert web.get(path_of(key)).json()["model_id"] == key
    assert web.call("DELETE", path_of(key), token="worker").status_code == 204
    gone(stack, web, key)


@pytest.mark.parametrize("path", ["/api/v1/staging/..", "/api/v1/staging/%2e%2e", "/api/v1/staging/a%2F..%2Fb"])
def test_dot_segments_reach_no_other_path(stack, web, path):
    stack.stage("a")
    answer = raw(web, "GET", path)
    assert answer.status_code in (400, 403, 404), answer.text


def test_a_load_from_claim_to_end(stack, web):
    """Bodies with POST, PUT and DELETE."""
    path = "/api/v1/load-jobs/" + quote("org/model", safe="")
    answer = web.call("POST", path + "/claim", {"owner": "o"}, token="worker")
    assert answer.status_code == 201
    token = answer.json()["claim_token"]
    answer = web.call("PUT", path, {"claim_token": token, "state": "staging", "bytes_sent": 1, "total_bytes": 2}, token="worker")
    assert answer.status_code == 200 and seen(stack, web, "org/model")["progress"] == 50
    check_error(web.call("PUT", path, {"claim_token": "x"}, token="worker"), 409)
    assert web.call("DELETE", path, {"claim_token": token}, token="worker").status_code == 204
    gone(stack, web, "org/model")


@pytest.mark.parametrize("size", [1, 8191, 8193, 65535])
def test_bodies_of_all_sizes(web, size):
    body = b'{"owner":"o"}'.ljust(max(size, 13))
    answer = raw(web, "POST", f"/api/v1/load-jobs/k{size}/claim", body, {"Content-Type": "application/json"})
    assert answer.status_code == 201, answer.text


def test_errors_pass_through(web):
    """As the program says them, not as a page of the web server's own."""
    assert check_error(web.get("/api/v1/load-jobs/none"), 404)
    answer = web.call("DELETE", "/api/operations")
    assert check_error(answer, 405) and "GET" in answer.headers["Allow"]
    assert check_error(web.call("POST", "/api/v1/load-jobs/k/claim", {"owner": 1}), 400).startswith("owner")
    assert check_error(raw(web, "POST", "/api/v1/load-jobs/k/claim", b"{}", {"Content-Type": "text/plain"}), 415)
    body = b'{"owner":"o"}'.ljust(66000)
    assert check_error(raw(web, "POST", "/api/v1/load-jobs/k/claim", body, {"Content-Type": "application/json"}), 413)
    foreign = {"Origin": "http://elsewhere.example", "Content-Type": "application/json"}
    assert check_error(raw(web, "PUT", path_of("k"), b'{"node_name":"n"}', foreign), 403)


def test_big_headers(web):
    """Near what both servers take: lighttpd 8 KiB of all together, Apache of one line."""
    answer = web.get("/api/operations?" + "q" * 500, headers={"Cookie": "c=" + "y" * 7000})
    assert answer.status_code == 200


def test_the_rest_of_the_site_is_not_ours(web):
    assert web.get("/", token=None).text == "the site's own\n"
    for path in ("/api/operationsx", "/healthzx", "/api/v1/stagingx/k", "/x/api/operations"):
        answer = web.get(path, token=None)
        assert answer.status_code == 404 and "request_id" not in answer.text, path
    assert web.get("/healthz", token=None).json() == {"status": "ok"}
    for path in ("/weighbridge-cgi", "/weighbridge-operations"):
        assert check_error(web.get(path), 404) if web.name + path == "lighttpd/weighbridge-cgi" and web.way == "cgi" \
            else web.get(path).status_code == 404, "the program is never sent as a file"


# --- FastCGI: the service comes and goes ---

@pytest.fixture(params=FASTCGI)
def fastcgi(stack, request):
    server = WebServer(stack, request.param)
    yield server
    server.close()


@pytest.mark.touches("operations")
def test_while_the_service_is_down_it_is_503_and_then_well_again(stack, fastcgi):
    assert fastcgi.get("/healthz").status_code == 200
    stack.dev("stop", "operations")
    for _ in range(5):
        assert fastcgi.get("/healthz").status_code == 503
    stack.dev("start", "operations")
    fastcgi.reach_socket()
    wait_until(lambda: fastcgi.get("/healthz").status_code == 200, "the service")
    assert [fastcgi.get("/healthz").status_code for _ in range(5)] == [200] * 5


def test_a_reload_loses_no_request(stack, fastcgi):
    before = stack.metric('weighbridge_reloads_total{result="ok"}')
    old = stack.reload()
    statuses = set()

    def replaced():
        statuses.add(fastcgi.get("/api/operations").status_code)
        statuses.add(fastcgi.call("PUT", path_of("k"), {"node_name": "n"}).status_code)
        return stack.metric('weighbridge_reloads_total{result="ok"}') > before and not any(map(is_alive, old))
    wait_until(replaced, "a new generation alone", 60)
    assert statuses == {200, 204}


# --- CGI: no service ---

@pytest.mark.touches("operations")
@pytest.mark.parametrize("kind", CGI)
def test_cgi_needs_no_service_and_asks_the_stores_at_each_request(stack, kind):
    server = WebServer(stack, kind)
    try:
        stack.dev("stop", "operations")
        for n in range(3):
            stack.sql("INSERT INTO model_load_jobs (tracking_key, state, updated_at) VALUES (%s, 'staging', now())", (f"row{n}",))
            answer = server.get("/api/operations")
            assert answer.status_code == 200
            assert len(answer.json()["operations"]) == n + 1, "no older answer than the request"
        assert server.call("PUT", path_of("k"), {"node_name": "n"}, token="worker").status_code == 204
        assert len(server.get("/api/operations").json()["operations"]) == 4
        assert server.get("/api/operations?x").status_code == 200, "a query without = comes as an argument"
    finally:
        server.close()


def test_a_cgi_process_without_the_services_memory_tells_it_through_redis(stack, tmp_path):
    with stack.kv().pubsub() as channel:
        channel.subscribe("wb:1:changes")
        wait_until(lambda: channel.get_message(timeout=1), "the subscription")
        assert cgi(stack, "PUT", path_of("k"), "worker", b'{"node_name":"n"}', WB_RUNTIME_DIR=str(tmp_path)) == (204, "")
        wait_until(lambda: channel.get_message(timeout=1), "the word")


@contextmanager
def slow_postgres(stack, folder):
    """The stack's Postgres, but every connection to it takes three times what the service's refresher waits."""
    with socket.socket(socket.AF_UNIX) as listening, ThreadPoolExecutor() as pool:
        def relay(source, target):
            with suppress(OSError):
                while data := source.recv(65536):
                    target.sendall(data)
                target.shutdown(socket.SHUT_WR)

        def serve():
            with listening.accept()[0] as client, socket.socket(socket.AF_UNIX) as server:
                time.sleep(0.3)  # the pace of this server
                server.connect(unquote(re.search("host=([^&]*)", stack.env["WB_PGURL"])[1]) + "/.s.PGSQL.5432")
                back = pool.submit(relay, server, client)
                relay(client, server)
                back.result()
        listening.bind(str(folder / ".s.PGSQL.5432"))
        listening.listen()
        done = pool.submit(serve)
        yield re.sub("host=([^&]*)", f"host={folder}", stack.env["WB_PGURL"])
        done.result()


def test_a_cgi_poll_waits_for_a_store_as_long_as_any_call(stack, tmp_path):
    """It connects anew for each poll, and has no last good answer to fall back to."""
    stack.sql("INSERT INTO model_load_jobs (tracking_key, state, updated_at) VALUES ('row', 'staging', now())")
    with slow_postgres(stack, tmp_path) as url:
        status, body = cgi(stack, "GET", "/api/operations", WB_DB_URL=url)
    assert status == 200 and '"staging:row"' in body


# --- spawn-fcgi and systemd ---

def answers(path):
    """Between the socket's name and its listening nobody can connect."""
    with suppress(FileNotFoundError, ConnectionRefusedError):
        return ask(path, "/healthz") == (200, '{"status":"ok"}')
    return False


def test_under_spawn_fcgi(stack, tmp_path):
    path = tmp_path / "spawned.sock"
    process = subprocess.Popen(
        ["spawn-fcgi", "-s", str(path), "-M", "0660", "-n", "--", binary(stack), "--config", str(stack.var / "weighbridge.ini")],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**stack.environ, "WB_RUNTIME_DIR": str(tmp_path / "run")})
    try:
        wait_until(lambda: answers(path), "an answer")
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        stack.stage("k")
        status, body = ask(path, "/api/operations", token=stack.env["WB_VIEWER_TOKEN"])
        assert status == 200 and '"staging:k"' in body
        process.terminate()
        assert process.wait(HANG_S) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(not shutil.which("systemd-socket-activate"), reason="systemd is not installed")
def test_with_the_socket_that_systemd_holds(stack, tmp_path):
    """The supervisor takes it, reloads on it, and leaves the file to systemd."""
    path = tmp_path / "held.sock"
    (tmp_path / "run").mkdir()
    log = tmp_path / "log"
    with open(log, "wb") as out:
        process = subprocess.Popen(
            ["systemd-socket-activate", "-l", str(path), *(f"-E{name}" for name in ("WB_RUNTIME_DIR", "ASAN_OPTIONS")),
             binary(stack), "--config", str(stack.var / "weighbridge.ini")],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            env={**stack.environ, "WB_RUNTIME_DIR": str(tmp_path / "run"), "ASAN_OPTIONS": ""})

    def ready():
        return log.read_text().count('msg="generation ready"')
    try:
        wait_until(lambda: answers(path), "an answer to what waited in the backlog")
        wait_until(lambda: ready() == 1, "a generation")
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: ready() == 2, "the next generation")
        assert ask(path, "/healthz")[0] == 200
        assert not (tmp_path / "run" / "operations.sock").exists()
        process.terminate()
        assert process.wait(HANG_S) == 0 and path.exists()
    finally:
        process.kill()
        process.wait()


def test_systemd_is_told_of_a_start_a_reload_and_a_stop(stack, tmp_path):
    """Type=notify: sd_notify(3)."""
    (tmp_path / "run").mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(HANG_S)

        def told():
            return manager.recv(4096).decode().split("\n")[0]
        with Program(stack, WB_RUNTIME_DIR=str(tmp_path / "run"), NOTIFY_SOCKET=str(tmp_path / "notify")) as program:
            assert told() == "READY=1"
            assert ask(program.socket, "/healthz")[0] == 200
            os.kill(program.pid, signal.SIGHUP)
            assert [told(), told()] == ["RELOADING=1", "READY=1"]
            os.kill(program.pid, signal.SIGTERM)
            assert told() == "STOPPING=1" and program.process.wait(HANG_S) == 0
