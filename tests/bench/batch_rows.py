# SPDX-License-Identifier: Apache-2.0
"""What is measured of the embedded batch service: lines per second against what wrk reaches on the same inference server, against one
that takes its time, and the runner's memory."""
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path

from stack import HERE, Stack, say

NGINX = """daemon off; worker_processes 1; pid %(at)s/pid; error_log %(at)s/error.log; worker_rlimit_nofile 4096;
events { worker_connections 2048; }
http {
    access_log off; keepalive_requests 100000000; client_body_temp_path %(at)s/t1; proxy_temp_path %(at)s/t2; fastcgi_temp_path %(at)s/t3;
    uwsgi_temp_path %(at)s/t4; scgi_temp_path %(at)s/t5;
    server { listen 127.0.0.1:%(port)s backlog=1024; location / { default_type application/json; return 200 '%(body)s'; } }
}
"""
BODY = ('{"id":"x","object":"chat.completion","created":0,"model":"m","choices":[{"index":0,"message":{"role":"assistant",'
        '"content":"line"},"finish_reason":"stop"}],"usage":{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3}}')
CONCURRENCY = 64


class BatchStack(Stack):
    services = ("postgres", "redis", "operations", "batches", "nginx")

    def upload(self, lines):
        """A file of so many lines; its id."""
        head = (b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--x\r\n'
                b'Content-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n')
        text = "".join('{"custom_id":"id-%d","method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"user",'
                       '"content":"line %d"}]}}\n' % (i, i) for i in range(lines))
        request = urllib.request.Request(self.url + "/batch-service/v1/files", data=head + text.encode() + b"\r\n--x--\r\n", headers={
            "Authorization": "Bearer " + self.settings["WB_SUBMITTER_TOKEN"], "Content-Type": "multipart/form-data; boundary=x"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.loads(answer.read())["id"]

    def run(self, file, concurrency, seconds):
        """Seconds that the lines of a batch of it take."""
        status, body, _ = self.call("POST", "/batch-service/v1/batches", {
            "input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h",
            "aibrix": {"client": {"max_concurrency": concurrency}}}, role="SUBMITTER")
        assert status == 200, body
        batch = json.loads(body)["id"]

        def now():
            return json.loads(self.get("/batch-service/v1/batches/" + batch, role="SUBMITTER")[1])
        self.wait(lambda: now()["status"] in ("completed", "failed"), "the end of a batch", seconds)
        counts = now()["request_counts"]
        assert counts["failed"] == 0 and counts["completed"] == counts["total"] > 0, now()
        return self.sql("SELECT date_part('epoch', finalizing_at - in_progress_at) FROM batch WHERE id = %s", (batch,))[0][0]

    def sql(self, text, args=None):
        import psycopg2  # --help is to work before anything is installed
        db = psycopg2.connect(self.settings["WB_PGURL"])
        try:
            with db.cursor() as c:
                c.execute(text, args)
                return c.fetchall()
        finally:
            db.close()

    @contextmanager
    def runner(self, url, **env):
        self.environ |= {"WB_BATCH_UPSTREAM": url, **env}
        self.dev("start", "batch")
        try:
            yield
        finally:
            self.dev("stop", "batch")

    def memory_kib(self):
        """The most that any process of the runner ever had."""
        return max(int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))[1]) for pid in self.pids("batch"))


@contextmanager
def instant(folder):
    """An inference server that answers at once."""
    folder.mkdir()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    (folder / "nginx.conf").write_text(NGINX % {"at": folder, "port": port, "body": BODY}, encoding="utf-8")
    nginx = subprocess.Popen([shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin"), "-c", str(folder / "nginx.conf")])
    try:
        Stack.wait(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, "an inference server")
        yield f"http://127.0.0.1:{port}"
    finally:
        nginx.terminate()
        nginx.wait()


@contextmanager
def slow(ms):
    process = subprocess.Popen([sys.executable, HERE / "slow_upstream.py", str(ms), BODY], stdout=subprocess.PIPE, text=True)
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.wait()


def wrk_rate(url, seconds):
    done = subprocess.run(["wrk", "-t1", f"-c{CONCURRENCY}", f"-d{seconds}s", "-s", HERE / "wrk" / "line.lua", url + "/v1/chat/completions"],
                          capture_output=True, text=True, check=True)
    requests, us, *_ = (int(x) for x in re.search(r"^RESULT (.*)$", done.stdout, re.M)[1].split())
    return requests / us * 1e6


class BatchRows:
    """Rows of run.py's Bench: rate() and note() are its."""

    def batch(self):
        with BatchStack() as s:
            s.environ["WB_BATCH_MAX_LINES"] = "1000000"
            with instant(s.var / "upstream") as url, s.runner(url):
                self.lines(s, url)
            with slow(100) as url, s.runner(url):
                file = s.upload(20000)
                rates = [20000 / s.run(file, 256, 120) / (256 / 0.1) for _ in range(min(self.options.rounds, 3))]
                self.rate("lines of 100 ms at concurrency 256, vs 256 / 0.1 s", rates, 0.95, 0.98)

    def lines(self, s, url):
        file = s.upload(20000)
        ratios, rates, wrk = [], [], []
        for n in range(self.options.rounds):
            say(f"lines, round {n + 1} of {self.options.rounds}")
            wrk.append(wrk_rate(url, self.options.seconds))
            rates.append(20000 / s.run(file, CONCURRENCY, 120))
            ratios.append(rates[-1] / wrk[-1])
        self.rate(f"lines against an upstream of 0 ms, concurrency {CONCURRENCY}, vs wrk", ratios, 0.25, 0.35)
        self.note("  at", f"{max(rates):,.0f}/s (wrk {max(wrk):,.0f}/s)")
        lines = 1000000 if self.options.full else 100000
        took = s.run(s.upload(lines), CONCURRENCY, 1200)
        self.rate(f"memory of a runner after {lines:,} lines", [s.memory_kib() / 1024], 64, 48, " MiB", higher=False, digits=0)
        self.note("  at", f"{lines / took:,.0f}/s")
