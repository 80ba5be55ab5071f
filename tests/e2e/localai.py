# SPDX-License-Identifier: Apache-2.0
"""A stand-in for a LocalAI front end: who may call and how that is told, sessions that are renewed, streams, WebSockets,
and a record of what reached it."""
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Sessions:
    """Shared by the front ends of a site. `due`: sessions that the next request with them ends, for a new one."""

    def __init__(self):
        self.users = {"admin-session": "admin", "user-session": "user"}
        self.keys = {"admin-key": "admin", "user-key": "user"}
        self.due, self.lock, self.count = set(), threading.Lock(), 0

    def renew(self, old):
        with self.lock:
            if old not in self.due:
                return None
            self.due.discard(old)
            self.count += 1
            new = f"renewed-{self.count}"
            self.users[new] = self.users.pop(old)
            return new


class Request:
    def __init__(self, handler, body):
        self.method, self.path, self.headers, self.body = handler.command, handler.path, handler.headers, body


class FrontEnd:
    def __init__(self, name, sessions):
        self.name, self.sessions, self.requests, self.go_on = name, sessions, [], threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.go_on.set()
        self.server.shutdown()
        self.server.server_close()

    def got(self, method, path):
        return [r for r in self.requests if (r.method, r.path) == (method, path)]

    def _handler(self):
        front_end = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def cookie(self, name):
                pairs = [c.strip().partition("=") for c in self.headers.get("Cookie", "").split(";")]
                return next((value for key, _, value in pairs if key == name), None)

            def role(self):
                s = front_end.sessions
                bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
                keys = (bearer, self.headers.get("X-Api-Key"), self.headers.get("Xi-Api-Key"), self.cookie("token"))
                return s.users.get(self.cookie("session")) or next((s.keys[k] for k in keys if k in s.keys), None)

            def body(self):
                if self.headers.get("Transfer-Encoding") != "chunked":
                    return self.rfile.read(int(self.headers.get("Content-Length", 0)))
                data = b""
                while size := int(self.rfile.readline(), 16):
                    data += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return data

            def answer(self, status, body, *headers):
                text = json.dumps(body).encode()
                self.send_response(status)
                new = front_end.sessions.renew(self.cookie("session"))
                if new:
                    headers += (("Set-Cookie", f"session={new}; Path=/; HttpOnly; SameSite=Lax"),)
                for name, value in (("Content-Type", "application/json"), ("Content-Length", len(text)), *headers):
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(text)

            def serve(self):
                request = Request(self, self.body())
                front_end.requests.append(request)
                role = self.role()
                if self.path == "/sse":
                    self.stream()
                elif self.path == "/ws":
                    self.echo()
                elif not self.path.startswith("/api/"):
                    self.answer(200, {"from": front_end.name})
                elif role is None:
                    self.answer(401, {"error": "theirs"}, ("WWW-Authenticate", "Bearer"))
                elif role != "admin":
                    self.answer(403, {"error": "theirs"})
                else:
                    self.answer(200, {"success": True, "from": front_end.name}, ("Vary", "Origin"), ("Cache-Control", "no-store"))

            def stream(self):
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(b"data: 1\n\n")
                front_end.go_on.wait()
                self.wfile.write(b"data: 2\n\n")
                self.close_connection = True

            def echo(self):
                asked = [self.headers.get(h, "").lower() for h in ("Connection", "Upgrade")]
                if asked != ["upgrade", "websocket"]:
                    self.answer(426, {"error": asked})
                    return
                self.send_response(101)
                self.send_header("Upgrade", "websocket")
                self.send_header("Connection", "Upgrade")
                self.end_headers()
                self.close_connection = True
                while data := self.rfile.read1(65536):
                    self.wfile.write(data[::-1])

            do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = serve
        return Handler
