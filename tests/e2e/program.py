# SPDX-License-Identifier: Apache-2.0
"""The operations program started by hand beside the stack's own, and a FastCGI client to ask either directly."""
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

from conftest import HANG_S, ROOT, wait_until

BEGIN, END, PARAMS, STDIN, STDOUT, GET_VALUES = 1, 3, 4, 5, 6, 9
KEEP_CONN = 1


def binary(stack, name="weighbridge-operations"):
    return str(Path(stack.environ.get("WB_DEV_BUILD", ROOT / "build")) / name)


# --- FastCGI ---

def record(kind, body=b"", request=1):
    return struct.pack(">BBHHBx", 1, kind, request, len(body), 0) + body


def begin(keep=False):
    return record(BEGIN, struct.pack(">HB5x", 1, KEEP_CONN if keep else 0))


def pairs(params):
    def size(n):
        return bytes([n]) if n < 128 else struct.pack(">I", n | 1 << 31)
    return b"".join(size(len(k)) + size(len(v)) + k + v for k, v in
                    ((k.encode(), str(v).encode()) for k, v in params.items()))


def params_of(uri, method="GET", token=None, body=b""):
    params = {"REQUEST_METHOD": method, "REQUEST_URI": uri, "QUERY_STRING": ""}
    if token:
        params["HTTP_AUTHORIZATION"] = "Bearer " + token
    if body:
        params |= {"CONTENT_TYPE": "application/json", "CONTENT_LENGTH": len(body)}
    return params


def whole_request(uri, keep=False, body=b"", **kw):
    stdin = record(STDIN, body) if body else b""
    return begin(keep) + record(PARAMS, pairs(params_of(uri, body=body, **kw))) + record(PARAMS) + stdin + record(STDIN)


def connect(path):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(HANG_S)
    s.connect(str(path))
    return s


def exactly(s, n):
    data = b""
    while len(data) < n:
        more = s.recv(n - len(data))
        assert more, "the connection ended within an answer"
        data += more
    return data


def answer_of(s):
    """(status, body) of the one answer that is on its way."""
    out = b""
    while True:
        _, kind, _, size, padding = struct.unpack(">BBHHBx", exactly(s, 8))
        body = exactly(s, size + padding)[:size]
        if kind == STDOUT:
            out += body
        elif kind == END:
            return split(out)


def split(out):
    head, _, body = out.partition(b"\r\n\r\n")
    status = [line for line in head.split(b"\r\n") if line.startswith(b"Status: ")]
    return int(status[0].split()[1]), body.decode()


def ask(path, uri, **kw):
    """One request on a connection of its own."""
    with connect(path) as s:
        s.sendall(whole_request(uri, **kw))
        return answer_of(s)


# --- processes ---

def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def children(pid):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] not in "ZX":
            found.append(int(stat.parent.name))
    return found


def signal_all(sig, pids):
    """Who has left meanwhile does not matter."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, sig)


def is_frozen(pid):
    """All its threads: a signal takes effect in each when the kernel gets to it, and until then it may accept."""
    with suppress(OSError):
        return all((task / "stat").read_text().rpartition(")")[2].split()[0] in "TZX"
                   for task in Path(f"/proc/{pid}/task").iterdir())
    return True


def freeze(pids):
    """Returns when none of them does anything more."""
    signal_all(signal.SIGSTOP, pids)
    wait_until(lambda: all(map(is_frozen, pids)), "all to be frozen")


class Program:
    """weighbridge-operations with the stack's configuration, changed by WB_ variables."""

    def __init__(self, stack, args=None, stdin=subprocess.DEVNULL, umask=-1, program=None, **env):
        self.folder = Path(tempfile.mkdtemp(prefix="wb-", dir="/tmp"))
        self.socket = Path(env.get("WB_RUNTIME_DIR", stack.var / "run")) / "operations.sock"
        self.log = self.folder / "log"
        args = ["--config", str(stack.var / "weighbridge.ini")] if args is None else args
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [program or binary(stack), *args], cwd="/", stdin=stdin, stdout=log, stderr=log, umask=umask,
                env={**{k: v for k, v in stack.environ.items()}, **env})
        self.pid = self.process.pid

    def workers(self):
        return children(self.pid)

    def text(self):
        return self.log.read_text(errors="replace")

    def ready(self, workers=2):
        wait_until(lambda: self.process.poll() is not None or
                   self.text().count('msg="worker ready"') >= workers, "the workers")
        assert self.process.poll() is None, self.text()
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            signal_all(signal.SIGCONT, [self.pid, *self.workers()])
            self.process.terminate()
        try:
            self.process.wait(HANG_S)
        finally:
            self.process.kill()
            shutil.rmtree(self.folder, ignore_errors=True)


def run(stack, *args, env=None, name="weighbridge-operations", **kw):
    """Runs the program to its end: exit status, standard output, standard error."""
    done = subprocess.run([binary(stack, name), *args], env=os.environ if env is None else env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=HANG_S, check=False, **kw)
    return done.returncode, done.stdout, done.stderr


@contextmanager
def operations_with(stack, **env):
    """The stack's own service with other options; as before afterwards."""
    before = dict(stack.environ)
    stack.environ.update(env)
    try:
        stack.dev("stop", "operations")
        stack.dev("start", "operations")
        yield
    finally:
        stack.environ.clear()
        stack.environ.update(before)
        stack.dev("stop", "operations")
        stack.dev("start", "operations")


def ini_of(stack):
    return str(stack.var / "weighbridge.ini")


def cgi(stack, method, uri, token="viewer", body=b"", program="weighbridge-operations", **env):
    """One request as a web server starts a CGI program: nothing but these variables."""
    env = {"GATEWAY_INTERFACE": "CGI/1.1", "REQUEST_METHOD": method, "REQUEST_URI": uri, "WB_CONFIG": ini_of(stack),
           "HTTP_AUTHORIZATION": "Bearer " + stack.env[f"WB_{token.upper()}_TOKEN"], **env}
    if body:
        env |= {"CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(body))}
    done = subprocess.run([binary(stack, program)], env=env, input=body, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    return split(done.stdout)
