# SPDX-License-Identifier: Apache-2.0
"""The whole stack for the end-to-end tests: started by ./dev in a folder and on a port of its own."""
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg2
import pytest
import redis
import requests

ROOT = Path(__file__).resolve().parents[2]
# Tests that need a planner or an agent start their own: others want jobs and assignments to stay as they put them.
SERVICES = ("postgres", "redis", "operations", "jobs", "artifacts", "nginx")
ZONE = "Asia/Shanghai"
ROLE_HAS = {"statement_timeout": "3s", "lock_timeout": "251ms", "idle_in_transaction_session_timeout": "4s"}
HANG_S = 30  # guards against hanging for ever: several times what any rule allows


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until(probe, what, timeout_s=HANG_S):
    """Polls until probe() is true; the timeout is a hang guard, not a rule."""
    end = time.monotonic() + timeout_s
    while True:
        value = probe()
        if value:
            return value
        assert time.monotonic() < end, f"never came: {what}"
        time.sleep(0.02)  # the pace of looking


def patiently(call):
    """The answer to call(), said again while it is 503, as every client does, and whether it had to be: on a starved
    machine, where the deadline passes, nobody can tell whether what was said first was done."""
    tries = []
    wait_until(lambda: tries.append(call()) or tries[-1].status_code != 503, "an answer other than 503")
    assert all(t.headers["Retry-After"] for t in tries[:-1])
    return tries[-1], len(tries) > 1


def at_once(calls):
    """The answers to calls that begin at the same moment, in their order, and how many had to be said again."""
    barrier = threading.Barrier(len(calls))

    def one(call):
        barrier.wait(HANG_S)
        return patiently(call)
    with ThreadPoolExecutor(len(calls)) as pool:
        answers = list(pool.map(one, calls))
    return [a for a, _ in answers], sum(again for _, again in answers)


def exactly_one(answers, again, won, lost):
    """The one of answers that won; all others lost. None: one that had to be said again had won before."""
    winners = [a for a in answers if a.status_code == won]
    told = [a.status_code for a in answers]
    assert len(winners) == 1 or (not winners and again), told
    assert told.count(lost) == len(answers) - len(winners), told
    return winners[0] if winners else None


class Stack:
    def __init__(self, extra_env=None):
        self.var = Path(tempfile.mkdtemp(prefix="wb-e2e-", dir="/tmp"))
        self.var.chmod(0o755)
        self.port = free_port()
        self.environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith("WB_")},
            "WB_DEV_VAR": str(self.var),
            "WB_DEV_PORT": str(self.port),
            "WB_DEV_NO_BUILD": "1",
            "WB_DEV_FAST": "1",
            **{k: v for k, v in os.environ.items() if k == "WB_DEV_BUILD"},
            **(extra_env or {}),
        }
        self.env = {}
        self.pooler = None

    def dev(self, *args):
        done = subprocess.run(
            [str(ROOT / "dev"), *args], env=self.environ, cwd=ROOT, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=180, check=False)
        assert done.returncode == 0, f"./dev {' '.join(args)}:\n{done.stdout}"
        return done.stdout

    def up(self):
        if os.environ.get("WB_TEST_POOLED"):
            self.pool()
        self.dev("up", *SERVICES)
        for line in self.dev("env").splitlines():
            words = shlex.split(line)
            if words and words[0] == "export":
                words = words[1:]
            for word in words:
                key, sep, value = word.partition("=")
                if sep:
                    self.env[key] = value
        self.url = self.env["WB_URL"]

    @contextmanager
    def postgres(self):
        """As its superuser."""
        sockets = (self.var / "run" / "pg").resolve()
        with closing(psycopg2.connect(host=str(sockets), user="postgres", dbname="postgres")) as connection:
            connection.autocommit = True
            yield connection.cursor()

    def pool(self):
        """Whatever is started from now on reaches Postgres through a PgBouncer in transaction mode, and does not have
        UTC; the tests themselves go to Postgres."""
        self.dev("up", "postgres")
        sockets = (self.var / "run" / "pg").resolve()
        with self.postgres() as cursor:
            cursor.execute(f"ALTER SYSTEM SET timezone = '{ZONE}'")
            cursor.execute("SELECT pg_reload_conf()")
            for name, value in ROLE_HAS.items():  # what sessions set for themselves where there is no pooler
                cursor.execute(f"ALTER ROLE weighbridge SET {name} = '{value}'")
        folder = self.var / "pooler"
        folder.mkdir()
        self.pooler = subprocess.Popen([str(ROOT / "tests" / "dev" / "pooler.sh"), str(folder), str(sockets)],
                                       stdin=subprocess.DEVNULL, stderr=open(folder / "log", "wb"))
        wait_until(lambda: self.pooler.poll() is not None or (folder / ".s.PGSQL.6432").exists(), "a pooler")
        self.environ |= {"TZ": ZONE, "WB_DB_PREPARED": "off",
                         "WB_DB_URL": f"host={folder} port=6432 user=weighbridge dbname=weighbridge"}

    @contextmanager
    def pooled(self):
        """So for a while: for what is started meanwhile."""
        if self.pooler:
            yield
            return
        before = dict(self.environ)
        self.pool()
        try:
            yield
        finally:
            self.environ = before
            self.end_pooler()
            with self.postgres() as cursor:
                cursor.execute("ALTER ROLE weighbridge RESET ALL")
                cursor.execute("ALTER SYSTEM RESET timezone")
                cursor.execute("SELECT pg_reload_conf()")

    def end_pooler(self):
        if self.pooler:
            self.pooler.terminate()
            self.pooler.wait(HANG_S)
            shutil.rmtree(self.var / "pooler")
            self.pooler = None

    def down(self):
        self.dev("down")
        self.end_pooler()
        shutil.rmtree(self.var, ignore_errors=True)

    # --- HTTP ---

    def call(self, method, path, body=None, token="admin", session=None, **kw):
        headers = kw.pop("headers", {})
        if token:
            headers = {"Authorization": "Bearer " + self.env[f"WB_{token.upper()}_TOKEN"], **headers}
        return (session or requests).request(
            method, self.url + path, json=body, headers=headers, timeout=HANG_S, **kw)

    def get(self, path, **kw):
        return self.call("GET", path, **kw)

    def operations(self, **kw):
        answer = self.get("/api/operations", **kw)
        assert answer.status_code == 200, answer.text
        assert list(answer.json()) == ["operations"]
        return answer.json()["operations"]

    def entry(self, key, **kw):
        found = [o for o in self.operations(**kw) if o["id"] == "staging:" + key]
        assert len(found) <= 1, found
        return found[0] if found else None

    def claim(self, key, owner="test-owner"):
        answer = self.call("POST", f"/api/v1/load-jobs/{quote(key, safe='')}/claim",
                           {"owner": owner}, token="worker")
        assert answer.status_code == 201, answer.text
        return answer.json()["claim_token"]

    def load(self, key, token, method="PUT", **fields):
        return self.call(method, f"/api/v1/load-jobs/{quote(key, safe='')}",
                         {"claim_token": token, **fields}, token="worker")

    def stage(self, key, **fields):
        return self.call("PUT", f"/api/v1/staging/{quote(key, safe='')}",
                         {"node_name": "n1", **fields}, token="worker")

    def admit(self, job, **fields):
        return self.call("POST", "/api/v1/operations",
                         {"id": job, "gallery_element_name": "m", "op_type": "model_install", **fields}, token="worker")

    def report(self, job, **fields):
        return self.call("PUT", f"/api/v1/operations/{quote(job, safe='')}", fields, token="worker")

    def act(self, job, what):
        return self.call("POST", f"/api/operations/{quote(job, safe='')}/{what}")

    def job(self, job, **kw):
        found = [o for o in self.operations(**kw) if o["jobID"] == job]
        assert len(found) <= 1, found
        return found[0] if found else None

    # --- stores ---

    def pg(self):
        connection = psycopg2.connect(self.env["WB_PGURL"])
        connection.autocommit = True
        return connection

    def sql(self, text, args=None):
        connection = self.pg()
        try:
            with connection.cursor() as cursor:
                cursor.execute(text, args)
                return cursor.fetchall() if cursor.description else cursor.rowcount
        finally:
            connection.close()

    def kv(self):
        return redis.Redis(unix_socket_path=self.env["WB_REDIS"].removeprefix("unix:"),
                           socket_timeout=HANG_S)

    def gallery_row(self, job, **columns):
        """A row as another program would write it."""
        columns = {"id": job, "gallery_element_name": job, "op_type": "model_install", "status": "pending",
                   "updated_at": "now", "created_at": "now", **columns}
        names = ", ".join(columns)
        self.sql(f"INSERT INTO gallery_operations ({names}) VALUES ({', '.join(['%s'] * len(columns))})",
                 list(columns.values()))

    def empty(self):
        self.sql("TRUNCATE model_load_jobs, gallery_operations, load_job_claims, operation_control")
        self.kv().flushdb()
        wait_until(lambda: self.get("/api/operations").text == '{"operations":[]}', "an empty list")

    def put_overlay(self, key, ttl_s=60, raw=None, kind="staging", **fields):
        """An overlay as another program would write it: value and index member."""
        kv = self.kv()
        seconds, micros = kv.time()
        value = raw if raw is not None else json.dumps({"model_id" if kind == "staging" else "job_id": key, **fields})
        kv.set(f"wb:1:{kind}:{key}", value, px=int(ttl_s * 1000))
        kv.zadd("wb:1:live", {f"{kind}:{key}": seconds * 1000 + micros // 1000 + ttl_s * 1000})

    # --- processes ---

    def processes(self):
        """PIDs of this stack's operations program: (supervisor, [workers])."""
        supervisor, workers = None, []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                argv = (entry / "cmdline").read_bytes().split(b"\0")
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if not argv or b"weighbridge-operations" not in argv[0] or state == "Z":
                continue
            if not any(str(self.var).encode() in a for a in argv):
                continue
            if b"--worker" in argv:
                workers.append(int(entry.name))
            else:
                supervisor = int(entry.name)
        return supervisor, workers

    def kill_worker(self, which=0):
        pid = sorted(self.processes()[1])[which]
        os.kill(pid, signal.SIGKILL)
        return pid

    def reload(self):
        supervisor, old = self.processes()
        os.kill(supervisor, signal.SIGHUP)
        return old

    def metric(self, name):
        for line in self.get("/metrics").text.splitlines():
            if line.startswith(name + " "):
                return float(line.split()[-1])
        raise KeyError(name)


@pytest.fixture(scope="session")
def _stack():
    stack = Stack()
    try:
        stack.up()
        yield stack
    finally:
        stack.down()


@pytest.fixture
def stack(_stack, request):
    _stack.empty()
    yield _stack
    for name in ("postgres", "redis", "nginx", "operations"):
        if _was_touched(request, name):
            _stack.dev("thaw", name)
            _stack.dev("start", name)
    for name in ("planner", "agent"):
        if (_stack.var / "log" / f"{name}.pid").exists():
            _stack.dev("stop", name)
            (_stack.var / "log" / f"{name}.pid").unlink()


def _was_touched(request, name):
    marker = request.node.get_closest_marker("touches")
    return marker is not None and name in marker.args


def pytest_configure(config):
    config.addinivalue_line("markers", "touches(name...): stops or freezes these services; revived after")
    config.addinivalue_line("markers", "long: only in ./dev check --long")


def pytest_collection_modifyitems(config, items):
    if os.environ.get("WB_TEST_LONG"):
        return
    skip = pytest.mark.skip(reason="long: ./dev check --long")
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(skip)
