# SPDX-License-Identifier: Apache-2.0
"""What reporting costs a pull of `weighbridge-agent run`: beside a control plane of a few lines, which answers, or takes calls and never does."""
import json
import os
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from stack import ROOT


class Control(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    order, frozen, given = None, False, None  # of the class that is made for a server

    def log_message(self, *_):
        pass

    def do_PUT(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        first = type(self).given is None
        if not first and self.frozen:
            time.sleep(600)
        type(self).given = type(self).given or time.perf_counter()
        self.answer([self.order])

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.frozen:
            time.sleep(600)
        self.answer({"state": "pulling", "sources": self.order["sources"]})

    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # an agent that is told to leave hangs up


def seconds(folder, url, digest, frozen=False, **env):
    """From the moment the assignment is given until the version is there."""
    order = {"id": "0d5a0b9c-8c9f-4a39-a7b5-5a4d1f2f8d11", "artifact": "bench", "version": "v", "digest": "sha256:" + digest,
             "total_bytes": 1, "attempts_left": 4, "sources": [{"url": url, "kind": "origin", "max_concurrency": 4}]}
    handler = type("C", (Control,), {"order": order, "frozen": frozen, "given": None})
    server = Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    agent = str(Path(os.environ.get("WB_DEV_BUILD", ROOT / "build")) / "weighbridge-agent")
    process = subprocess.Popen([agent, "run", "--config", "/dev/null", "--root", str(folder)], stderr=subprocess.DEVNULL, env={
        **os.environ, "WB_AGENT_URL": f"http://127.0.0.1:{server.server_address[1]}", "WB_AGENT_NODE": "bench", **env})
    try:
        while not (folder / "bench" / "versions" / "v").exists():
            time.sleep(0.002)
            if process.poll() is not None:
                raise SystemExit("agent run: it left")
        return time.perf_counter() - handler.given
    finally:
        process.terminate()
        process.wait()
        server.shutdown()
        server.server_close()
        subprocess.run(["chmod", "-R", "u+w", str(folder)], check=True)
        subprocess.run(["rm", "-rf", str(folder)], check=True)


class AgentRunRows:
    """Rows of run.py's Bench."""

    def agent_run(self, folder, url, digest):
        modes = {"reported": {}, "silent": {"WB_AGENT_PROGRESS_MS": "60000"}, "frozen": {"frozen": True}}
        took = []
        for i in range(self.options.rounds):
            order = [*modes][i % 3:] + [*modes][:i % 3]  # each comes first in its turn
            took.append({mode: seconds(folder / "node", url, digest, **modes[mode]) for mode in order})
        reported = [t["silent"] / t["reported"] for t in took]
        frozen = [t["reported"] / t["frozen"] for t in took]
        self.rate("agent: progress reported, speed vs not reported", reported, 0.97, 1)
        self.rate("agent: control plane frozen, speed vs healthy", frozen, 0.97, 1)
