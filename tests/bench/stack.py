# SPDX-License-Identifier: Apache-2.0
"""What is measured: a stack of its own by ./dev, with nginx's plain answers and the Node servers beside it."""
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TICKS = os.sysconf("SC_CLK_TCK")
SERVICES = ("nginx", "operations", "postgres", "redis")

NGINX_HTTP = """
upstream node_naive { server unix:%(var)s/run/naive.sock max_fails=0; keepalive 32; }
upstream node_cached { server unix:%(var)s/run/cached.sock max_fails=0; keepalive 32; }
"""
NGINX_SERVER = """
location = /bench/return { access_log off; return 200 "thirty-one bytes, and not a one\\n"; }
location = /bench/static { access_log off; default_type application/json; alias %(var)s/body.json; }
location /bench/naive/ { access_log off; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://node_naive/; }
location /bench/cached/ { access_log off; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://node_cached/; }
"""


def say(text):
    print(text, file=sys.stderr, flush=True)


@dataclass
class Load:
    """What wrk found, and the CPU seconds that each group of processes used meanwhile."""
    requests: int
    seconds: float
    kinds: tuple  # errors: connecting, reading or writing, timeout, status
    p50_ms: float
    p99_ms: float
    cpu: dict

    @property
    def errors(self):
        return sum(self.kinds)

    @property
    def rate(self):
        return self.requests / self.seconds

    def cpu_us(self, group):
        return self.cpu[group] / max(self.requests, 1) * 1e6


def memory_folder():
    """A folder in memory, as /run is in production, so that no disk is measured; None where there is none to spare."""
    shm = Path("/dev/shm")
    if not os.access(shm, os.W_OK) or shutil.disk_usage(shm).free < 256 << 20:
        return None
    folder = Path(tempfile.mkdtemp(prefix="wbb.", dir=shm))
    folder.chmod(0o755)  # Postgres' own user has its socket below
    return folder


class Stack:
    services = SERVICES

    def __init__(self, with_node=False, durable=False):
        """durable: Postgres with fsync, as whoever is answered 201 would want it."""
        self.var = Path(tempfile.mkdtemp(prefix="wbb.", dir="/tmp"))
        self.var.chmod(0o755)
        self.memory = memory_folder()
        if self.memory:
            (self.var / "run").symlink_to(self.memory)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith("WB_") or k == "WB_DEV_BUILD"},
            "WB_DEV_VAR": str(self.var), "WB_DEV_PORT": str(self.port), "WB_DEV_NO_BUILD": "1", "WB_DEV_FAST": "" if durable else "1",
            "WB_DEV_NGINX_WORKERS": "1", "WB_OPERATIONS_WORKERS": "1"}
        self.with_node = with_node
        self.node = {}
        self.url = f"http://127.0.0.1:{self.port}"
        self.settings = {}

    # --- life ---

    def __enter__(self):
        for folder, text in (("extra-http", NGINX_HTTP), ("extra", NGINX_SERVER)):
            (self.var / "nginx" / folder).mkdir(parents=True)
            (self.var / "nginx" / folder / "bench.conf").write_text(text % {"var": self.var})
        try:
            self.dev("up", *self.services)
            for line in self.dev("env").splitlines():
                key, _, value = line.partition("=")
                self.settings[key] = value.strip("'")
            if self.with_node:
                self.start_node()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.node.values():
            process.kill()
            process.wait()
        subprocess.run([ROOT / "dev", "down", "--wipe"], env=self.environ, check=False, stdin=subprocess.DEVNULL)
        shutil.rmtree(self.var, ignore_errors=True)
        if self.memory:
            shutil.rmtree(self.memory, ignore_errors=True)

    def dev(self, *args):
        done = subprocess.run([ROOT / "dev", *args], env=self.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=180, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"./dev {' '.join(args)}: {done.stdout}{done.stderr}")
        return done.stdout

    def start_node(self):
        version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
        if int(re.match(r"v(\d+)", version)[1]) < 18:
            raise RuntimeError(f"Node 18 or later is needed, this is {version}")
        folder = HERE / "node"
        if not (folder / "node_modules" / "fastify").is_dir():
            say("fetching the Node server's dependencies")
            subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"], cwd=folder, check=True,
                           stdout=subprocess.DEVNULL)
        host = re.search(r"host=([^&]*)", self.settings["WB_PGURL"])[1]
        for mode in ("naive", "cached"):
            with open(self.var / "log" / f"node-{mode}.log", "w", encoding="utf8") as log:
                self.node[mode] = subprocess.Popen(
                    ["node", folder / "server.js"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    env={"PATH": os.environ["PATH"], "NODE_ENV": "production", "MODE": mode, "SOCKET": str(self.var / "run" / f"{mode}.sock"),
                         "PG_HOST": urllib.request.unquote(host), "REDIS_SOCKET": self.redis_socket, "TOKEN_FILE": str(self.var / "tokens")})
        for mode in self.node:
            self.wait(lambda m=mode: self.get(f"/bench/{m}/api/operations")[0] == 200, f"the Node server ({mode})")

    @property
    def redis_socket(self):
        return self.settings["WB_REDIS"].removeprefix("unix:")

    @staticmethod
    def wait(probe, what, seconds=30):
        end = time.monotonic() + seconds
        while not probe():
            if time.monotonic() > end:
                raise RuntimeError(f"never came: {what}")
            time.sleep(0.05)

    # --- calls ---

    def call(self, method, path, body=None, role="VIEWER", headers=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method, headers={
            "Authorization": "Bearer " + self.settings[f"WB_{role}_TOKEN"], "Content-Type": "application/json", **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(), error.headers

    def get(self, path, **kw):
        return self.call("GET", path, **kw)

    def metric(self, name):
        for line in self.get("/metrics", role="ADMIN")[1].decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[-1])
        raise KeyError(name)

    def statuses(self):
        """How often nginx has answered with each status so far; polls are not logged."""
        time.sleep(1.5)  # it writes its log once a second
        count = {}
        for line in (self.var / "nginx" / "access.log").read_text(encoding="utf8", errors="replace").splitlines():
            status = line.split()[1]
            count[status] = count.get(status, 0) + 1
        return count

    # --- data ---

    def fill(self, operations):
        """Of the entries one in six has a row only, one in six an overlay only, the rest both. Beside them rows of the past."""
        # Not above: --help is to work before anything is installed.
        import psycopg2
        import redis
        rows = [k for k in range(operations) if k % 6 != 0]
        overlays = [k for k in range(operations) if k % 6 != 1]
        with psycopg2.connect(self.settings["WB_PGURL"]) as db, db.cursor() as c:
            c.execute("TRUNCATE model_load_jobs, gallery_operations, load_job_claims")
            # A heartbeat in the future counts as now: they stay alive while it is measured.
            c.execute("""INSERT INTO model_load_jobs (tracking_key, state, owner_replica, node_id, node_name, replica_index, bytes_sent,
                total_bytes, file_index, total_files, started_at, last_progress, created_at, updated_at)
                SELECT 'org/model-' || k || '@q4', 'staging', 'front-1', 'node-' || k %% 16, 'gpu-node-' || k %% 16, 0, k::bigint * 1000003,
                40000000000, 1 + k %% 4, 4, now(), now() + interval '1 day', now(), now() FROM unnest(%s) k""", (rows,))
            c.execute("""INSERT INTO gallery_operations (id, gallery_element_name, op_type, status, progress, created_at, updated_at)
                SELECT 'old-' || k, 'model-' || k, 'model_install', 'completed', 100, now() - k * interval '10 minutes', now() - k * interval '10 minutes' FROM generate_series(1, 2000) k""")
        db.close()
        db = psycopg2.connect(self.settings["WB_PGURL"])
        db.autocommit = True
        db.cursor().execute("VACUUM ANALYZE")
        db.close()
        kv = redis.Redis(unix_socket_path=self.redis_socket)
        kv.flushdb()
        now_ms = int(kv.time()[0]) * 1000
        pipe = kv.pipeline()
        for k in overlays:
            key = f"org/model-{k}@q4"
            value = {"model_id": key, "node_name": f"gpu-node-{k % 16}", "file_name": f"model-0000{1 + k % 4}.safetensors",
                     "bytes_sent": k * 1000003 + 4096, "total_bytes": 40000000000, "progress": k % 100 + 0.25, "speed": "310 MiB/s",
                     "file_index": 1 + k % 4, "total_files": 4, "message": f"model-0000{1 + k % 4}.safetensors (1.2 GiB / 37.3 GiB, 310 MiB/s)",
                     "started_at": "2026-01-01T00:00:00Z", "claim": "", "stamp": (now_ms + 86400000) * 1000}
            pipe.set(f"wb:1:staging:{key}", json.dumps(value), ex=86400)
            pipe.zadd("wb:1:live", {f"staging:{key}": now_ms + 86400000})
        pipe.execute()
        kv.close()
        self.wait(lambda: len(json.loads(self.get("/api/operations")[1])["operations"]) == operations, f"{operations} operations")

    # --- measuring ---

    def pids(self, service):
        leader = int((self.var / "log" / f"{service}.pid").read_text())
        parents = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parents.setdefault(int((entry / "stat").read_text().rpartition(")")[2].split()[1]), []).append(int(entry.name))
                except OSError:
                    pass
        found = [leader]
        for pid in found:
            found += parents.get(pid, [])
        return found

    @staticmethod
    def cpu_of(pids):
        """Seconds, ended children of theirs included."""
        ticks = 0
        for n, pid in enumerate(pids):
            try:
                fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            except OSError:
                continue
            ticks += sum(int(x) for x in fields[11:15 if n == 0 else 13])
        return ticks / TICKS

    def cpu(self):
        used = {s: self.cpu_of(self.pids(s)) for s in self.services}
        for mode, process in self.node.items():
            used[mode] = self.cpu_of([process.pid])
        return used

    def load(self, path, seconds, connections=16, script="report.lua", role="VIEWER", headers=()):
        before = self.cpu()
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s", HERE / "wrk" / script,
                   "-H", "Authorization: Bearer " + self.settings[f"WB_{role}_TOKEN"], "-H", "Content-Type: application/json"]
        for header in headers:
            command += ["-H", header]
        done = subprocess.run([*command, self.url + path], capture_output=True, text=True, timeout=seconds + 60, check=False)
        after = self.cpu()
        line = re.search(r"^RESULT (.*)$", done.stdout, re.M)
        if not line:
            raise RuntimeError(f"wrk: {done.stdout}{done.stderr}")
        requests, us, *errors, p50, p99 = (int(x) for x in line[1].split())
        return Load(requests, us / 1e6, tuple(errors), p50 / 1e3, p99 / 1e3, {k: after[k] - before[k] for k in after})


class KeptConnections:
    """FastCGI connections that have served one request each and stay open, as nginx' do."""

    def __init__(self, path, count):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, count + 200)), hard))
        params = b""
        for name, value in ((b"REQUEST_METHOD", b"GET"), (b"REQUEST_URI", b"/healthz"), (b"QUERY_STRING", b"")):
            params += bytes((len(name), len(value))) + name + value
        request = self.record(1, b"\0\1\1\0\0\0\0\0") + self.record(4, params) + self.record(4, b"") + self.record(5, b"")
        self.sockets = []
        for _ in range(count):
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(30)
            s.connect(path)
            s.sendall(request)
            self.sockets.append(s)
            self.read_reply(s)

    @staticmethod
    def record(kind, content):
        return bytes((1, kind, 0, 1)) + len(content).to_bytes(2, "big") + b"\0\0" + content

    @staticmethod
    def read_exactly(s, size):
        data = b""
        while len(data) < size:
            piece = s.recv(size - len(data))
            if not piece:
                raise RuntimeError("the handler closed a connection that was to be kept")
            data += piece
        return data

    def read_reply(self, s):
        while True:
            head = self.read_exactly(s, 8)
            self.read_exactly(s, int.from_bytes(head[4:6], "big") + head[6])
            if head[1] == 3:
                return

    def open_count(self):
        """Those that the other side has not closed."""
        count = 0
        for s in self.sockets:
            s.setblocking(False)
            try:
                count += bool(s.recv(1))
            except BlockingIOError:
                count += 1
        return count

    def close(self):
        for s in self.sockets:
            s.close()
