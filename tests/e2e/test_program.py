# SPDX-License-Identifier: Apache-2.0
"""The program itself: its command line, the ways it can be started, and what it never tells. Design, "Configuration",
"Processes"; docs/config.md."""
import os
import re
import signal
import socket
import stat
import subprocess

import pytest

from conftest import HANG_S, ROOT, wait_until
from program import Program, answer_of, ask, binary, cgi, connect, ini_of, run, split, whole_request

SECRET = "correct-horse-battery-staple"


# --- command line ---

def test_the_option_list_is_the_one_of_the_program(stack):
    assert run(stack, "--print-config=markdown") == (0, (ROOT / "docs" / "config.md").read_text(), "")


def test_help_and_version(stack):
    status, out, err = run(stack, "--help")
    assert (status, err) == (0, "")
    for option in ("--config", "--check", "--print-config", "--version"):
        assert option in out
    status, out, err = run(stack, "--version")
    assert (status, err) == (0, "") and out.startswith("weighbridge-operations ") and out.count("\n") == 1


@pytest.mark.parametrize("args", [["--colour"], ["surprise"], ["--config"], ["--print-config=html"], ["--check", "x"]])
def test_an_unknown_option_ends_with_2_and_says_where_help_is(stack, args):
    status, out, err = run(stack, *args)
    assert (status, out) == (2, "") and "--help" in err


def test_check_tells_what_is_wrong(stack, tmp_path):
    assert run(stack, "--config", ini_of(stack), "--check") == (0, "ok\n", "")
    for text, says in (("[db]\ncolour = blue\n", "colour"), ("[fcgi]\nthreads = 1\n", "threads"), ("x\n", "1"),
                       ("[auth]\nmode = closed\n", "mode"), ("[nothing]\na = b\n", "nothing"), ("[bogus]\n", "[bogus]: no such section"),
                       ("[auth]\nmode = open\n[runtime]\nlog_level = loud\n", "log_level"),
                       ("[auth]\nmode = open\n[redis]\nurl = x\n", "[redis] url")):
        bad = tmp_path / "bad.ini"
        bad.write_text(text)
        status, out, err = run(stack, "--config", str(bad), "--check")
        assert status == 1 and not out and says in err, (text, err)
    status, _, err = run(stack, "--config", str(tmp_path / "none.ini"), "--check")
    assert status == 1 and "none.ini" in err


def test_without_a_batch_service_the_planners_check_warns(stack):
    status, out, err = run(stack, "--config", ini_of(stack), "--check", name="weighbridge-planner")
    assert (status, out) == (0, "ok\n") and "no [batch] url" in err and "level=warn" in err
    env = {**os.environ, "WB_BATCH_URL": "http://127.0.0.1:1"}
    assert run(stack, "--config", ini_of(stack), "--check", name="weighbridge-planner", env=env) == (0, "ok\n", "")


def test_the_planner_has_no_cgi_and_says_what_stands_alone(stack):
    assert "CGI environment" in run(stack, "--help")[1]
    assert "CGI environment" not in run(stack, "--help", name="weighbridge-planner")[1]
    status, out, err = run(stack, "--config", ini_of(stack), "--dump-faults", name="weighbridge-planner")
    assert (status, out) == (2, "") and "--dump-faults must stand alone" in err


def test_without_any_configuration_it_names_what_it_looked_for(stack):
    env = {k: v for k, v in os.environ.items() if not k.startswith("WB_")}
    usual = re.search(r"else (/\S+/weighbridge\.ini)", run(stack, "--help")[1])[1]
    if os.path.exists(usual):
        pytest.skip("there is one")
    status, _, err = run(stack, "--check", env=env)
    assert status == 1 and f"there is no {usual}" in err


def test_a_second_migration_has_nothing_to_do(stack):
    args = ("--config", ini_of(stack), "--sql", str(ROOT / "sql"))
    status, out, err = run(stack, *args, name="weighbridge-migrate")
    assert (status, out) == (0, "") and "applied=0" in err
    status, out, err = run(stack, *args[:2], "--sql", "/nowhere", name="weighbridge-migrate")
    assert (status, out) == (1, "") and "/nowhere" in err


def test_print_config_shows_what_counts_but_no_secrets(stack):
    env = {**os.environ, "WB_DB_URL": f"host=/nowhere password={SECRET}",
           "WB_REDIS_URL": f"redis://:{SECRET}@127.0.0.1:1/0", "WB_FCGI_THREADS": "7"}
    status, out, err = run(stack, "--config", ini_of(stack), "--print-config", env=env)
    assert (status, err) == (0, "")
    assert "threads = 7" in out and f"token_file = {stack.var}/tokens" in out
    assert SECRET not in out and "/nowhere" not in out


@pytest.mark.parametrize("file,says", [("", "token_file"), ("/nowhere/tokens", "/nowhere/tokens")])
def test_without_a_token_file_it_does_not_start(stack, tmp_path, file, says):
    env = {**os.environ, "WB_AUTH_TOKEN_FILE": file, "WB_RUNTIME_DIR": str(tmp_path / "run")}
    for how in ([], ["--check"], ["--worker"]):
        status, out, err = run(stack, "--config", ini_of(stack), *how, env=env)
        assert status == 1 and not out and says in err, (how, err)
    assert not (tmp_path / "run" / "operations.sock").exists()


# --- how it is started ---

@pytest.mark.parametrize("umask", [0o077, 0o000, 0o777])
def test_the_sockets_mode_is_0660_whatever_the_umask(stack, tmp_path, umask):
    """Report 7 (test_reports.py)."""
    folder = tmp_path / "run"
    folder.mkdir()
    with Program(stack, WB_RUNTIME_DIR=str(folder), umask=umask) as program:
        program.ready()
        assert stat.S_IMODE(program.socket.stat().st_mode) == 0o660
        assert ask(program.socket, "/healthz") == (200, '{"status":"ok"}')


def test_with_a_listening_socket_as_descriptor_0_it_serves(stack, tmp_path):
    """As spawn-fcgi and systemd start it: no supervisor, no socket of its own."""
    path = tmp_path / "given.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(64)
        with Program(stack, stdin=listening.fileno(), WB_RUNTIME_DIR=str(tmp_path / "run")) as program:
            wait_until(lambda: ask(path, "/healthz")[0] == 200, "an answer")
            assert stack.stage("k").status_code == 204
            status, body = ask(path, "/api/operations", token=stack.env["WB_VIEWER_TOKEN"])
            assert status == 200 and '"staging:k"' in body
            assert program.workers() == [] and not (tmp_path / "run" / "operations.sock").exists()
            os.kill(program.pid, signal.SIGTERM)
            assert program.process.wait(HANG_S) == 0


def given_socket(path):
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen(512)
    return listening


def test_without_a_runtime_folder_it_asks_the_stores_itself(stack, tmp_path):
    """Slower, and no less right: what is acknowledged is in the next poll."""
    path, folder = tmp_path / "given.sock", tmp_path / "a-file"
    folder.write_text("in the way")
    with given_socket(path) as listening, Program(stack, stdin=listening.fileno(), WB_RUNTIME_DIR=str(folder)) as program:
        for i in range(5):
            key = f"/api/v1/staging/k{i}"
            assert ask(path, key, method="PUT", token=stack.env["WB_WORKER_TOKEN"], body=b'{"node_name":"n"}')[0] == 204
            status, body = ask(path, "/api/operations", token=stack.env["WB_VIEWER_TOKEN"])
            assert status == 200 and f'"staging:k{i}"' in body
        assert program.text().count('msg="no shared memory"') == 1
    assert folder.read_text() == "in the way"


def test_a_socket_that_cannot_be_made_ends_it_with_a_word(stack):
    env = {**os.environ, "WB_OPERATIONS_SOCKET": "/nowhere/operations.sock"}
    status, out, err = run(stack, "--config", ini_of(stack), env=env)
    assert (status, out) == (1, "") and "/nowhere/operations.sock" in err


@pytest.mark.parametrize("limit", [100, 160])
def test_connections_leave_the_descriptors_that_stores_need(stack, tmp_path, limit):
    """With a limit below [fcgi] max_conns, idle clients may take all but a reserve; further ones wait in the backlog."""
    path, kept = tmp_path / "given.sock", []
    ini = ["--config", ini_of(stack)]
    with given_socket(path) as listening, Program(
            stack, [f"--nofile={limit}:{limit}", binary(stack), *ini], stdin=listening.fileno(), program="prlimit",
            WB_RUNTIME_DIR=str(tmp_path / "run")):
        try:
            first = connect(path)
            kept.append(first)
            for _ in range(3 * limit):
                kept.append(connect(path))
            for uri in ("/readyz", "/api/operations", "/api/v1/staging", "/api/v1/load-jobs") * 5:
                first.sendall(whole_request(uri, keep=True, token=stack.env["WB_VIEWER_TOKEN"]))
                assert answer_of(first)[0] == 200, uri
        finally:
            for s in kept:
                s.close()
        assert ask(path, "/healthz")[0] == 200


def test_as_cgi_it_answers_like_the_service(stack):
    stack.stage("k", file_name="f", bytes_sent=1, total_bytes=4)
    stack.load("row", stack.claim("row"), state="staging", node_name="n", bytes_sent=1, total_bytes=2)
    for uri in ("/api/operations", "/api/v1/staging", "/api/v1/staging/k", "/healthz", "/readyz"):
        assert cgi(stack, "GET", uri) == (200, stack.get(uri).text), uri
    assert cgi(stack, "GET", "/cgi-bin/wb/api/v1/staging/k", SCRIPT_NAME="/cgi-bin/wb",
               PATH_INFO="/api/v1/staging/k")[1] == stack.get("/api/v1/staging/k").text
    assert cgi(stack, "GET", "/api/operations", HTTP_AUTHORIZATION="Bearer x")[0] == 401
    assert cgi(stack, "GET", "/nowhere")[0] == 404
    assert cgi(stack, "PUT", "/api/v1/staging/k", "worker", b"{")[0] == 400
    status, body = cgi(stack, "HEAD", "/api/operations")
    assert (status, body) == (200, "")


def test_what_a_cgi_process_did_is_in_the_next_poll_of_the_service(stack):
    for i in range(10):
        stack.operations()
        assert cgi(stack, "PUT", f"/api/v1/staging/k{i}", "worker", b'{"node_name":"n"}') == (204, "")
        assert stack.entry(f"k{i}"), "seen at once"
        assert cgi(stack, "DELETE", f"/api/v1/staging/k{i}", "worker") == (204, "")
        assert stack.entry(f"k{i}") is None, "gone at once"


# --- what is never told ---

def test_no_log_holds_a_token_a_claim_or_a_password(stack, tmp_path):
    """At the chattiest level, with stores that answer and stores that do not."""
    url = stack.env["WB_PGURL"]
    tokens = [stack.env[f"WB_{role}_TOKEN"] for role in ("ADMIN", "WORKER", "VIEWER")]
    logs = []
    for n, stores in enumerate((
            {"WB_DB_URL": f"{url}&password={SECRET}"},
            {"WB_DB_URL": f"host=/nowhere password={SECRET}", "WB_REDIS_URL": f"redis://:{SECRET}@127.0.0.1:1"},
            {"WB_DB_URL": f"password={SECRET} nonsense", "WB_REDIS_URL": f"redis://:{SECRET}@"},
            {"WB_DB_URL": f"postgresql://u:{SECRET}@[::1/x"})):
        with Program(stack, WB_RUNTIME_DIR=str(tmp_path / f"run{n}"), WB_RUNTIME_LOG_LEVEL="debug", **stores) as program:
            wait_until(lambda p=program: p.process.poll() is not None or 'msg="worker ready"' in p.text(), "a start")
            if program.process.poll() is None:
                program.ready()
                for token in (*tokens, "a-wrong-token-" + SECRET):
                    for uri in ("/api/operations", "/api/v1/load-jobs", "/api/v1/staging", "/readyz"):
                        ask(program.socket, uri, token=token)
                ask(program.socket, f"/api/v1/load-jobs/k{n}/claim", method="POST", token=tokens[1],
                    body=f'{{"owner":"o","x":"{SECRET}"}}'.encode())
                ask(program.socket, f"/api/v1/load-jobs/k{n}", method="PUT", token=tokens[1],
                    body=f'{{"claim_token":"{SECRET}"}}'.encode())
            logs.append(program.text())
    claim = stack.claim("k")
    assert stack.load("k", claim, state="staging", bytes_sent=1).status_code == 200
    assert stack.load("k", SECRET).status_code == 409
    assert stack.call("POST", "/api/v1/load-jobs/k/fail", {"claim_token": claim, "error": "why"},
                      token="worker").status_code == 204
    stack.get("/api/operations", token=None, headers={"Authorization": "Bearer " + SECRET})
    files = [*(stack.var / "log").iterdir(), *(stack.var / "nginx").glob("*.log")]
    logs += [f.read_text(errors="replace") for f in files]
    assert "msg=request" in logs[0] and "does not answer" in logs[1]
    assert len(files) >= 6 and sum(map(len, logs)) > 10000
    for secret in (*tokens, claim, SECRET):
        assert not [log for log in logs if secret in log]
