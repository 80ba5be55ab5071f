# SPDX-License-Identifier: Apache-2.0
"""What the doubles of foreign APIs have in common: a server on a free port of loopback, faults on demand, a log.

A double is started as a child: `fake_x.py [options]`. It prints one line, {"port": N}, and ends when its standard input
ends. Beside the API it serves, without authentication:

GET  /_state     what the double holds, and "requests": all calls to the API so far, in order
POST /_control   {"faults": [...]} adds faults, {"clear": true} removes all and lets held calls go, {"let": NAME} lets
                 go what is held under that name; whatever else is the double's own (see there)

A fault: {"match": REGEXP over "METHOD /path" (and the Action of a form), "times": N (1; -1 for ever), "skip": N (0) calls to let pass first,
          "do": ACTION, ...}
  status        answers "status", "body" (JSON) or "text" (as it is), "headers" instead of working
  status_after  works, then answers so
  drop          closes without a word, instead of working
  drop_after    works, then closes without a word
  hold          waits for "let" of "name" (for at most a minute) before it works
  hold_after    works, then waits before it answers
  delay         waits "seconds" before it works; what a user would see of a slow provider
"""
import argparse
import json
import os
import re
import signal
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

HELD_S = 60  # a hang guard


class Answer(Exception):
    """Ends the handling of a call with this answer. body: bytes go out as they are, None as nothing, others as JSON."""

    def __init__(self, status, body=None, headers=None):
        super().__init__(status)
        self.status, self.body, self.headers = status, body, headers or {}


class Call:
    """One request, as a double sees it."""

    def __init__(self, method, target, headers, raw):
        url = urlsplit(target)
        self.method, self.path, self.headers, self.raw = method, url.path, headers, raw
        self.query = {k: v[-1] for k, v in parse_qs(url.query, keep_blank_values=True).items()}
        self.form = {}
        if headers.get("Content-Type") == "application/x-www-form-urlencoded":
            self.form = {k: v[-1] for k, v in parse_qs(raw.decode(), keep_blank_values=True).items()}
        self.name = self.path + self.form.get("Action", "")

    def json(self):
        try:
            return json.loads(self.raw)
        except ValueError:
            return None

    def record(self):
        return {"method": self.method, "path": self.name, "query": self.query, "body": self.form or self.json(),
                "idempotency_key": self.headers.get("Idempotency-Key")}


class Double:
    """Base of a double. Calls come one at a time: handle() runs under the lock."""

    def __init__(self):
        self.lock = threading.RLock()
        self.requests = []
        self.faults = []
        self.gates = {}

    def handle(self, call):
        raise NotImplementedError

    def state(self):
        return {}

    def control(self, order):
        """The double's own orders: takes what it knows out of the dict."""

    # --- the common part ---

    def serve(self, call):
        if call.path == "/_state":
            with self.lock:
                return Answer(200, {**self.state(), "requests": self.requests})
        if call.path == "/_control":
            return self.ordered(call.json())
        with self.lock:
            self.requests.append(call.record())
            fault = self.next_fault(call)
        return self.answer(call, fault or {"do": ""})

    def next_fault(self, call):
        for fault in self.faults:
            if fault["times"] == 0 or not re.fullmatch(fault["match"], f"{call.method} {call.name}"):
                continue
            if fault["skip"] > 0:
                fault["skip"] -= 1
                continue
            fault["times"] -= fault["times"] > 0
            return fault
        return None

    def answer(self, call, fault):
        """What to say, or None to close without a word."""
        action = fault["do"]
        instead = Answer(fault.get("status", 500), fault["text"].encode() if "text" in fault else fault.get("body"), fault.get("headers"))
        if action == "status":
            return instead
        if action == "drop":
            return None
        if action == "hold":
            self.gate(fault["name"]).wait(HELD_S)
        if action == "delay":
            threading.Event().wait(fault["seconds"])
        try:
            with self.lock:
                answer = self.handle(call) or Answer(404, {"error": "no such path"})
        except Answer as answered:
            answer = answered
        if action == "hold_after":
            self.gate(fault["name"]).wait(HELD_S)
        if action == "drop_after":
            return None
        return instead if action == "status_after" else answer

    def gate(self, name):
        with self.lock:
            return self.gates.setdefault(name, threading.Event())

    def ordered(self, order):
        if not isinstance(order, dict):
            return Answer(400, {"error": "no order"})
        with self.lock:
            if order.pop("clear", False):
                self.faults = []
                for gate in self.gates.values():
                    gate.set()
                self.gates = {}
            if "let" in order:
                self.gate(order.pop("let")).set()
            for fault in order.pop("faults", []):
                self.faults.append({"times": 1, "skip": 0, **fault})
            self.control(order)
            return Answer(400, {"error": f"unknown: {sorted(order)}"}) if order else Answer(200, {})


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def take(self):
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answer = self.server.double.serve(Call(self.command, self.path, self.headers, raw))
        if answer is None:
            self.close_connection = True
            return
        self.reply(answer)

    def reply(self, answer):
        body = answer.body
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            self.send_response(answer.status)
            if answer.status != 204:
                self.send_header("Content-Length", str(len(data)))
                self.send_header("Content-Type", answer.headers.pop("Content-Type", "application/json"))
            for name, value in answer.headers.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(data)
        except OSError:  # the client has gone
            self.close_connection = True

    do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = do_HEAD = take

    def log_message(self, *_args):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], OSError):  # else a client that went away
            super().handle_error(request, client_address)


def options(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--tls", nargs=2, metavar=("CERT", "KEY"), help="serve https")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--stay", action="store_true", help="until it is killed, whatever becomes of standard input")
    return parser


def run(double, args):
    server = Server(("127.0.0.1", args.port), Handler)
    server.double = double
    if args.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*args.tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    print(json.dumps({"port": server.server_address[1]}), flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while args.stay:
        signal.pause()
    while os.read(0, 4096):
        pass
    os._exit(0)  # held calls do not keep us
