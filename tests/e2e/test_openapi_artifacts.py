# SPDX-License-Identifier: Apache-2.0
"""docs/openapi-artifacts.yaml against the code's route table and against the running server."""
import re

import yaml
from jsonschema import Draft202012Validator, RefResolver

from artifacts import Version
from conftest import ROOT

TEXT = (ROOT / "docs" / "openapi-artifacts.yaml").read_text(encoding="utf8")
DOC = yaml.safe_load(TEXT)
RESOLVER = RefResolver("", DOC)
METHODS = ("get", "post", "put", "delete")
INTERNAL = {("GET", "/metrics")}  # behind a web server that serves this program alone
CALLS = {item[m]["operationId"]: (path, m.upper(), item[m]) for path, item in DOC["paths"].items() for m in METHODS if m in item}
NOBODY = "00000000-0000-0000-0000-000000000000"


def resolved(node):
    while "$ref" in node:
        node = RESOLVER.resolve(node["$ref"])[1]
    return node


def check(call_id, answer, status):
    assert answer.status_code == status, (call_id, answer.text)
    spec = resolved(CALLS[call_id][2]["responses"][str(status)])
    schema = spec["content"]["application/json"]["schema"]
    Draft202012Validator(schema, resolver=RESOLVER).validate(answer.json())


def make(stack, call_id, /, body=None, token="admin", **params):
    path, method, spec = CALLS[call_id]
    if "requestBody" in spec and body is None:
        body = resolved(spec["requestBody"])["content"]["application/json"]["example"]
    for name, value in params.items():
        path = path.replace("{" + name + "}", value)
    return stack.call(method, path, body, token=token)


def test_the_page_has_the_routes_of_the_program_and_no_others():
    text = (ROOT / "handlers" / "artifacts.c").read_text(encoding="utf8")
    named = dict(re.findall(r'#define (VERSION|NODE) +"([^"]+)"', text))
    named["ASSIGNMENT"] = named["NODE"] + "/assignments/{id}"
    table = text.split("ROUTES[] = {")[1].split("};")[0].replace("{path*}", "{path}")
    routes = set()
    for method, where in re.findall(r'{ "(\w+)", ([^,]+),', table):
        routes.add((method, "".join(named.get(w, w.strip('"')) for w in where.split())))
    assert routes - INTERNAL == {(method, path) for path, method, _ in CALLS.values()} and INTERNAL < routes


def test_references_lead_somewhere_and_everything_is_used():
    used = set(re.findall(r'"(#/components/[^"]+)"', TEXT))
    for ref in used:
        RESOLVER.resolve(ref)
    there = {f"#/components/{kind}/{name}" for kind, parts in DOC["components"].items() for name in parts}
    assert there - used == {"#/components/securitySchemes/bearer"}


def test_publishing_is_as_described(stack):
    v = Version(stack)
    named = {"name": v.artifact, "version": v.version}
    Draft202012Validator(DOC["components"]["schemas"]["Manifest"], resolver=RESOLVER).validate(v.manifest)
    check("putManifest", v.announce(), 202)
    check("putManifest", v.announce("{}"), 400)
    check("putManifest", v.announce(v.text + " "), 409)
    check("withdrawVersion", make(stack, "withdrawVersion", **named), 409)
    first, last = v.shards
    check("putShard", v.put(first), 201)
    check("putShard", v.put(first), 200)
    check("putShard", v.put(last, b"?"), 422)
    check("putShard", v.put(last, b""), 422)
    check("putShard", v.call("PUT", "/shards/" + "0" * 64, b""), 404)
    check("putShard", v.call("PUT", "/shards/0", b""), 400)
    v.put(last)
    assert v.judged() == "published"
    check("putManifest", v.announce(), 200)
    for name in ("listArtifacts", "getArtifact", "listVersions", "getDistribution", "getVersion"):
        check(name, make(stack, name, **named), 200)
    for name in ("getArtifact", "listVersions", "getDistribution", "getVersion"):
        check(name, make(stack, name, name="none", version="none"), 404)
    check("getVersion", v.call("GET", "?state"), 200)
    for path, status in (("a.bin", 200), ("none", 404), ("%2e%2e", 400)):
        answer = make(stack, "getFile", path=path, **named)
        assert answer.status_code == status and answer.headers["Content-Type"] == (
            "application/octet-stream" if status == 200 else "application/json")
    check("withdrawVersion", make(stack, "withdrawVersion", **named), 200)
    check("withdrawVersion", make(stack, "withdrawVersion", {}, **named), 400)
    check("withdrawVersion", make(stack, "withdrawVersion", name="none", version="none"), 404)
    check("getFile", v.call("GET", "/files/a.bin"), 409)


def test_nodes_and_assignments_are_as_described(stack):
    stack.sql("TRUNCATE node CASCADE")
    v = Version(stack).publish()
    what = {"artifact": v.artifact, "version": v.version}
    check("getNode", make(stack, "getNode", node="node"), 404)
    check("postAssignment", make(stack, "postAssignment", what, node="node"), 404)
    check("putNode", make(stack, "putNode", node="node", token="node"), 200)
    check("putNode", make(stack, "putNode", {"rack": 1}, node="node"), 400)
    check("getNode", make(stack, "getNode", node="node"), 200)
    check("listNodes", make(stack, "listNodes"), 200)
    made = make(stack, "postAssignment", what, node="node")
    check("postAssignment", made, 201)
    check("postAssignment", make(stack, "postAssignment", what, node="node"), 200)
    check("postAssignment", make(stack, "postAssignment", {}, node="node"), 400)
    check("putNode", make(stack, "putNode", node="node"), 200)
    check("listAssignments", make(stack, "listAssignments", node="node"), 200)
    here = {"node": "node", "id": made.json()["id"]}
    receipt = {"digest": v.digest, "bytes_fetched": 1, "bytes_avoided": 0}
    for name, body in (("postProgress", None), ("postFailure", None)):
        check(name, make(stack, name, body, **here), 200)
        check(name, make(stack, name, {}, **here), 400)
        check(name, make(stack, name, body, node="node", id=NOBODY), 404)
    check("postReceipt", make(stack, "postReceipt", {**receipt, "digest": "?"}, **here), 422)
    check("postReceipt", make(stack, "postReceipt", {}, **here), 400)
    check("postReceipt", make(stack, "postReceipt", receipt, node="node", id=NOBODY), 404)
    check("deleteAssignment", make(stack, "deleteAssignment", **here), 200)
    check("postReceipt", make(stack, "postReceipt", receipt, **here), 409)
    make(stack, "postAssignment", what, node="node")
    check("postReceipt", make(stack, "postReceipt", receipt, **here), 201)
    check("postReceipt", make(stack, "postReceipt", receipt, **here), 200)
    for name in ("postProgress", "postFailure", "deleteAssignment"):
        check(name, make(stack, name, **here), 409)
    check("deleteAssignment", make(stack, "deleteAssignment", node="node", id=NOBODY), 404)
    metrics = make(stack, "getMetrics")
    assert metrics.status_code == 200 and metrics.headers["Content-Type"].startswith("text/plain")
