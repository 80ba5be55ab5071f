# SPDX-License-Identifier: Apache-2.0
"""Who may call, and what bad input gets. Operations contract, section 7."""
import http.client
import json
import re

import pytest

from conftest import HANG_S

OWNER = {"owner": "o"}
JOB = "/api/v1/load-jobs/k"


def check_error(answer, status):
    assert answer.status_code == status, (answer.status_code, answer.text)
    body = answer.json()
    assert set(body) == {"error", "request_id"}
    assert body["request_id"] == answer.headers["X-Request-Id"]
    assert body["error"]
    return body["error"]


def raw(stack, method, path, body=None, headers=None, token="admin"):
    """Exactly these bytes of path and body."""
    connection = http.client.HTTPConnection("127.0.0.1", stack.port, timeout=HANG_S)
    connection.putrequest(method, path, skip_accept_encoding=True)
    headers = {"Authorization": "Bearer " + stack.env[f"WB_{token.upper()}_TOKEN"], **(headers or {})}
    if body is not None and "Content-Length" not in headers and "Transfer-Encoding" not in headers:
        headers["Content-Length"] = str(len(body))
    for name, value in headers.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders()
    if body:
        connection.send(body)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()

    class Answer:
        status_code, headers, text = answer.status, answer.headers, None

        @staticmethod
        def json():
            return json.loads(Answer.text)

    Answer.text = text.decode("utf-8", "replace")
    return Answer


def post(stack, body, path=JOB + "/claim", content_type="application/json", **kw):
    headers = {"Content-Type": content_type} if content_type else {}
    return raw(stack, "POST", path, body, {**headers, **kw})


# --- authentication ---

GETS = ["/api/operations", "/api/v1/staging", "/api/v1/load-jobs", "/metrics"]


@pytest.mark.parametrize("path", GETS)
def test_reading_needs_a_role(stack, path):
    check_error(stack.get(path, token=None), 401)
    for token in ("admin", "worker", "viewer"):
        assert stack.get(path, token=token).status_code == 200


@pytest.mark.parametrize("credential", ["Bearer nonsense", "Bearer ", "Basic YTpi", "Bearer " + "0" * 5000, "x"])
def test_an_unknown_credential_is_401(stack, credential):
    answer = stack.get("/api/operations", token=None, headers={"Authorization": credential})
    check_error(answer, 401)
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_the_wrong_role_is_403_and_nothing_happens(stack):
    for method, path, body in (("PUT", "/api/v1/staging/k", {"node_name": "n"}), ("DELETE", "/api/v1/staging/k", None),
                               ("POST", JOB + "/claim", OWNER), ("PUT", JOB, {"claim_token": "x"}),
                               ("DELETE", JOB, {"claim_token": "x"})):
        check_error(stack.call(method, path, body, token="viewer"), 403)
        check_error(stack.call(method, path, body, token=None), 401)
    assert stack.operations() == [] and stack.get("/api/v1/load-jobs").json() == {"load_jobs": []}


def test_a_remote_user_header_of_the_client_counts_for_nothing(stack):
    for name in ("Remote-User", "X-Remote-User", "WB-Remote-User", "WB_REMOTE_USER", "X-Forwarded-User"):
        check_error(stack.get("/api/operations", token=None, headers={name: "admin"}), 401)


def test_health_is_open(stack):
    assert stack.get("/healthz", token=None).json() == {"status": "ok"}
    assert stack.get("/readyz", token=None).json()["postgres"] == "ok"


# --- bodies ---

@pytest.mark.parametrize("body", [
    b"{", b"{}x", b"[]", b'"x"', b"null", b"{'owner':'o'}", b'{"owner":NaN}', b'{"owner":"o",}', b'{"owner":"a","owner":"b"}',
    b'{"owner":"\xff"}', b'{"owner":"a\\u0000b"}', b'{"owner":"\\ud800"}', b'{"owner":7}', b"{}", b'{"owner":null}',
    b'{"owner":"o","extra":1}', b'{"owner":"' + b"x" * 65 + b'"}', b'{"owner":' + b"[" * 40 + b"]" * 40 + b"}", b" "])
def test_malformed_bodies_are_400(stack, body):
    check_error(post(stack, body), 400)
    assert stack.get("/api/v1/load-jobs").json() == {"load_jobs": []}


@pytest.mark.parametrize("field,value", [
    ("bytes_sent", -1), ("bytes_sent", 1.5), ("bytes_sent", 2**53), ("bytes_sent", 10**30), ("bytes_sent", "1"),
    ("total_files", 2**31), ("file_index", -1), ("replica_index", 2**31), ("state", "ready"), ("state", "failed"),
    ("node_id", "x" * 37), ("node_name", "x" * 256), ("node_name", ["x"])])
def test_fields_out_of_range_are_400_and_named(stack, field, value):
    token = stack.claim("k")
    assert field in check_error(stack.load("k", token, **{field: value}), 400)


def test_text_is_measured_in_characters_as_its_column_is(stack):
    token = stack.claim("k")
    assert stack.load("k", token, node_name="é" * 255).status_code == 200
    check_error(stack.load("k", token, node_name="é" * 256), 400)


def test_a_required_body_without_length_is_411(stack):
    check_error(raw(stack, "POST", JOB + "/claim", None, {"Content-Type": "application/json"}), 411)


def test_a_chunked_body_is_taken(stack):
    answer = raw(stack, "POST", JOB + "/claim", b'e\r\n{"owner": "me"}\r\n0\r\n\r\n'.replace(b"e\r\n", b"f\r\n", 1),
                 {"Content-Type": "application/json", "Transfer-Encoding": "chunked"})
    assert answer.status_code == 201, answer.text


@pytest.mark.parametrize("size,status", [(65536, 400), (65537, 413), (200000, 413), (5 << 20, 413)])
def test_the_body_limit_is_64_kib(stack, size, status):
    body = b'{"owner":"' + b"x" * (size - 12) + b'"}'
    assert len(body) == size
    check_error(post(stack, body), status)


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""])
def test_a_required_body_that_is_not_json_is_415(stack, kind):
    check_error(post(stack, b'{"owner":"o"}', content_type=kind), 415)


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON"])
def test_json_by_other_spellings_is_taken(stack, kind):
    assert post(stack, b'{"owner":"o"}', content_type=kind).status_code == 201


# --- paths and methods ---

@pytest.mark.parametrize("path", [
    "/api/v1/staging/..", "/api/v1/staging/.", "/api/v1/staging/%2e%2e", "/api/v1/staging/%2E", "/api/v1/staging/a%2F..%2Fb",
    "/api/v1/staging/..%2Fb", "/api/./operations", "/api/v1/../operations", "/api/v1/staging/%00", "/api/v1/staging/%zz",
    "/api/v1/staging/%ff", "/api/v1/staging/%c0%af", "/api/v1/staging/a%0ab", "/api/v1/staging/a%7fb", "/api/v1/staging/%"])
def test_bad_paths_are_400(stack, path):
    check_error(raw(stack, "GET", path), 400)


@pytest.mark.parametrize("path", [
    "/", "/api", "/api/operations/", "/api//operations", "/api/v1/staging/", "/api/v1/staging/a/b", "/api/v1/nothing",
    "/API/operations", "/api/v1/load-jobs/k/claim/x"])
def test_unknown_paths_are_404(stack, path):
    check_error(raw(stack, "GET", path), 404)


def test_a_key_over_255_bytes_is_400(stack):
    check_error(stack.stage("x" * 256), 400)
    check_error(stack.stage("é" * 128), 400)


@pytest.mark.parametrize("method,path,allow", [
    ("POST", "/api/operations", "GET, HEAD"), ("DELETE", "/api/operations", "GET, HEAD"),
    ("PATCH", "/api/v1/load-jobs/k", "GET, HEAD, PUT, DELETE"), ("GET", JOB + "/claim", "POST"),
    ("OPTIONS", "/api/v1/staging/k", "GET, HEAD, PUT, DELETE"), ("FOO", "/api/v1/staging", "GET, HEAD")])
def test_a_wrong_method_is_405_with_allow(stack, method, path, allow):
    answer = raw(stack, method, path, b"" if method == "POST" else None)
    check_error(answer, 405)
    assert set(re.split(", *", answer.headers["Allow"])) == set(allow.split(", "))


def test_unknown_keys_are_404(stack):
    check_error(stack.get("/api/v1/load-jobs/none"), 404)
    check_error(stack.get("/api/v1/staging/none"), 404)


# --- foreign origins ---

@pytest.mark.parametrize("headers", [
    {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": "http://127.0.0.1:1"},
    {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}])
def test_unsafe_methods_from_a_foreign_origin_are_403(stack, headers):
    check_error(post(stack, b'{"owner":"o"}', **headers), 403)
    assert stack.get("/api/operations", headers=headers).status_code == 200, "safe methods may"


def test_the_own_origin_is_fine(stack):
    own = {"Origin": stack.url, "Sec-Fetch-Site": "same-origin"}
    assert post(stack, b'{"owner":"o"}', **own).status_code == 201


# --- what every answer has ---

def test_the_request_id_of_the_client_is_kept_if_it_is_one(stack):
    good = "client-id_0.1"
    assert stack.get("/api/operations", headers={"X-Request-Id": good}).headers["X-Request-Id"] == good
    for bad in ("short", "x" * 65, "has space x", "a;b;c;d;e;f"):
        got = stack.get("/api/operations", headers={"X-Request-Id": bad}).headers["X-Request-Id"]
        assert got != bad and re.fullmatch(r"[A-Za-z0-9._-]{8,64}", got)


def test_head_etag_and_304(stack):
    stack.stage("k")
    full = stack.get("/api/operations")
    tag = full.headers["ETag"]
    assert re.fullmatch(r'"[^"]+"', tag) and full.headers["Cache-Control"] == "no-cache"
    head = stack.call("HEAD", "/api/operations")
    assert (head.status_code, head.content, head.headers["Content-Length"]) == (200, b"", str(len(full.content)))
    for match in (tag, "W/" + tag, '"x", ' + tag, "*"):
        same = stack.get("/api/operations", headers={"If-None-Match": match})
        assert (same.status_code, same.content, same.headers["ETag"]) == (304, b"", tag)
    stack.stage("k2")
    assert stack.get("/api/operations", headers={"If-None-Match": tag}).status_code == 200


def test_answers_alternate_on_one_connection(stack):
    """Report 15 (test_reports.py)."""
    import requests
    session = requests.Session()
    tag = stack.get("/api/operations", session=session).headers["ETag"]
    for _ in range(20):
        assert stack.get("/api/operations", session=session, headers={"If-None-Match": tag}).status_code == 304
        assert stack.call("PUT", "/api/v1/staging/k", {"node_name": "n"}, session=session).status_code == 204
        assert stack.call("HEAD", "/api/operations", session=session).status_code == 200
        assert stack.get("/nowhere", session=session).status_code == 404
        assert stack.call("DELETE", "/api/v1/staging/k", session=session).status_code == 204
        assert stack.get("/api/operations", session=session).json() == {"operations": []}


def test_long_headers_and_queries_are_taken(stack):
    """Report 6 (test_reports.py)."""
    for size in (8100, 12000, 20000):
        assert stack.get("/api/operations", headers={"Cookie": "x" * size}).status_code == 200, size
    assert stack.get("/api/operations?x=" + "y" * 7000).status_code == 200


def test_security_headers(stack):
    for answer in (stack.get("/api/operations"), stack.get("/nowhere"), stack.get("/api/operations", token=None)):
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
