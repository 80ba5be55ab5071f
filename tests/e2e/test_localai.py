# SPDX-License-Identifier: Apache-2.0
"""Beside an existing LocalAI: nginx/localai.conf before stand-in front ends, and a program that may only read their tables.
Operations contract, section 6. What the program does with read_only is in test_read_only.py."""
import os
import re
import shutil
import socket
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
import requests

from conftest import HANG_S, ROOT, free_port, wait_until
from localai import FrontEnd, Sessions
from program import Program
from test_input import check_error, raw
from test_read_only import THEIRS, Beside

ADMIN, USER = {"Cookie": "theme=dark; session=admin-session"}, {"Cookie": "session=user-session"}


class Site:
    """nginx with what we ship, two front ends, and the program beside them."""

    def __init__(self, beside, program, seconds=10):
        self.beside, self.program, self.env = beside, program, beside.stack.env
        self.folder = Path(tempfile.mkdtemp(prefix="wb-site-", dir="/tmp"))
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.sessions = Sessions()
        self.front_ends = [FrontEnd(name, self.sessions) for name in ("one", "two")]
        self._configure(seconds)
        with open(self.folder / "out.log", "wb") as log:
            self.process = subprocess.Popen(
                ["nginx", "-p", f"{self.folder}/", "-c", "nginx.conf", "-e", "error.log", "-g", "daemon off;"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin"})
        wait_until(self._listens, "nginx")

    def _configure(self, seconds):
        """Shipped files but for the places that they call the admin's to change, and the service's socket."""
        shutil.copytree(ROOT / "nginx", self.folder / "weighbridge", ignore=lambda _, names: [
            n for n in names if not n.endswith(".conf")])
        self.change("weighbridge.conf", "/run/weighbridge/operations.sock", str(self.program.socket))
        self.change("localai.conf", "    server 127.0.0.1:8081;", "\n".join(
            f"    server 127.0.0.1:{f.port};" for f in self.front_ends))
        self.change("localai.conf", "listen 80;", f"listen 127.0.0.1:{self.port};")
        self.change("localai.conf", "/run/nginx-weighbridge", str(self.folder / "admins"))
        self.change("localai_locations.conf", "200 401 403 10s;", f"200 401 403 {seconds}s;")
        user = "user root;" if os.geteuid() == 0 else ""
        (self.folder / "nginx.conf").write_text(f'''{user}
worker_processes 2;
pid nginx.pid;
error_log error.log info;
events {{ worker_connections 512; }}
http {{
    client_body_temp_path tmp-body; proxy_temp_path tmp-proxy; fastcgi_temp_path tmp-fastcgi;
    scgi_temp_path tmp-scgi; uwsgi_temp_path tmp-uwsgi;
    access_log access.log combined;
    include weighbridge/weighbridge.conf;
    include weighbridge/localai.conf;
}}
''')

    def change(self, file, old, new):
        path = self.folder / "weighbridge" / file
        text = path.read_text()
        assert text.count(old) == 1, (file, old)
        path.write_text(text.replace(old, new))

    def _listens(self):
        assert self.process.poll() is None, self.log()
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def log(self):
        return "\n".join((self.folder / f).read_text(errors="replace") for f in ("out.log", "error.log", "access.log"))

    def call(self, method, path, headers=None, session=None, **kw):
        return (session or requests).request(method, self.url + path, headers=headers or ADMIN, timeout=HANG_S, **kw)

    def get(self, path="/api/operations", headers=None, **kw):
        return self.call("GET", path, headers, **kw)

    def entries(self):
        answer = self.get()
        assert answer.status_code == 200, answer.text
        return {e["jobID"]: e for e in answer.json()["operations"]}

    def got(self, method, path):
        return [r for f in self.front_ends for r in f.got(method, path)]

    def asked(self):
        return len(self.got("GET", "/api/operations/history"))

    def close(self):
        for front_end in self.front_ends:
            front_end.close()
        self.process.terminate()
        try:
            self.process.wait(HANG_S)
        finally:
            self.process.kill()
            shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def beside(_stack, tmp_path_factory):
    with Beside(_stack, tmp_path_factory.mktemp("beside") / "run", THEIRS) as found:
        # What the web server says counts: of the locations that have asked a front end, and of no others.
        found.env |= {"WB_AUTH_REMOTE_USER_ROLE": "viewer", "WB_AUTH_REMOTE_ADMINS": "localai-admin"}
        found.migrate()
        with found.program() as program:
            program.ready()
            found.service = program
            yield found


@pytest.fixture
def site(stack, beside):
    beside.sql("TRUNCATE " + ", ".join((*THEIRS, "operation_control")))
    found = Site(beside, beside.service)
    yield found
    found.close()


ZERO = "0001-01-01 00:00:00+00"  # Go's


def as_localai_writes(beside):
    """Zero times, status pending while it runs, progress 0-100, empty texts rather than NULL."""
    beside.sql("INSERT INTO model_load_jobs (tracking_key, state, owner_replica, node_id, node_name, replica_index, bytes_sent,"
               " total_bytes, file_index, total_files, started_at, last_progress, created_at, updated_at, last_error) VALUES"
               " ('org/model', 'staging', 'one', 'n1', 'gpu-1', 0, 25, 100, 0, 0, %s, now(), now(), now(), ''),"
               " ('old', 'staging', 'one', 'n1', 'gpu-1', 0, 25, 100, 0, 0, %s, %s, now() - interval '1 hour', %s, '')",
               (ZERO, ZERO, ZERO, ZERO))
    for job, status, progress, phase, error in (("running", "pending", 42.7, "downloading", ""), ("waiting", "pending", 0, "", ""),
                                                ("failed", "failed", 12, "", "disk full"), ("done", "completed", 100, "", "")):
        beside.sql("INSERT INTO gallery_operations (id, user_id, gallery_element_name, cache_key, is_backend_op, op_type, status,"
                   " progress, phase, current_bytes, total_bytes, message, error, file_name, total_file_size,"
                   " downloaded_file_size, frontend_id, cancellable, created_at, updated_at) VALUES (%s, '', %s, '', false,"
                   " 'model_install', %s, %s, %s, 0, 0, '', %s, '', '', '', 'one', true, now(), now())",
                   (job, "localai@" + job, status, progress, phase, error))


# --- reading ---

def test_an_admin_reads_the_operations_and_their_history(site):
    as_localai_writes(site.beside)
    entries = wait_until(lambda: len(site.entries()) == 4 and site.entries(), "the rows")
    assert set(entries) == {"staging:org/model", "running", "waiting", "failed"}
    assert entries["staging:org/model"]["progress"] == 25 and entries["running"]["progress"] == 42
    assert not entries["running"]["isQueued"] and entries["waiting"]["isQueued"]
    assert entries["failed"]["error"] == "disk full"
    history = site.get("/api/operations/history").json()["operations"]
    assert {e["jobID"]: e["outcome"] for e in history} == {"done": "completed", "failed": "failed"}
    assert not site.got("GET", "/api/operations")


def test_head_and_304(site):
    first = site.get()
    assert first.headers["X-Request-Id"] and first.headers["X-Content-Type-Options"] == "nosniff"
    again = site.get(headers={**ADMIN, "If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    head = site.call("HEAD", "/api/operations")
    assert (head.status_code, head.content, head.headers["ETag"]) == (200, b"", first.headers["ETag"])
    assert not any("If-None-Match" in r.headers for r in site.got("GET", "/api/operations/history"))


@pytest.mark.parametrize("name,credential", [
    ("session", {"Cookie": "session={}-session"}), ("bearer", {"Authorization": "Bearer {}-key"}),
    ("x-api-key", {"x-api-key": "{}-key"}), ("xi-api-key", {"xi-api-key": "{}-key"}), ("token", {"Cookie": "token={}-key"})])
def test_who_is_an_admin_is_the_front_ends_to_say(site, name, credential):
    def status(who):
        return site.get(headers={k: v.format(who) for k, v in credential.items()}).status_code
    for _ in range(2):
        assert (name, status("admin"), status("user"), status("nobody")) == (name, 200, 403, 401)
    assert site.asked() == 3


def test_others_are_refused_in_json_and_told_nothing(site):
    as_localai_writes(site.beside)
    for path in ("/api/operations", "/api/operations/history"):
        for headers, expected in ((USER, 403), ({"Cookie": "session=nonsense"}, 401), ({"X-Nothing": "x"}, 401)):
            answer = site.get(path, headers)
            assert check_error(answer, expected) and "running" not in answer.text
            assert answer.headers["Content-Type"] == "application/json" and answer.headers["X-Content-Type-Options"] == "nosniff"
            assert ("WWW-Authenticate" in answer.headers) == (expected == 401)


@pytest.mark.parametrize("name", ["WB-Remote-User", "WB_REMOTE_USER", "Remote-User", "X-Remote-User", "X-Forwarded-User"])
def test_a_header_makes_nobody_a_user(site, name):
    check_error(site.get(headers={name: "localai-admin"}), 401)
    check_error(site.get(headers={name: "localai-admin", **USER}), 403)
    assert site.get(headers={name: "nobody", **ADMIN}).status_code == 200


def test_tokens_of_ours_are_none_here(site):
    """Whom the front ends do not know does not read; and whom they know needs none."""
    for role in ("ADMIN", "VIEWER"):
        check_error(site.get(headers={"Authorization": f"Bearer {site.beside.stack.env[f'WB_{role}_TOKEN']}"}), 401)
    assert site.get(headers={"Authorization": "Bearer admin-key"}).status_code == 200


# --- asking a front end ---

def test_a_front_end_is_asked_once_for_many_polls(site):
    for _ in range(30):
        assert site.get().status_code == 200
        assert site.get(headers=USER).status_code == 403
    assert site.asked() == 2, "once for each caller, whatever its Cache-Control"


def test_it_is_asked_with_credentials_and_nothing_else_of_the_request(site):
    site.get("/api/operations?secret=1", headers={**ADMIN, "Authorization": "Bearer x", "X-Other": "y", "Range": "bytes=0-1"})
    (request,) = site.got("GET", "/api/operations/history")
    assert {k.lower() for k in request.headers} == {"host", "cookie", "authorization", "x-forwarded-proto"}
    assert request.headers["Cookie"] == ADMIN["Cookie"] and request.headers["Host"] == f"127.0.0.1:{site.port}"


def test_what_one_header_holds_is_not_the_same_in_another(site):
    """An answer that is kept is for the same credential in the same place."""
    assert site.get(headers={"Authorization": "Bearer admin-key"}).status_code == 200
    for headers in ({"x-api-key": "Bearer admin-key"}, {"Cookie": "Bearer admin-key"}, {"xi-api-key": "Bearer admin-key"},
                    {"Authorization": "Bearer admin-ke", "Cookie": "y"}):
        check_error(site.get(headers=headers), 401)


def test_long_credentials_are_kept_too(site):
    headers = {"Cookie": "filler=" + "x" * 6000 + "; session=admin-session", "Authorization": "Bearer " + "y" * 6000}
    for _ in range(5):
        assert site.get(headers=headers).status_code == 200
    assert site.asked() == 1


def test_what_a_front_end_said_counts_for_ten_seconds(stack, beside):
    assert "proxy_cache_valid 200 401 403 10s;" in (ROOT / "nginx" / "localai_locations.conf").read_text()
    site = Site(beside, beside.service, seconds=1)
    try:
        assert site.get().status_code == 200 and site.get(headers=USER).status_code == 403
        site.sessions.users |= {"admin-session": "user", "user-session": "admin"}
        wait_until(lambda: site.get().status_code == 403, "an end of what was said")
        wait_until(lambda: site.get(headers=USER).status_code == 200, "what is said now")
    finally:
        site.close()


@pytest.mark.parametrize("path", ["/api/operations", "/api/operations/history"])
def test_a_session_that_was_renewed_while_asking_reaches_the_caller(site, path):
    """A front end ends the old one at once: without the new one the caller would be logged out."""
    with requests.Session() as browser:
        browser.cookies.set("session", "admin-session", domain="127.0.0.1", path="/")
        site.sessions.due.add("admin-session")
        answer = site.call("GET", path, {"X-Nothing": ""}, browser)
        assert answer.status_code == 200 and "admin-session" not in site.sessions.users
        assert browser.cookies.get("session") == "renewed-1" and "HttpOnly" in answer.headers["Set-Cookie"]
        for _ in range(2):
            again = site.call("GET", path, {"X-Nothing": ""}, browser)
            assert again.status_code == 200 and "Set-Cookie" not in again.headers


def test_a_renewed_session_is_nobody_elses(site):
    """An answer with a cookie is not kept."""
    site.sessions.due.add("admin-session")
    assert "Set-Cookie" in site.get().headers
    answer = site.get()
    check_error(answer, 401)
    assert "Set-Cookie" not in answer.headers


def test_while_no_front_end_answers_nobody_is_an_admin(site):
    for front_end in site.front_ends:
        front_end.close()
    answer = site.get()
    assert check_error(answer, 503) and answer.headers["Retry-After"] == "1"


def test_one_front_end_is_enough(site):
    site.front_ends[0].close()
    for n in range(6):
        assert site.get(headers={"Cookie": f"n={n}; session=admin-session"}).status_code == 200
    assert {r.headers["Cookie"] for r in site.front_ends[1].got("GET", "/api/operations/history")} == {
        f"n={n}; session=admin-session" for n in range(6)}


def test_credentials_are_in_no_log_and_in_a_private_folder(site):
    secrets = ("admin-session", "admin-key", "user-session")
    site.get()
    site.get(headers=USER)
    site.get(headers={"Authorization": "Bearer admin-key"})
    site.call("POST", "/api/operations/x/dismiss")
    site.front_ends[0].close()
    site.front_ends[1].close()
    site.get(headers={"Cookie": "session=admin-session; other=1"})
    site.get("/api/models")
    log = wait_until(lambda: "/api/models" in (text := site.log()) and text, "the last request's line")  # written after its answer
    assert not [s for s in secrets if s in log]
    assert not [s for s in secrets if s in site.program.text()]
    kept = [p for p in (site.folder / "admins").rglob("*") if p.is_file()]
    assert kept and stat.S_IMODE((site.folder / "admins").stat().st_mode) == 0o700
    assert all(stat.S_IMODE(p.stat().st_mode) == 0o600 for p in kept)


# --- what is theirs ---

@pytest.mark.parametrize("method,path", [
    ("POST", "/api/operations/running/cancel"), ("POST", "/api/operations/running/pause"), ("DELETE", "/api/operations/history"),
    ("POST", "/api/operations"), ("PATCH", "/api/operations/history"), ("GET", "/api/operations/running/control"),
    ("GET", "/api/operations/"), ("GET", "/api/operationsx"), ("GET", "/api/models?page=2"), ("PUT", "/api/v1/staging/k"),
    ("POST", "/api/v1/load-jobs/k/claim"), ("GET", "/healthz"), ("GET", "/metrics"), ("GET", "/"), ("GET", "/app/index.html")])
def test_everything_else_is_the_front_ends(site, method, path):
    as_localai_writes(site.beside)
    before = site.beside.rows()
    answer = site.call(method, path, {**ADMIN, "Authorization": "Bearer x", "X-Other": "y"}, data=b"body" if method == "POST" else None)
    assert answer.status_code == 200 and answer.json()["from"] in ("one", "two")
    (request,) = site.got(method, path)
    assert (request.headers["Cookie"], request.headers["Authorization"], request.headers["X-Other"]) == (
        ADMIN["Cookie"], "Bearer x", "y")
    assert request.headers["Host"] == f"127.0.0.1:{site.port}" and request.headers["X-Forwarded-For"] == "127.0.0.1"
    assert request.body == (b"body" if method == "POST" else b"")
    assert site.asked() == 0 and site.beside.rows() == before


def test_their_own_refusals_are_not_ours(site):
    for headers, status in (({"X-Nothing": "x"}, 401), (USER, 403)):
        answer = site.call("POST", "/api/operations/running/cancel", headers)
        assert (answer.status_code, answer.json()) == (status, {"error": "theirs"})


@pytest.mark.parametrize("path", ["/api/models/org%2Fmodel%40q4", "/api/x/%e6%a8%A1%2525%7e", "/api/a//b", "/api/a/../b", "/api/./x?q=%2F&r=a+b", "/api/operations/a%2Fb/cancel"])
def test_paths_reach_them_as_they_came(site, path):
    assert raw(site, "POST", path, b"", {**ADMIN, "Authorization": None}).status_code == 200
    assert len(site.got("POST", path)) == 1


def test_streams_reach_the_caller_as_they_are_sent(site):
    with site.get("/sse", stream=True) as answer:
        lines = answer.iter_lines(chunk_size=1)
        assert next(lines) == b"data: 1", "before the front end has sent the second"
        for front_end in site.front_ends:
            front_end.go_on.set()
        assert b"data: 2" in list(lines)


def test_websockets_pass(site):
    with socket.create_connection(("127.0.0.1", site.port), HANG_S) as s, s.makefile("rb") as answer:
        s.sendall(b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        head = b"".join(iter(answer.readline, b"\r\n"))
        assert b" 101 " in head.splitlines()[0] and re.search(rb"(?i)^upgrade: websocket\r?$", head, re.M)
        for word in (b"abc", b"defg"):
            s.sendall(word)
            assert answer.read(len(word)) == word[::-1]


def test_uploads_of_any_length_pass(site):
    assert site.call("POST", "/v1/audio", data=b"x" * 5_000_000).status_code == 200
    (request,) = site.got("POST", "/v1/audio")
    assert len(request.body) == 5_000_000


# --- dismissing ---

DISMISS = "/api/operations/failed/dismiss"


def dismissed(site):
    return site.beside.sql("SELECT job_id FROM operation_control WHERE dismissed_at IS NOT NULL")


@pytest.mark.parametrize("body", [None, b"", b"{}"])
def test_dismiss_goes_to_a_front_end_and_to_us(site, body):
    as_localai_writes(site.beside)
    wait_until(lambda: "failed" in site.entries(), "the failure")
    before = site.beside.rows()
    answer = site.call("POST", DISMISS, {**ADMIN, "Origin": site.url, "Sec-Fetch-Site": "same-origin"}, data=body)
    assert answer.status_code == 200 and answer.json()["from"] in ("one", "two"), "the front end's answer"
    (request,) = site.got("POST", DISMISS)
    assert request.headers["Cookie"] == ADMIN["Cookie"] and request.body == (body or b"")
    wait_until(lambda: "failed" not in site.entries(), "the end of the entry")
    assert dismissed(site) == [("failed",)] and site.beside.rows() == before
    assert "failed" in {e["jobID"] for e in site.get("/api/operations/history").json()["operations"]}


@pytest.mark.parametrize("headers,status", [(USER, 403), ({"X-Nothing": "x"}, 401),
                                            ({"WB-Remote-User": "localai-admin"}, 401)])
def test_who_is_no_admin_dismisses_neither_here_nor_there(site, headers, status):
    as_localai_writes(site.beside)
    check_error(site.call("POST", DISMISS, headers), status)
    assert site.call("POST", "/api/operations/done/dismiss").status_code == 200  # what is mirrored later than the refused one
    assert not site.got("POST", DISMISS) and not dismissed(site)


def test_a_foreign_page_dismisses_nothing_here(site):
    """The check that every unsafe call of ours has gets what it looks at."""
    as_localai_writes(site.beside)
    wait_until(lambda: "failed" in site.entries(), "the failure")
    for headers in ({"Origin": "http://elsewhere.example"}, {"Sec-Fetch-Site": "cross-site"}):
        site.call("POST", DISMISS, {**ADMIN, **headers, "X-Request-Id": "from-elsewhere"})
        site.call("POST", "/api/operations/other/dismiss", {**ADMIN, "Origin": site.url})
        assert not dismissed(site)
    assert "failed" in site.entries()


def test_a_session_that_was_renewed_while_asking_still_dismisses(site):
    as_localai_writes(site.beside)
    site.sessions.due.add("admin-session")
    answer = site.call("POST", DISMISS)
    assert answer.status_code == 200 and "session=renewed-1" in answer.headers["Set-Cookie"]
    wait_until(lambda: dismissed(site), "the acknowledgement")


@pytest.mark.parametrize("job", ["staging%3Aorg%2Fmodel", "no-such-job"])
def test_there_may_be_nothing_to_dismiss(site, job):
    assert site.call("POST", f"/api/operations/{job}/dismiss").status_code == 200
    assert site.get().status_code == 200 and "[error]" not in (site.folder / "error.log").read_text()


# --- without us ---

def test_the_site_goes_on_while_weighbridge_is_down(stack, beside, tmp_path):
    with Program(stack, WB_RUNTIME_DIR=str(tmp_path / "run"), **beside.env) as program:
        program.ready()
        site = Site(beside, program)
        try:
            assert site.get().status_code == 200
            program.process.terminate()
            program.process.wait(HANG_S)
            site.sessions.due.add("admin-session")
            answer = site.get()
            assert check_error(answer, 503) and answer.headers["Retry-After"] == "1"
            cookie = {"Cookie": "session=admin-session"}
            answer = site.get(headers=cookie)
            assert check_error(answer, 503), "asked anew, as the key is another"
            assert "session=renewed-1" in answer.headers["Set-Cookie"], "or the caller would be logged out"
            renewed = {"Cookie": "session=renewed-1"}
            assert site.get("/api/models", renewed).status_code == 200
            assert site.call("POST", DISMISS, renewed).status_code == 200
        finally:
            site.close()
