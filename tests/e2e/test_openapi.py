# SPDX-License-Identifier: Apache-2.0
"""docs/openapi.yaml against the code's route tables and against the running server: every documented call is made,
every documented answer is produced and looks as it is described, and limits are where they are said to be."""
import json
import re
from collections import Counter
from urllib.parse import quote

import pytest
import yaml
from jsonschema import Draft202012Validator, RefResolver

from conftest import ROOT, wait_until
from test_input import raw

DOC = yaml.safe_load((ROOT / "docs" / "openapi.yaml").read_text())
RESOLVER = RefResolver("", DOC)
METHODS = {"get", "head", "put", "post", "delete"}
# A defect cannot be produced; outages have a test of their own.
NOT_HERE = {"500", "503"}


def resolved(node):
    while isinstance(node, dict) and "$ref" in node:
        node = RESOLVER.resolve(node["$ref"])[1]
    return node


class Call:
    """One documented operation."""

    def __init__(self, path, method, item):
        self.path, self.method, self.item = path, method.upper(), item
        self.id = item["operationId"]
        self.names = set(re.findall(r"{(\w+)}", path))
        self.responses = {status: resolved(r) for status, r in item["responses"].items()}
        self.open = item.get("security") == []
        self.media = resolved(item["requestBody"])["content"]["application/json"] if "requestBody" in item else None

    @property
    def schema(self):
        return resolved(self.media["schema"])

    def body(self, **fields):
        """The documented example, with these fields in place of its own."""
        return {**self.media["example"], **fields} if self.media else None

    def url(self, key="k"):
        return re.sub(r"{\w+}", lambda _: quote(key, safe=""), self.path)

    @property
    def token(self):
        """Of the least role that may call."""
        return self.item["x-roles"][0] if "x-roles" in self.item else "viewer"

    def make(self, stack, key="k", body=None, token=None, **kw):
        token = token or self.token
        return stack.call(self.method, self.url(key), body, token=token, **kw)


CALLS = {c.id: c for c in (Call(path, method, item[method]) for path, item in DOC["paths"].items()
                           for method in item if method in METHODS)}


def validate(schema, value):
    Draft202012Validator(schema, resolver=RESOLVER).validate(value)


def check(spec, answer, status):
    """The answer is what spec, a resolved response, says."""
    where = (status, answer.headers, answer.text)
    assert answer.status_code == int(status), where
    for name, header in spec.get("headers", {}).items():
        header = resolved(header)
        assert name in answer.headers or not header.get("required"), (name, where)
        if name in answer.headers:
            validate(header["schema"], answer.headers[name])
    if "content" not in spec:
        assert answer.text == "", where
        return
    kind = answer.headers["Content-Type"].partition(";")[0]
    assert list(spec["content"]) == [kind], where
    validate(spec["content"][kind]["schema"], json.loads(answer.text) if kind == "application/json" else answer.text)


# --- the page itself ---

def walk(node, at="#"):
    yield at, node
    for key, child in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from walk(child, f"{at}/{key}")


def test_every_reference_leads_somewhere_and_every_component_is_used():
    used = {node["$ref"] for _, node in walk(DOC) if isinstance(node, dict) and "$ref" in node}
    for ref in used:
        RESOLVER.resolve(ref)
    parts = {f"#/components/{kind}/{name}" for kind in DOC["components"] for name in DOC["components"][kind]}
    assert parts - used == {"#/components/securitySchemes/bearer", "#/components/responses/MethodNotAllowed"}


def test_every_operation_is_described():
    assert max(Counter(c["operationId"] for i in DOC["paths"].values() for m, c in i.items()
                       if m in METHODS).values()) == 1
    tags = {t["name"] for t in DOC["tags"]}
    for call in CALLS.values():
        assert call.item["summary"] and set(call.item["tags"]) <= tags, call.id
        assert any(s.startswith("2") for s in call.responses) and "500" in call.responses, call.id
        for status, spec in call.responses.items():
            assert spec["description"].strip(), (call.id, status)
            assert ("content" in spec) == (call.method != "HEAD" and status not in ("204", "304")), (call.id, status)
            assert "X-Request-Id" in spec["headers"], (call.id, status)
        assert call.open or {"401", "403"} <= set(call.responses), call.id
        assert (call.media is not None) == ("411" in call.responses) == ("415" in call.responses), call.id
        declared = [resolved(p)["name"] for p in DOC["paths"][call.path].get("parameters", []) +
                    call.item.get("parameters", [])]
        assert {"key", "jobID"} & set(declared) == call.names, call.id
        assert ("If-None-Match" in declared) == ("304" in call.responses), call.id


def test_head_stands_beside_every_get_and_has_its_answers():
    for call in CALLS.values():
        if call.method == "GET":
            [head] = [c for c in CALLS.values() if (c.path, c.method) == (call.path, "HEAD")]
            assert set(head.responses) == set(call.responses), call.id
            assert head.item.get("x-roles") == call.item.get("x-roles")


def test_objects_are_closed():
    for at, node in walk(DOC["components"]["schemas"]):
        if isinstance(node, dict) and node.get("type") == "object":
            closed = node.get("additionalProperties", node.get("unevaluatedProperties"))
            assert closed is False or at in ("#/LoadJobFields", "#/NodeReport"), at
            assert set(node.get("required", [])) <= set(node.get("properties", {})), at


def test_examples_are_what_their_schemas_say():
    examples = 0
    for at, node in walk(DOC):
        if isinstance(node, dict) and "schema" in node and "headers" not in at.split("/")[-2:]:
            Draft202012Validator.check_schema(node["schema"])
            if "example" in node:
                validate(node["schema"], node["example"])
                examples += 1
    assert examples > 30
    for call in CALLS.values():
        for media in [call.media] + [m for r in call.responses.values() for m in r.get("content", {}).values()]:
            assert media is None or "example" in media, call.id


# --- against the sources ---

def table(path, name):
    source = (ROOT / path).read_text()
    return re.search(name + r"\[\] = \{\n(.*?)\n\};", source, re.S).group(1)


def routes():
    words = {"READERS": ["viewer", "worker", "admin"], "WRITERS": ["worker", "admin"], "ACTORS": ["admin"], "ROLE_NONE": [],
             "ROLE_VIEWER | ROLE_WORKER | ROLE_ADMIN": ["viewer", "worker", "admin"]}
    for path, name in (("handlers/operations.c", "ROUTES"), ("lib/web/health.c", "HEALTH_ROUTES")):
        rows = re.findall(r'\{\s*"([A-Z]+)",\s*"([^"]+)",\s*\w+,\s*([^,]+?),\s*([^}]+?)\s*\}', table(path, name))
        assert len(rows) == table(path, name).count("{ \"")
        for method, pattern, roles, flags in rows:
            yield method, pattern, words[roles], re.split(r"\s*\|\s*", flags)


def test_documented_are_the_routes_of_the_program_and_nothing_else():
    assert {(m, p) for m, p, _, _ in routes()} == {(c.method, c.path) for c in CALLS.values() if c.method != "HEAD"}


def test_roles_bodies_and_tags_are_those_of_the_route_table():
    by_place = {(c.method, c.path): c for c in CALLS.values()}
    for method, path, roles, flags in routes():
        call = by_place[method, path]
        assert call.item.get("x-roles", []) == roles, call.id
        assert call.open == ("WEB_OPEN" in flags), call.id
        assert (call.media is not None) == ("WEB_BODY_JSON" in flags), call.id
        assert ("304" in call.responses) == bool({"READ", "WEB_ETAG"} & set(flags)), call.id


FIELD_TABLES = {
    "postOperation": ("handlers/gallery_calls.c", "ADMISSION_FIELDS"),
    "putOperation": ("handlers/gallery_calls.c", "REPORT_FIELDS"),
    "putStaging": ("handlers/staging_calls.c", "PUT_FIELDS"),
    "postStagingFileComplete": ("handlers/staging_calls.c", "FILE_COMPLETE_FIELDS"),
    "postLoadJobClaim": ("handlers/load_job_calls.c", "CLAIM_FIELDS"),
    "putLoadJob": ("handlers/load_job_calls.c", "UPDATE_FIELDS"),
    "postLoadJobFail": ("handlers/load_job_calls.c", "FAIL_FIELDS"),
    "deleteLoadJob": ("handlers/load_job_calls.c", "DONE_FIELDS"),
}


def test_bodies_have_the_fields_of_the_tables():
    assert set(FIELD_TABLES) == {c.id for c in CALLS.values() if c.media}
    for name, place in FIELD_TABLES.items():
        rows = re.findall(r"JX_([A-Z]+)\(struct \w+, (\w+), (\w+)", table(*place))
        schema = CALLS[name].schema
        assert {f for _, f, _ in rows} == set(schema["properties"]), name
        assert {f for _, f, flag in rows if flag == "JX_REQUIRED"} == set(schema["required"]), name


# --- against the running server ---

@pytest.fixture
def strangers_token():
    """Whose role may not even read here."""
    return "submitter"


def claimed(stack, key):
    """Owned and staging: then there is a row and a report. The claim's token."""
    token = stack.claim(key)
    assert stack.load(key, token, state="staging", node_id="n", node_name="gpu", bytes_sent=1,
                      total_bytes=10).status_code == 200
    return token


def admitted(stack, key):
    """An operation that may be cancelled, reported once."""
    assert stack.admit(key, cache_key=f"node:n1:{key}", cancellable=True).status_code == 201
    answer = stack.report(key, progress=10.5, phase="downloading", current_bytes=1, total_bytes=10,
                          nodes=[{"node_id": "n1", "status": "downloading", "percentage": 10.5, "current": "1 B"}])
    assert answer.status_code == 200, answer.text
    return key


def ended(stack, key):
    assert stack.report(admitted(stack, key), status="failed", error="why").status_code == 200


def acted(call, stack, key):
    admitted(stack, key)
    return call.make(stack, key)


def read(call, stack, key):
    if "jobID" in call.names:
        return acted(call, stack, key)
    admitted(stack, key + "-op")
    ended(stack, key + "-ended")
    claimed(stack, key)
    stack.stage(key + "-without-a-row", file_name="f", bytes_sent=1, total_bytes=2)
    return call.make(stack, key)


def unchanged(call, stack, key):
    read(call, stack, key)
    tag = wait_until(lambda: call.make(stack, key).headers.get("ETag"), "a tag")

    def again():
        nonlocal tag
        answer = call.make(stack, key, headers={"If-None-Match": tag})
        tag = answer.headers["ETag"]
        return answer if answer.status_code == 304 else None
    return wait_until(again, "an unchanged answer")


def write(call, stack, key):
    if call.id == "putOperation":
        admitted(stack, key)
    token = claimed(stack, key) if call.path.startswith("/api/v1/load-jobs") and "claim" not in call.path else None
    return call.make(stack, key, call.body(**({"claim_token": token} if token else {})))


def conflict(call, stack, key):
    stack.stage(key, session="somebody-else's")
    if "load-jobs" in call.path:
        claimed(stack, key)
    return call.make(stack, key, call.body())


def raw_write(body, **headers):
    return lambda call, stack, key: raw(stack, call.method, call.url(key), body, headers, token=call.token)


def forbidden(call, stack, key):
    if "viewer" not in call.item["x-roles"]:
        spec = call.responses["403"]
        for role in {"viewer", "worker", "admin"} - set(call.item["x-roles"]):
            check(spec, call.make(stack, key, call.body(), token=role), 403)
        check(spec, call.make(stack, key, call.body(), headers={"Origin": "https://elsewhere.example"}), 403)
    # A worker that the reload has let go may still answer on a kept connection.
    answers = (call.make(stack, key, call.body(), token="submitter") for _ in range(1000))
    return next(a for a in answers if a.status_code != 401)


def malformed(call, stack, key):
    if call.media:
        check(call.responses["400"], raw_write(b"{", **{"Content-Type": "application/json"})(call, stack, key), 400)
    if not call.names:
        return call.make(stack, key, call.body(op_type="theft"))
    check(call.responses["400"], raw(stack, call.method, call.url() + "%zz", token=call.token), 400)
    # Of what is no operation at all there is nothing to dismiss.
    bad = "%" if call.id == "postOperationDismiss" else "x" * 256
    return call.make(stack, bad, call.body()) if bad != "%" else raw(stack, call.method, call.url(".."), token=call.token)


def claim_lost(call, stack, key):
    claimed(stack, key)
    return write(call, stack, key)


RECIPES = {
    "200": lambda c, s, k: {"putLoadJob": write, "putOperation": write, "postLoadJobClaim": claim_lost}.get(c.id, read)(c, s, k),
    "201": write,
    "204": write,
    "304": unchanged,
    "400": malformed,
    "401": lambda c, s, k: s.call(c.method, c.url(k), c.body(), token=None),
    "403": forbidden,
    "404": lambda c, s, k: c.make(s, "nobody-knows", c.body()),
    "409": conflict,
    "411": raw_write(None, **{"Content-Type": "application/json"}),
    "413": raw_write(b" " * 65537, **{"Content-Type": "application/json"}),
    "415": raw_write(b"{}", **{"Content-Type": "text/plain"}),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_documented_answer_is_given_as_described(stack, strangers_token, name):
    call = CALLS[name]
    for status, spec in call.responses.items():
        if status not in NOT_HERE:
            check(spec, RECIPES[status](call, stack, "key-" + status), status)


def test_lists_hold_what_was_written(stack):
    """So that the schemas above were not matched by empty lists."""
    token = claimed(stack, "k")
    admitted(stack, "op")
    ended(stack, "op-ended")
    ended(stack, "op-dismissed")
    assert stack.act("op-dismissed", "dismiss").status_code == 200
    assert len(CALLS["getOperationHistory"].make(stack).json()["operations"]) == 2
    assert len(CALLS["listStaging"].make(stack).json()["staging"]) == 1
    assert len(CALLS["listLoadJobs"].make(stack).json()["load_jobs"]) == 1
    entries = stack.operations()
    assert {e["jobID"] for e in entries} == {"staging:k", "op", "op-ended"}
    assert [e for e in entries if e["jobID"] == "op"][0]["nodes"]
    stack.sql("UPDATE model_load_jobs SET started_at = now() - interval '10 s'")
    stack.sql("INSERT INTO model_load_jobs (tracking_key, state, updated_at) VALUES ('theirs', 'a new word', now())")
    answer = CALLS["listLoadJobs"].make(stack)
    check(CALLS["listLoadJobs"].responses["200"], answer, 200)
    ours, theirs = answer.json()["load_jobs"]
    assert ours["eta_seconds"] > 0 and "eta_seconds" not in theirs and theirs["state"] == "unknown"
    assert stack.call("POST", "/api/v1/load-jobs/k/fail", {"claim_token": token, "error": "why"},
                      token="worker").status_code == 204
    answer = CALLS["getLoadJob"].make(stack)
    check(CALLS["getLoadJob"].responses["200"], answer, 200)
    assert (answer.json()["state"], answer.json()["last_error"]) == ("failed", "why")


@pytest.mark.touches("postgres", "redis")
def test_every_documented_outage_is_told_as_described(stack):
    claimed(stack, "k")
    admitted(stack, "k")
    poll = CALLS["getOperations"]
    stack.dev("stop", "redis")
    answer = wait_until(lambda: (a := poll.make(stack)).headers.get("X-Degraded") and a, "a degraded poll")
    check(poll.responses["200"], answer, 200)
    assert answer.headers["X-Degraded"] == "redis"
    ready = CALLS["getReady"]
    check(ready.responses["200"], ready.make(stack), 200)
    stack.dev("stop", "postgres")
    clear = CALLS["deleteOperationHistory"]
    check(clear.responses["500"], clear.make(stack), 500)
    for call in CALLS.values():
        if "503" in call.responses:
            # In a list, since an answer that is an error counts as false.
            [answer] = wait_until(
                lambda c=call: [a for a in [c.make(stack, body=c.body())] if a.status_code == 503], call.id)
            check(call.responses["503"], answer, 503)


@pytest.mark.parametrize("path", DOC["paths"])
def test_other_methods_are_405_with_those_documented(stack, path):
    here = {m.upper() for m in DOC["paths"][path] if m in METHODS}
    for method in {"GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"} - here:
        answer = stack.call(method, path.replace("{key}", "k"))
        if method == "HEAD":
            assert answer.status_code == 405
        else:
            check(resolved(DOC["components"]["responses"]["MethodNotAllowed"]), answer, 405)
        assert set(answer.headers["Allow"].split(", ")) == here


# --- limits ---

def fields():
    for call in CALLS.values():
        for name in call.schema["properties"] if call.media else ():
            yield pytest.param(call, name, id=f"{call.id}-{name}")


def answered(call, stack, **fields):
    """Sent by the owner of a fresh load, or of a fresh operation."""
    answered.count = getattr(answered, "count", 0) + 1
    key = f"k{answered.count}"
    base = call.body(**fields)
    if "claim_token" in base:
        base = {**base, "claim_token": claimed(stack, key), **fields}
    if call.id == "putOperation":
        admitted(stack, key)
    if call.id == "postOperation":
        base = {**base, "id": key, **fields}
    return call.make(stack, key, {k: v for k, v in base.items() if v is not ...})


def check_named(answer, name):
    assert answer.status_code == 400, answer.text
    assert name in answer.json()["error"]


def kinds(schema):
    kind = schema.get("type", "string")
    return [kind] if isinstance(kind, str) else kind


def samples(schema):
    """Values that are within the limits, and some that are not."""
    kind = kinds(schema)[0]
    if "enum" in schema:
        return schema["enum"], [[], {}, True, "Failed", "ready", "Staging", 1]
    if kind in ("integer", "number"):
        low, high = schema["minimum"], schema["maximum"]
        part = [] if kind == "number" else [1.5]
        return [low, high], [[], {}, True, low - 1, high + 1, "1"] + part
    if kind == "boolean":
        return [True, False], [[], {}, 1, "true"]
    if kind == "array":
        one = {"node_id": "n", "status": "queued"}
        most = schema["maxItems"]
        return [[], [one] * most], [{}, True, 1, "x", [1], [[]], [{}], [one] * (most + 1)]
    longest = schema.get("maxLength")
    shortest = [] if schema.get("minLength") else [""]
    return ["é" * (longest or 5000), *shortest], [[], {}, True, 1] + (["é" * (longest + 1)] if longest else [])


@pytest.mark.parametrize("call,name", fields())
def test_limits_of_fields_are_where_they_are_documented(stack, call, name):
    more = {"total_files": 2**31 - 1} if name == "file_index" else {}
    if name == "total_files":
        more = {"file_index": 1}
    good, bad = samples(resolved(call.schema["properties"][name]))
    for value in good:
        answer = answered(call, stack, **{**more, name: value})
        expected = 409 if name == "claim_token" else None
        assert answer.status_code == expected or (not expected and answer.ok), (value, answer.text)
    for value in bad:
        check_named(answered(call, stack, **{**more, name: value}), name)


@pytest.mark.parametrize("call,name", fields())
def test_what_is_required_is_and_what_is_not_may_be_null(stack, call, name):
    for value in (None, ...):
        answer = answered(call, stack, **{name: value})
        if name in call.schema["required"]:
            check_named(answer, name)
        else:
            assert answer.ok, answer.text


@pytest.mark.parametrize("name", FIELD_TABLES)
def test_unknown_fields_are_400(stack, name):
    check_named(answered(CALLS[name], stack, surprise=1), "surprise")


def test_the_limit_of_keys_is_where_it_is_documented(stack):
    longest = resolved(DOC["components"]["parameters"]["Key"])["schema"]["maxLength"]
    assert stack.stage("x" * longest).status_code == 204
    check(resolved(DOC["components"]["responses"]["BadRequest"]), stack.stage("x" * (longest + 1)), 400)
    longest = resolved(DOC["components"]["parameters"]["JobID"])["schema"]["maxLength"]
    assert stack.admit("é" * longest).status_code == 201
    assert stack.report("é" * longest, progress=1).status_code == 200
    check(resolved(DOC["components"]["responses"]["BadRequest"]), stack.report("é" * (longest + 1), progress=1), 400)
