# SPDX-License-Identifier: Apache-2.0
"""What a newcomer does first: ./dev itself, and the limits of the web server that it starts."""
import re
import socket
import subprocess
from pathlib import Path

import pytest
from conftest import HANG_S, ROOT, Stack, free_port, wait_until


def try_dev(stack, *args, **environ):
    return subprocess.run(
        [ROOT / "dev", *args], env={**stack.environ, **environ}, cwd=ROOT, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=180, check=False)


def test_demo_succeeds_and_leaves_no_entry(stack):
    stack.dev("start", "agent")
    said = stack.dev("demo")
    landed = re.search(r"^landed, verified: (\S+);.*\n  (\S+)  node  rack-1  landed$", said, re.M)
    assert landed and landed[1].endswith("/node/demo/versions/" + landed[2]), said
    assert {p.name: p.stat().st_size for p in Path(landed[1], "files").iterdir()} == \
        {p.name: p.stat().st_size for p in (stack.var / "demo" / "source").iterdir()}
    shown = [int(p) for p in re.findall(r"^ *(\d+) %.* node ", said, re.M)]
    assert shown and shown == sorted(shown), said
    assert "the entry is gone" in said
    assert stack.entry("demo-model") is None
    jobs = said.split("submitted 3 batch jobs")[1]
    for job, end in (("nightly-eval", "completed"), ("product-texts", "completed"), ("embeddings", "cancelled")):
        assert re.search(rf"^  {job} +{end} ", jobs, re.M), said
    assert re.search(r"^  [0-9:.]+  queued\n  [0-9:.]+  planned\n  [0-9:.]+  resource_preparing\n  [0-9:.]+  submitting\n", jobs, re.M), said
    assert "running" not in re.search("^planner .*$", stack.dev("status"), re.M)[0]  # its planner was its own


def test_demo_whose_key_is_taken_leaves_the_copy_of_the_other_alone(stack):
    token = stack.claim("demo-model")
    kept = stack.var / "demo" / "copy" / "kept"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text("the other's")
    done = try_dev(stack, "demo")
    assert done.returncode == 1
    assert "somebody else is loading demo-model" in done.stdout
    assert kept.read_text() == "the other's"
    assert stack.load("demo-model", token, state="staging").status_code < 300


def test_demo_that_cannot_copy_gives_its_claim_back(stack):
    source = stack.var / "bad-source"
    source.mkdir()
    (source / "a").write_bytes(b"x")
    (source / ("b" * 254)).write_bytes(b"x")  # its copy's name would be too long
    done = try_dev(stack, "demo", str(source))
    assert done.returncode == 1
    assert "the copy failed" in done.stdout
    wait_until(lambda: stack.entry("demo-model") is None, "the entry to go")
    stack.claim("demo-model")


@pytest.fixture
def other():
    """A second stack, not started."""
    other = Stack()
    try:
        yield other
    finally:
        other.down()


def test_up_on_a_port_of_another_server_says_so(other):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", other.port))
        taken.listen()
        done = try_dev(other, "up")
    assert done.returncode != 0
    assert f"port {other.port} is taken" in done.stdout
    assert "is up at" not in done.stdout
    assert "running" not in other.dev("status")


def test_up_on_the_port_of_another_weighbridge_says_so(stack, other):
    done = try_dev(other, "up", WB_DEV_PORT=str(stack.port))
    assert done.returncode != 0
    assert f"port {stack.port} is taken" in done.stdout


def test_nginx_that_could_not_bind_is_not_taken_for_the_server_that_answers(other):
    """Held without listening: the look at the port beforehand finds nothing there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", other.port))
        done = try_dev(other, "up", "nginx")
    assert done.returncode != 0
    assert "nginx did not start" in done.stdout
    assert str(other.port) in done.stdout


def test_nginx_asks_the_batch_service_of_the_configuration_unless_its_file_was_edited(other):
    ini, conf = other.var / "weighbridge.ini", other.var / "nginx" / "weighbridge" / "batch.conf"

    def restart(**environ):
        for words in (("stop", "nginx"), ("start", "nginx")):
            done = try_dev(other, *words, **environ)
            assert done.returncode == 0, done.stdout
        return done.stdout
    restart()
    shipped = (ROOT / "nginx" / "batch.conf").read_text()
    assert conf.read_text() == shipped
    ini.write_text(ini.read_text() + "[batch]\nurl = http://localhost:8765/v1\ntoken = a-token\n")
    restart()
    assert "server localhost:8765;" in conf.read_text() and 'default "Bearer a-token";' in conf.read_text()
    assert conf.stat().st_mode & 0o777 == 0o600
    restart(WB_BATCH_URL="http://127.0.0.1:8766", WB_BATCH_TOKEN="b-token")
    assert "server 127.0.0.1:8766;" in conf.read_text() and 'default "Bearer b-token";' in conf.read_text()
    mine = conf.read_text().replace("keepalive 8", "keepalive 9")
    conf.write_text(mine)
    assert "was edited" in restart()
    assert conf.read_text() == mine


def test_up_again_is_fine_but_not_on_another_port(stack):
    stack.dev("up")
    done = try_dev(stack, "up", WB_DEV_PORT=str(free_port()))
    assert done.returncode != 0
    assert f"runs on port {stack.port}" in done.stdout
    assert "./dev down" in done.stdout
    assert stack.get("/healthz").status_code == 200


def test_the_agent_is_a_service_like_any_other(stack):
    def state():
        return re.search(r"^agent +(\w+)", stack.dev("status"), re.M)[1]

    def alive():
        return stack.get("/api/v1/nodes/node").json().get("alive")

    stack.dev("start", "agent")
    wait_until(alive, "the node")
    stack.dev("freeze", "agent")
    assert state() == "frozen"
    stack.dev("thaw", "agent")
    assert state() == "running"
    stack.dev("reload", "agent")
    stack.dev("stop", "agent")
    assert state() == "stopped"
    said = (stack.var / "log" / "agent.log").read_text()
    assert "the configuration was read again" in said and "leaving" in said


def test_a_configuration_of_before_there_was_an_agent_gets_its_section(other):
    other.var.mkdir(exist_ok=True)
    ini = other.var / "weighbridge.ini"
    ini.write_text("[runtime]\nlog_level = info\n")
    assert try_dev(other, "start", "redis").returncode == 0
    assert ini.read_text().startswith("[runtime]\nlog_level = info\n[agent]\nnode = node\n")
    assert try_dev(other, "stop", "redis").returncode == 0
    assert ini.read_text().count("[agent]") == 1


def test_two_planners_run_and_are_stopped_frozen_and_thawed_together(stack):
    log = stack.var / "log" / "planner.log"

    def owners():
        return set(re.findall(r"owner=(\S+)", log.read_text(errors="replace"))) if log.exists() else set()
    before = owners()
    stack.dev("start", "planner")

    def processes():
        return [int(pid) for pid in re.search("^planner .*processes: ([0-9 ]+)$", stack.dev("status"), re.M)[1].split()]

    def states():
        return {Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] for pid in processes()}
    wait_until(lambda: len(owners() - before) == 2, "two planners")
    assert len(processes()) == 3  # and their supervisor
    stack.dev("freeze", "planner")
    wait_until(lambda: states() == {"T"}, "all frozen")
    stack.dev("thaw", "planner")
    wait_until(lambda: "T" not in states(), "none frozen")
    stack.dev("stop", "planner")
    assert re.search("^planner +stopped *$", stack.dev("status"), re.M)


def test_readme_has_the_lines_that_up_prints(stack):
    def lines(text):
        text = re.sub(r"http://127\.0\.0\.1:\d+", "URL", text)
        text = re.sub(r"'?[^ '@>]*/((viewer|worker|submitter)\.token|first\.jsonl)'?", r"\1", text)
        return [line.strip() for line in text.splitlines() if line.lstrip().startswith(("curl ", "echo ", "FILE="))]
    printed = lines(stack.dev("up"))
    assert len(printed) == 7
    assert lines((ROOT / "README.md").read_text(encoding="utf8")) == printed


@pytest.mark.parametrize("words", [("down", "--wpie"), ("down", "--wipe", "x"), ("status", "nginx"), ("env", "x"), ("logs", "nginx", "jobs")])
def test_unknown_arguments_are_refused(stack, words):
    done = try_dev(stack, *words)
    assert done.returncode != 0
    assert f"does not take '{words[-1]}'" in done.stdout
    assert stack.get("/healthz").status_code == 200


def test_what_cannot_be_done_to_a_service_is_said(other):
    thawed, reloaded = try_dev(other, "thaw", "jobs"), try_dev(other, "reload", "postgres")
    assert (thawed.returncode, thawed.stdout) == (0, "jobs does not run\n")  # nothing is frozen, as was wanted
    assert reloaded.returncode != 0 and "not reloaded" in reloaded.stdout


@pytest.mark.parametrize("name", ["with space", "with'quote"])
def test_a_path_that_make_cannot_have_is_refused_in_one_line(other, name):
    done = try_dev(other, "build", WB_DEV_BUILD=str(other.var / name))
    assert done.returncode != 0
    assert len(done.stdout.splitlines()) == 1
    assert str(other.var / name) in done.stdout


def test_headers_that_no_fastcgi_record_holds_are_refused_in_json(stack):
    for path in ("/api/operations", "/api/v1/operations", "/api/v1/staging/m", "/nothing"):
        answer = stack.get(path, headers={f"X-Long-{n}": "x" * 20000 for n in range(7)})
        assert answer.status_code == 431, answer.text
        assert set(answer.json()) == {"error", "request_id"}


def test_headers_within_the_limits_pass_whatever_the_address(stack):
    cookie = {"Cookie": "x" * 20000}
    for path in ("/api/operations", "/metrics", "/healthz"):
        assert stack.get(path, headers=cookie).status_code == 200
    for path in ("/healthz", "/api/operations"):
        answer = stack.get(path + "?x=" + "y" * 20000, headers=cookie)
        assert answer.status_code < 500, answer.text
        assert answer.headers["Content-Type"].startswith("application/json")


def test_no_headers_within_the_limits_are_too_many_for_fastcgi(stack):
    """As parameters many tiny ones are longer than they were in the request, which nginx finds out too late for 4xx."""
    for path in ("/api/operations", "/api/operations/history", "/api/v1/staging", "/api/v1/jobs", "/metrics"):
        for query, lines, value in ((0, 990, 1), (0, 990, 17), (20300, 990, 0), (20300, 990, 17), (20300, 490, 37)):
            address = path + ("?" + "y" * query if query else "")
            head = (f"GET {address} HTTP/1.1\nHost: x\nConnection: close\n"
                    f"Authorization: Bearer {stack.env['WB_ADMIN_TOKEN']}\n")
            with socket.create_connection(("127.0.0.1", stack.port), HANG_S) as s:
                s.sendall((head + ("a:" + "v" * value + "\n") * lines + "\n").encode())
                got = b"".join(iter(lambda c=s: c.recv(65536), b""))
            status = int(got.split()[1])
            assert status < 500 and b"Content-Type: " in got, (address[:40], lines, value, got[:300])
            assert status == 200 or query, (path, lines, value, got[:300])


def test_the_web_server_passes_on_what_handlers_read():
    """fastcgi_parameters.conf names each header by itself: one that it forgets is one that no handler ever sees."""
    elsewhere = {"SCRIPT_NAME", "PATH_INFO",  # CGI's
                 "WB_REMOTE_USER", "WB_ORIGINAL_URI", "WB_ORIGINAL_METHOD", "WB_BODY_FILE", "WB_FILES_PATH",
                 "WB_DIALECT"}  # of the locations that have them
    sources = [p.read_text() for folder in ("lib", "handlers", "daemons") for p in (ROOT / folder).rglob("*.c")]
    read = {name for text in sources for name in re.findall(r'fcgi_env\(\s*[^"()]+,\s*"([A-Z_]+)"\)', text)}
    passed = set(re.findall(r"^fastcgi_param (\w+)", (ROOT / "nginx" / "fastcgi_parameters.conf").read_text(), re.M))
    assert len(read) > 8 and read - elsewhere == passed


def test_slow_readers_of_long_answers_hold_no_handler_thread(stack):
    """Many more of them than threads: their answers wait in nginx."""
    for n in range(1500):
        stack.put_overlay(f"org/model-{n}-" + "x" * 200, node_name="n1", file_name="f", bytes_sent=1, total_bytes=2, message="m" * 1900)
    wait_until(lambda: len(stack.operations()) == 1500, "all of them")
    assert len(stack.get("/api/operations").content) > 3_000_000
    request = (f"GET /api/operations HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {stack.env['WB_ADMIN_TOKEN']}\r\n\r\n").encode()
    slow = []
    try:
        for _ in range(80):
            s = socket.socket()
            slow.append(s)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.connect(("127.0.0.1", stack.port))
            s.sendall(request)
        for s in slow:
            assert s.recv(12) == b"HTTP/1.1 200"
        for _ in range(50):
            assert stack.get("/api/operations").status_code == 200
    finally:
        for s in slow:
            s.close()
