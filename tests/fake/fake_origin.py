# SPDX-License-Identifier: Apache-2.0
"""A scripted HTTP server for one or more versions of artifacts, which misbehaves on cue.

`Origin` serves, in threads of this process, on a free port of loopback: the manifest at /<version>, its files below
/<version>/files/, with Range. `origin.on(match, action, ...)` adds a rule; the first rule whose regexp is found in
"path first-last" (of the request's Range; the manifest's is "path -"), and whose `times` are not used up, is what
happens:

  whole            200 with the whole file, the Range ignored
  shifted          206 whose Content-Range begins elsewhere than was asked for, with those other bytes
  resized          206 whose Content-Range states another total
  no_content_range 206 without one
  short            the right head, then fewer bytes and the end of the connection
  short_kept       the right head, fewer bytes, and the connection stays open: silence
  silent           takes the request and never answers
  flipped          the right size, one byte flipped
  zeros            the right size, all zeros
  reset            closes with RST within the body
  refused          RST before any answer
  status           `status`, `headers`, `body`
  gzip             a right 206 that says Content-Encoding: gzip
  slow             the right bytes in pieces with `pause` seconds between them
  held             waits for origin.let() and goes on as if nothing had been

origin.requests: a list of (path, first, last) of all requests so far. origin.bytes: of bodies of files.
"""
import hashlib
import json
import re
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote, unquote, urlsplit

MIB = 1 << 20
HELD_S = 60  # a hang guard


def digest(data):
    return hashlib.sha256(data).hexdigest()


def manifest_of(files, artifact="llama", version="v1", shard=MIB, urls=None, executable=()):
    """The bytes of a manifest of {path: content}."""
    entries = []
    for path in sorted(files, key=lambda p: p.encode()):
        data = files[path]
        entry = {"path": path, "size": len(data), "mode": "0755" if path in executable else "0644", "sha256": digest(data),
                 "shards": ["sha256:" + digest(data[i:i + shard]) for i in range(0, len(data), shard)]}
        if urls and path in urls:
            entry["urls"] = urls[path]
        entries.append(entry)
    return json.dumps({"schema": 1, "artifact": artifact, "version": version, "kind": "weights",
                       "total_bytes": sum(map(len, files.values())), "shard_bytes": shard, "files": entries,
                       "annotations": {"by": "test"}}).encode()


class Rule:
    def __init__(self, match, action, times, options):
        self.match, self.action, self.times, self.options = re.compile(match), action, times, options


class Origin:
    def __init__(self):
        self.versions = {}  # path of the manifest: (its bytes, {path: content})
        self.rules = []
        self.requests = []
        self.tokens = []
        self.bytes = 0
        self.lock = threading.Lock()
        self.gate = threading.Event()
        self.held = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("H", (Handler,), {"origin": self}))
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.gate.set()
        self.server.shutdown()
        self.server.server_close()

    def serve(self, files, version="v1", **kw):
        """Adds a version; gives its MANIFEST_URL."""
        self.versions["/" + version] = (manifest_of(files, version=version, **kw), files)
        return self.url(version)

    def url(self, version="v1"):
        return f"http://127.0.0.1:{self.port}/{version}"

    def file_url(self, path, version="v1"):
        return f"{self.url(version)}/files/{quote(path)}"

    def on(self, match, action, times=1, **options):
        with self.lock:
            self.rules.append(Rule(match, action, times, options))

    def let(self):
        self.gate.set()

    def take(self, what):
        """The rule for a request, used up by one."""
        with self.lock:
            for rule in self.rules:
                if rule.times != 0 and rule.match.search(what):
                    rule.times -= 1
                    return rule
        return None

    def ranges(self, path=""):
        with self.lock:
            return [r for r in self.requests if r[1] is not None and path in r[0]]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    origin = None

    def log_message(self, *_):
        pass

    def find(self, path):
        for base, (manifest, files) in self.origin.versions.items():
            if path == base:
                return manifest, True
            if path.startswith(base + "/files/"):
                return files.get(path[len(base) + 7:]), False
        return None, False

    def do_GET(self):
        path = unquote(urlsplit(self.path).path)
        data, is_manifest = self.find(path)
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        first, last = (int(found[1]), int(found[2])) if found else (None, None)
        with self.origin.lock:
            self.origin.requests.append((path, first, last))
            self.origin.tokens.append((path, self.headers.get("Authorization")))
        rule = self.origin.take(f"{path} {first}-{last}" if found else f"{path} -")
        if rule:
            getattr(self, "do_" + rule.action)(data, first, last, **rule.options)
        elif data is None:
            self.answer(404, b"no such file\n")
        elif is_manifest or not found:
            self.answer(200, data)
        elif last >= len(data):
            self.answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        else:
            self.part(data, first, last)

    def answer(self, status, body, headers=None):
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def part(self, data, first, last, body=None, total=None, content_range=True, headers=None, send=True):
        body = data[first:last + 1] if body is None else body
        self.send_response(206)
        if content_range:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data) if total is None else total}")
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        with self.origin.lock:
            self.origin.bytes += len(body)
        if send:
            self.wfile.write(body)
        return body

    def wait(self):
        self.origin.held.set()
        self.origin.gate.wait(HELD_S)

    def rst(self):
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    # --- what a rule does ---

    def do_whole(self, data, first, last):
        self.answer(200, data)

    def do_shifted(self, data, first, last):
        first, last = (first + 1, last + 1) if last + 1 < len(data) else (first - 1, last - 1)
        self.part(data, first, last)

    def do_resized(self, data, first, last):
        self.part(data, first, last, total=len(data) + 1)

    def do_no_content_range(self, data, first, last):
        self.part(data, first, last, content_range=False)

    def do_short(self, data, first, last):
        self.part(data, first, last, body=data[first:last - 9])
        self.close_connection = True

    def do_short_kept(self, data, first, last):
        self.part(data, first, last, body=data[first:last - 9])
        self.wfile.flush()
        self.wait()
        self.close_connection = True

    def do_silent(self, data, first, last):
        self.wait()
        self.close_connection = True

    def do_flipped(self, data, first, last):
        body = bytearray(data[first:last + 1])
        body[len(body) // 2] ^= 1
        self.part(data, first, last, body=bytes(body))

    def do_zeros(self, data, first, last):
        self.part(data, first, last, body=bytes(last - first + 1))

    def do_reset(self, data, first, last):
        self.part(data, first, last, body=data[first:first + (last - first) // 2])
        self.rst()

    def do_refused(self, data, first, last):
        self.rst()

    def do_status(self, data, first, last, status=503, headers=None, body=b""):
        self.answer(status, body, headers)

    def do_gzip(self, data, first, last):
        self.part(data, first, last, headers={"Content-Encoding": "gzip"})

    def do_slow(self, data, first, last, pause=0.05, piece=1 << 16):
        body = self.part(data, first, last, send=False)
        for i in range(0, len(body), piece):
            self.wfile.write(body[i:i + piece])
            self.wfile.flush()
            time.sleep(pause)  # the pace that is acted out

    def do_held(self, data, first, last):
        self.wait()
        self.part(data, first, last)
