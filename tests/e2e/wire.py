# SPDX-License-Identifier: Apache-2.0
"""HTTP as bytes, for what no client library lets one send; and what has to hold however a client behaves."""
import os
import socket
from contextlib import contextmanager

from conftest import HANG_S, wait_until
from test_flicker import Pollers


# What a worker may open for good when it is first needed: two stores and a file for each request thread and two stores,
# a subscription and the like for the refresher. Fewer than what any of these tests would leave behind.
OWN = 20


def http(stack, port=None):
    s = socket.create_connection(("127.0.0.1", port or stack.port))
    s.settimeout(HANG_S)
    return s


def head(stack, method, path, *lines, token="worker", version="HTTP/1.1"):
    """A request's head with just these further lines."""
    who = f"Authorization: Bearer {stack.env[f'WB_{token.upper()}_TOKEN']}"
    return "\r\n".join([f"{method} {path} {version}", "Host: x", who, *lines, "", ""]).encode("latin-1")


def put(stack, key, body=b'{"node_name":"n"}', *lines):
    return head(stack, "PUT", f"/api/v1/staging/{key}", "Content-Type: application/json", f"Content-Length: {len(body)}",
                *lines) + body


class Answers:
    """The answers that come on a connection, one by one."""

    def __init__(self, s):
        self.s, self.data = s, b""

    def _more(self):
        more = self.s.recv(65536)
        self.data += more
        return bool(more)

    def next(self, bodiless=False):
        """(status, headers in lower case, body), or None at the connection's end."""
        while b"\r\n\r\n" not in self.data:
            if not self._more():
                assert not self.data, self.data
                return None
        top, _, self.data = self.data.partition(b"\r\n\r\n")
        lines = top.decode("latin-1").split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
        status = int(lines[0].split()[1])
        size = 0 if bodiless or status in (204, 304) else int(headers["content-length"])
        while len(self.data) < size:
            assert self._more(), "the connection ended within an answer"
        body, self.data = self.data[:size], self.data[size:]
        return status, headers, body


def descriptors(pid):
    """How many it has open, or None where only the superuser may look."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except PermissionError:
        return None


def is_quiet(stack):
    """Nobody's request is half there, and the web server has let its idle connections go."""
    return stack.metric("weighbridge_fcgi_connections_waiting") == 0 and stack.metric("weighbridge_fcgi_connections") <= 2


@contextmanager
def others_are_served(stack):
    """Polls go on all the while without one error. Afterwards the workers are the same, and hold nothing more."""
    stack.operations()
    wait_until(lambda: is_quiet(stack), "quiet before")
    workers = sorted(stack.processes()[1])
    before = [descriptors(pid) for pid in workers]
    with Pollers(stack) as pollers:
        yield
        seen = len(pollers.polls)
        wait_until(lambda: len(pollers.polls) >= seen + 8 or not all(t.is_alive() for t in pollers.threads), "polls")
    assert {status for _, _, status, _, _ in pollers.polls} == {200}
    assert sorted(stack.processes()[1]) == workers, "no worker died of it"
    wait_until(lambda: is_quiet(stack), "quiet again")
    wait_until(lambda: all(b is None or descriptors(pid) <= b + OWN for pid, b in zip(workers, before)),
               "no descriptor more than before")
