# SPDX-License-Identifier: Apache-2.0
"""Clients that are slow, half gone, or lie about where their requests end: through the web server, and straight at the
FastCGI socket, for who may open it. Others are served all the while, and nothing of it stays behind."""
import random
import socket
import struct
from contextlib import suppress

import pytest

from program import (BEGIN, END, GET_VALUES, PARAMS, STDIN, answer_of, begin, connect, pairs, params_of, record,
                     whole_request)
from test_processes import socket_of
from wire import Answers, head, http, others_are_served, put

ABORT, STDOUT, DATA, UNKNOWN = 2, 6, 8, 11
MANY = 40  # clients at once, several times the threads there are


@pytest.fixture
def victim(stack):
    """A copy that a hidden request would end."""
    assert stack.stage("victim").status_code == 204
    yield
    assert stack.entry("victim"), "a request within a request was obeyed"


def hidden(stack):
    return head(stack, "DELETE", "/api/v1/staging/victim", "Content-Length: 0")


def talk(stack, data, half_close=False):
    """Sends it all and takes what comes until the server ends the connection."""
    with http(stack) as s:
        with suppress(ConnectionError):
            s.sendall(data)
            if half_close:
                s.shutdown(socket.SHUT_WR)
        got = b""
        with suppress(ConnectionError):
            while more := s.recv(65536):
                got += more
        return got


def statuses(got):
    return [int(line.split()[1]) for line in got.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


# --- requests whose end is told in two ways (RFC 9112, section 11.2) ---

def smuggled(stack):
    inner = hidden(stack)
    size = f"Content-Length: {len(inner) + 5}"

    def put_with(*lines):
        return head(stack, "PUT", "/api/v1/staging/k", "Content-Type: application/json", *lines)

    chunked = "Transfer-Encoding: chunked"
    end = b"0\r\n\r\n"
    return {
        "length and chunked": put_with(size, chunked) + end + inner,
        "chunked and length": put_with(chunked, size) + end + inner,
        "two lengths": put_with("Content-Length: 5", size) + end + inner,
        "two lengths in one": put_with("Content-Length: 5, 5") + end + inner,
        "a length with a sign": put_with("Content-Length: +5") + end + inner,
        "a hexadecimal length": put_with("Content-Length: 0x5") + end + inner,
        "a negative length": put_with("Content-Length: -1") + inner,
        "an empty length": put_with("Content-Length:") + inner,
        "a length beyond all numbers": put_with("Content-Length: 18446744073709551621") + end + inner,
        "a space before the colon": put_with("Content-Length : 5") + end + inner,
        "a folded line": put_with("X-A: b", " Content-Length: 5") + end + inner,
        "a folded encoding": put_with("Transfer-Encoding:", " chunked") + end + inner,
        "an unknown encoding": put_with("Transfer-Encoding: xchunked") + end + inner,
        "two encodings": put_with(chunked, "Transfer-Encoding: identity") + end + inner,
        "a list of encodings": put_with("Transfer-Encoding: identity, chunked") + end + inner,
        "a tab for a space": put_with("Transfer-Encoding:\x0bchunked") + end + inner,
        "a chunk without a size": put_with(chunked) + b"zz\r\n" + inner,
        "a chunk beyond all numbers": put_with(chunked) + b"fffffffffffffffff\r\n" + inner,
        "a negative chunk": put_with(chunked) + b"-1\r\n" + inner,
        "a NUL": put_with("X-A: \0", "Content-Length: 5") + end + inner,
        "no host": b"GET /healthz HTTP/1.1\r\n\r\n",
        "two hosts": head(stack, "GET", "/healthz", "Host: y"),
    }


def test_a_request_that_could_end_in_two_places_is_refused(stack, victim):
    with others_are_served(stack):
        for name, data in smuggled(stack).items():
            got = talk(stack, data)
            assert statuses(got) in ([400], [501], [413]), (name, got)
            assert b'"request_id":' in got, (name, got)


def test_what_looks_like_a_request_within_a_body_is_a_body(stack, victim):
    inner = hidden(stack)
    with others_are_served(stack), http(stack) as s:
        answers = Answers(s)
        for data in (put(stack, "k", inner),
                     head(stack, "PUT", "/api/v1/staging/k", "Content-Type: application/json",
                          "Transfer-Encoding: chunked") + b"%x\r\n%b\r\n0\r\n\r\n" % (len(inner), inner)):
            s.sendall(data)
            assert answers.next()[0] == 400, "no JSON"
        s.sendall(head(stack, "GET", "/healthz"))
        assert answers.next()[2] == b'{"status":"ok"}'


def test_lines_may_end_without_cr_and_mean_the_same(stack, victim):
    """nginx takes them, as RFC 9112, section 2.2, allows; no end of a request may come of it."""
    body = b'{"node_name":"n"}'
    data = put(stack, "k", body).replace(b"\r\n", b"\n")
    with others_are_served(stack):
        got = talk(stack, data + head(stack, "GET", "/api/v1/staging/victim", "Connection: close"))
        assert statuses(got) == [204, 200], got


def test_the_absolute_form_is_taken_and_its_host_chooses_nothing(stack):
    """RFC 9112, section 3.2.2."""
    plain = stack.get("/api/v1/staging", token="viewer").text.encode()
    with others_are_served(stack), http(stack) as s:
        answers = Answers(s)
        for host in ("x", "evil.example", "127.0.0.1:1", "[::1]"):
            s.sendall(head(stack, "GET", f"http://{host}/api/v1/staging", token="viewer"))
            assert answers.next()[::2] == (200, plain)
            s.sendall(head(stack, "GET", f"http://{host}/api/../api/v1/staging", token="viewer"))
            assert answers.next()[0] == 400
            s.sendall(head(stack, "GET", f"http://{host}", token="viewer"))
            assert answers.next()[0] == 404


# --- other than HTTP/1.1 ---

def odd(stack):
    return {
        "no version": b"GET /healthz\r\n",
        "HTTP/1.0": b"GET /healthz HTTP/1.0\r\n\r\n",
        "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(40),
        "HTTP/9": head(stack, "GET", "/healthz", version="HTTP/9.0"),
        "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(range(189)),
        "nothing": b"",
        "empty lines": b"\r\n" * 1000,
        "bytes": bytes(range(256)) * 20,
        "a name without end": b"X" * 100000,
        "CONNECT": b"CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n",
        "TRACE": head(stack, "TRACE", "/healthz"),
        "a line that is no header": head(stack, "GET", "/healthz", "nonsense"),
        "an asterisk": head(stack, "OPTIONS", "*"),
        "expects the impossible": head(stack, "PUT", "/api/v1/staging/k", "Expect: 200-maybe", "Content-Length: 1") + b"x",
        "upgrades": head(stack, "GET", "/healthz", "Connection: Upgrade", "Upgrade: websocket"),
        "is FastCGI": whole_request("/healthz"),
    }


def test_other_protocols_harm_nobody(stack):
    with others_are_served(stack):
        for name, data in odd(stack).items():
            got = talk(stack, data, half_close=True)
            assert not statuses(got) or statuses(got)[0] < 506, (name, got)


# --- too much ---

def test_oversized_requests_are_refused_with_a_status_of_their_own(stack):
    lines = [f"X-{i}: {'y' * 900}" for i in range(60)]
    with others_are_served(stack):
        for data, status in (
                (head(stack, "GET", "/api/v1/staging/" + "x" * 30000), 414),
                (head(stack, "GET", "/api/operations?" + "x" * 30000), 414),
                (head(stack, "GET", "/api/operations", "X-Long: " + "y" * 30000), 431),
                (head(stack, "GET", "/api/operations", *lines), 431),
                (put(stack, "k", b"x" * 65537), 413),
                (put(stack, "k", b"x" * (5 << 20)), 413)):
            with http(stack) as s:
                with suppress(ConnectionError):
                    s.sendall(data)
                assert Answers(s).next()[0] == status, data[:60]


# --- several at once ---

def test_pipelined_requests_are_answered_in_order(stack):
    requests, expected = b"", []
    for i in range(50):
        requests += put(stack, f"p{i}", b'{"node_name":"n%d"}' % i) + head(stack, "GET", f"/api/v1/staging/p{i}")
        requests += head(stack, "HEAD", "/healthz") + head(stack, "GET", f"/api/v1/nothing{i}")
        expected += [(204, b"", False), (200, b'"node_name":"n%d"' % i, False), (200, b"", True), (404, b"", False)]
    with others_are_served(stack), http(stack) as s:
        answers = Answers(s)
        s.sendall(requests)
        for status, part, bodiless in expected:
            got = answers.next(bodiless)
            assert got[0] == status and part in got[2], got


# --- slow and half gone ---

def test_clients_that_never_finish_a_request_hold_nobody_up(stack):
    kept = []
    request = put(stack, "slow", b'{"node_name":"n"}')
    try:
        with others_are_served(stack):
            for i in range(MANY):
                for data in (request[:1], request[:30], request[:-20], request[:-1]):
                    s = http(stack)
                    kept.append(s)
                    s.sendall(data)
            assert stack.stage("other").status_code == 204
            for s in kept[3::4]:  # the last byte, at last
                s.sendall(request[-1:])
                assert Answers(s).next()[0] == 204
            for s in kept:
                s.close()
    finally:
        for s in kept:
            s.close()


def test_clients_that_do_not_read_hold_nobody_up(stack):
    for i in range(300):
        stack.put_overlay(f"k{i}", node_name="n" * 200, file_name="f" * 300, message="m" * 400, bytes_sent=1,
                          total_bytes=2, progress=50, speed="", file_index=0, total_files=0,
                          started_at="2026-01-01T00:00:00Z", stamp=1, claim="", session="")
    kept = []
    try:
        with others_are_served(stack):
            for _ in range(MANY):
                s = socket.socket()
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                s.connect(("127.0.0.1", stack.port))
                kept.append(s)
                s.sendall(head(stack, "GET", "/api/operations", token="viewer") * 20)
            assert stack.stage("other").status_code == 204
            for s in kept:
                s.close()
    finally:
        for s in kept:
            s.close()


def test_clients_that_go_in_the_middle_harm_nobody(stack):
    """Half closed, closed, and reset: within a head, within a body, before the answer and within it."""
    request = put(stack, "gone", b'{"node_name":"n"}')
    reset = struct.pack("ii", 1, 0)
    with others_are_served(stack):
        for size in (1, 40, len(request) - 18, len(request) - 1, len(request)):
            for how in ("half", "close", "reset"):
                for _ in range(5):
                    with http(stack) as s:
                        s.sendall(request[:size])
                        if how == "half":
                            s.shutdown(socket.SHUT_WR)
                            with suppress(ConnectionError):
                                while s.recv(4096):
                                    pass
                        if how == "reset":
                            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        assert stack.stage("gone").status_code == 204


# --- at the FastCGI socket ---

def direct(stack, *data):
    """Sends it and takes what comes until the end, or until an answer is whole. Nobody is waited for who waits for
    more: what the handler does with half a request is told by the timeout of its own tests."""
    with connect(socket_of(stack)) as s:
        got = b""
        with suppress(OSError):
            for part in data:
                s.sendall(part)
            s.shutdown(socket.SHUT_WR)
            while more := s.recv(65536):
                got += more
        return got


def status_of(got):
    at = got.find(b"Status: ")
    return int(got[at + 8:at + 11]) if at >= 0 else None


def put_direct(stack, key, body=b'{"node_name":"n"}', length=None):
    params = params_of(f"/api/v1/staging/{key}", "PUT", stack.env["WB_WORKER_TOKEN"], body)
    if length is not None:
        params["CONTENT_LENGTH"] = length
    return begin() + record(PARAMS, pairs(params)) + record(PARAMS) + record(STDIN, body) + record(STDIN)


def malformed(stack):
    params = pairs(params_of("/healthz"))
    named = record(PARAMS, params) + record(PARAMS)
    yield from (struct.pack(">BBHHBx", version, BEGIN, 1, 8, 0) + bytes(8) for version in (0, 2, 255))
    # what would be a BEGIN but for its type
    yield from (record(kind, b"\0\1" + bytes(6)) + named + record(STDIN)
                for kind in (0, ABORT, END, PARAMS, STDIN, STDOUT, DATA, GET_VALUES, 10, UNKNOWN, 12, 255))
    yield from (record(BEGIN, struct.pack(">HB5x", role, 0)) + named + record(STDIN) for role in (0, 2, 3, 65535))
    yield from (record(BEGIN, b"\0\1" + bytes(n)) + named + record(STDIN) for n in (0, 5, 7, 60000))
    yield begin() + begin() + named + record(STDIN)
    # lengths of names and values that go past the record, the stream, and all numbers
    for lengths in (b"\x7f\x7f", b"\x80\x00\x01\x00\x00", b"\xff\xff\xff\xff\xff\xff\xff\xff", b"\x7f\xff\xff\xff\x01",
                    b"\xff\xff\xff\xfe\xff\xff\xff\xfe", b"\x80", b"\x01", b"\x05\x80\x00"):
        yield begin() + record(PARAMS, lengths + b"ab") + record(PARAMS) + record(STDIN)
    # a stream that has ended goes on, and one that has not begun
    yield begin() + record(STDIN) + named
    yield begin() + named + named + record(STDIN)
    yield begin() + record(PARAMS, params) + record(STDIN)
    # a record that is longer than what comes
    yield begin() + struct.pack(">BBHHBx", 1, PARAMS, 1, 65535, 255) + params
    # aborted at every stage
    aborted = record(ABORT)
    yield begin() + aborted
    yield begin() + record(PARAMS, params[:9]) + aborted
    yield begin() + record(PARAMS, params) + aborted
    yield begin() + named + aborted
    yield begin() + named + record(STDIN, b"x") + aborted
    # management records, alone, before and within
    values = record(GET_VALUES, pairs({"FCGI_MAX_CONNS": "", "FCGI_MAX_REQS": "", "FCGI_MPXS_CONNS": ""}), request=0)
    yield values
    yield values * 50
    yield values + whole_request("/healthz")
    yield begin() + values + named + record(STDIN)
    yield begin() + record(PARAMS, params) + values + record(PARAMS) + record(STDIN)
    # another request's records within one
    for kind in (BEGIN, PARAMS, STDIN, ABORT):
        other = record(kind, bytes(8), request=2)
        yield begin() + other + named + record(STDIN)
        yield begin() + named + other + record(STDIN)
    yield record(BEGIN, struct.pack(">HB5x", 1, 0), request=0) + named + record(STDIN)
    # parameters over the limit
    yield begin() + record(PARAMS, pairs({"X": "y" * 60000})) * 3 + record(PARAMS) + record(STDIN)
    yield begin() + record(PARAMS, b"\0\0" * 30000) * 3 + record(PARAMS) + record(STDIN)


def test_malformed_records_are_answered_with_the_end_of_their_connection(stack):
    with others_are_served(stack):
        for i, data in enumerate(malformed(stack)):
            got = direct(stack, data)
            assert status_of(got) in (None, 400), (i, data[:80], got)


def test_changed_requests_harm_nobody(stack):
    """A whole request with a few bytes changed, cut, doubled or left out, by a fixed seed."""
    dice = random.Random(5)
    whole = put_direct(stack, "changed")
    with others_are_served(stack):
        for _ in range(1500):
            data = bytearray(whole)
            for _ in range(dice.randint(1, 4)):
                if not data:
                    break
                at = dice.randrange(len(data))
                what = dice.randrange(4)
                if what == 0:
                    data[at] = dice.randrange(256)
                elif what == 1:
                    del data[at:at + dice.randint(1, 9)]
                elif what == 2:
                    data[at:at] = data[at:at + dice.randint(1, 40)]
                else:
                    data = data[:at + 1]
            direct(stack, bytes(data))


def test_records_of_any_size_are_taken(stack):
    """One byte each; with padding; of another id; parameters of just the limit."""
    params = pairs(params_of("/healthz"))
    small = begin() + b"".join(record(PARAMS, params[i:i + 1]) for i in range(len(params))) + record(PARAMS) + record(STDIN)
    padded = begin() + struct.pack(">BBHHBx", 1, PARAMS, 1, len(params), 255) + params + bytes(255) + \
        record(PARAMS) + record(STDIN)
    other = b"".join(part[:2] + b"\xff\xff" + part[4:] for part in (
        begin(), record(PARAMS, params), record(PARAMS), record(STDIN)))
    room = 65536 - len(params) - len(pairs({"X": "y" * 60000})) + 60000
    filler = pairs({"X": "y" * room})
    large = begin() + record(PARAMS, params) + record(PARAMS, filler[:60000]) + record(PARAMS, filler[60000:]) + \
        record(PARAMS) + record(STDIN)
    body = put_direct(stack, "small")
    at = body.index(record(STDIN)[:2], len(body) - 40)
    text = b'{"node_name":"n"}'
    bytewise = body[:at] + b"".join(record(STDIN, text[i:i + 1]) for i in range(len(text))) + record(STDIN)
    with others_are_served(stack):
        for data in (small, padded, large):
            assert status_of(direct(stack, data)) == 200
        assert status_of(direct(stack, bytewise)) == 204
        got = direct(stack, other)
        assert status_of(got) == 200 and got[2:4] == b"\xff\xff", "answered under its own id"
        for step in (1, 3, 7):  # however the bytes come
            assert status_of(direct(stack, *(small[i:i + step] for i in range(0, len(small), step)))) == 200


@pytest.mark.parametrize("length", ["17", "21", "0", "", "-1", "+20", "20x", "0x14", "2e1", "99999999999999999999", "20 20"])
def test_a_length_that_is_not_the_bodys_commits_nothing(stack, length):
    """Reference, "Abort": the bytes read must be CONTENT_LENGTH. Of this body the first 17 would do."""
    body = b'{"node_name":"n"}   '
    status = status_of(direct(stack, put_direct(stack, "wrong-length", body, length)))
    assert status in (None, 400, 411, 413), status
    assert stack.entry("wrong-length") is None


def test_the_answer_to_one_is_never_the_answer_to_another(stack):
    """Many connections, each asking for its own key in pieces that interleave."""
    for i in range(MANY):
        assert stack.stage(f"mine{i}", file_name=f"file{i}").status_code == 204
    with others_are_served(stack):
        waiting = []
        for i in range(MANY):
            s = connect(socket_of(stack))
            waiting.append((i, s, whole_request(f"/api/v1/staging/mine{i}", token=stack.env["WB_VIEWER_TOKEN"])))
        dice = random.Random(7)
        for at in range(0, max(len(data) for _, _, data in waiting), 37):
            for _, s, data in dice.sample(waiting, MANY):
                if data[at:]:
                    s.sendall(data[at:at + 37])
        for i, s, _ in waiting:
            status, body = answer_of(s)
            assert status == 200 and f'"file{i}"' in body
            s.close()
