# SPDX-License-Identifier: Apache-2.0
"""`weighbridge-agent run` beside the stack, and a gate between the two that lets files through on cue."""
import os
import signal
import socket
import subprocess
import threading
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from agent import Node
from conftest import HANG_S, wait_until

NODE = "/api/v1/nodes/node"  # whose name the token of ./dev is bound to
QUICK = {"WB_AGENT_HEARTBEAT_MS": "100", "WB_AGENT_PROGRESS_MS": "50", "WB_AGENT_BACKOFF_MS": "20"}


class Gate:
    """A web server before the stack's. gate.let(n): so many more ranges of files pass, then the rest waits. gate.on(method, path, status):
    what is answered instead, until gate.on() of the same with None; status 0: passed on, and the answer thrown away; 429 with
    Retry-After: 1; bytes: these."""

    def __init__(self, stack):
        self.port = stack.port
        self.open = threading.Semaphore(0)
        self.seen = []
        self.times = {}  # when something was asked for last
        self.bytes = 0  # of files that were asked for
        self.instead = {}
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("H", (Handler,), {"gate": self}))
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def let(self, n=1000000):
        self.open.release(n)

    def on(self, method, end, status):
        self.instead[method, end] = status

    def files(self):
        return [path for method, path in self.seen if method == "GET" and "/files/" in path]

    def posts(self, end):
        return [path for method, path in self.seen if method == "POST" and path.endswith(end)]

    def close(self):
        self.let()
        self.server.shutdown()
        self.server.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    gate = None

    def log_message(self, *_):
        pass

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def drop(self):
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def pass_on(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.gate.seen.append((self.command, self.path))
        self.gate.times[self.command, self.path.rpartition("/")[2]] = time.monotonic()
        if self.command == "GET" and "/files/" in self.path:
            first, last = self.headers["Range"].removeprefix("bytes=").split("-")
            self.gate.bytes += int(last) - int(first) + 1
        status = next((s for (m, end), s in list(self.gate.instead.items())
                       if s is not None and m == self.command and self.path.endswith(end)), None)
        if isinstance(status, bytes):
            return self.answer(200, [], status)
        if status:
            return self.answer(status, [("Retry-After", "1")] if status == 429 else [], b"")
        if "/files/" in self.path:
            self.gate.open.acquire()
        connection = HTTPConnection("127.0.0.1", self.gate.port, timeout=HANG_S)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection")}
            connection.request(self.command, self.path, body, headers)
            got = connection.getresponse()
            data = got.read()
        except OSError:
            return self.drop()
        finally:
            connection.close()
        if status == 0:
            return self.drop()
        return self.answer(got.status, got.getheaders(), data)

    do_GET = do_PUT = do_POST = pass_on

    def answer(self, status, headers, data):
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("connection", "content-length", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


STARTED = []  # processes of agents


def end_agents():
    """Those that a test which failed has left."""
    for process in STARTED:
        if process.poll() is None:
            process.kill()
            process.wait(HANG_S)
    STARTED.clear()


class Daemon(Node):
    """One node's agent. Its log is in the folder; a second start goes on with what the first left."""

    def __init__(self, stack, folder, url=None, prefix=(), **env):
        super().__init__(folder)
        self.log = self.root.parent / "log"
        self.prefix = prefix
        self.process = None
        self.env |= {**QUICK, "WB_AGENT_URL": url or stack.url, "WB_AGENT_NODE": "node", "WB_AGENT_RACK": "r1", "WB_AGENT_ZONE": "z1",
                     "WB_AGENT_TOKEN": stack.env["WB_NODE_TOKEN"], **env}

    def up(self, **env):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([*self.prefix, *self.args("run")], env={**self.env, **env}, stdin=subprocess.DEVNULL,
                                            stdout=subprocess.DEVNULL, stderr=log)
        STARTED.append(self.process)
        return self

    def said(self):
        return self.log.read_text(errors="replace")

    def says(self, text, times=1):
        wait_until(lambda: self.said().count(text) >= times or self.process.poll() is not None, text)
        assert self.said().count(text) >= times, self.said()

    def kill(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        return self.process.wait(HANG_S)

    def down(self):
        if self.process and self.process.poll() is None:
            assert self.kill(signal.SIGTERM) == 0, self.said()
        for path, _, _ in os.walk(self.root):
            os.chmod(path, 0o755)


def assign(stack, v, name="node"):
    answer = stack.call("POST", f"/api/v1/nodes/{name}/assignments", {"artifact": v.artifact, "version": v.version})
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def assignment(stack, number):
    [found] = [a for a in stack.get(NODE + "/assignments").json()["assignments"] if a["id"] == number]
    return found


def awaits(stack, number, state):
    return wait_until(lambda: (a := assignment(stack, number))["state"] == state and a, f"an assignment {state}")
