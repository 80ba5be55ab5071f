# SPDX-License-Identifier: Apache-2.0
"""docs/openapi-batch.yaml against the code's route table and against the running server."""
import re

import yaml
from jsonschema import Draft202012Validator, RefResolver

from batching import PREFIX, _batches, jsonl, line, service  # noqa: F401  fixtures
from conftest import ROOT

TEXT = (ROOT / "docs" / "openapi-batch.yaml").read_text(encoding="utf8")
DOC = yaml.safe_load(TEXT)
RESOLVER = RefResolver("", DOC)
CALLS = {item[m]["operationId"]: (path, m.upper(), item[m]) for path, item in DOC["paths"].items() for m in ("get", "post", "delete") if m in item}


def check(call_id, answer, status):
    assert answer.status_code == status, (call_id, answer.text)
    spec = CALLS[call_id][2]["responses"][str(status)]
    while "$ref" in spec:
        spec = RESOLVER.resolve(spec["$ref"])[1]
    Draft202012Validator(spec["content"]["application/json"]["schema"], resolver=RESOLVER).validate(answer.json())
    return answer.json()


def test_the_page_has_the_routes_of_the_program_and_no_others():
    table = (ROOT / "handlers" / "batches.c").read_text(encoding="utf8").split("ROUTES[] = {")[1].split("};")[0]
    routes = {(method, PREFIX + path) for method, path in re.findall(r'{ "(\w+)", BATCHES_PREFIX "([^"]+)",', table)}
    assert routes == {(method, path) for path, method, _ in CALLS.values()}


def test_references_lead_somewhere_and_everything_is_used():
    used = set(re.findall(r'"(#/components/[^"]+)"', TEXT))
    for ref in used:
        RESOLVER.resolve(ref)
    there = {f"#/components/{kind}/{name}" for kind, parts in DOC["components"].items() for name in parts}
    assert there - used == {"#/components/securitySchemes/bearer"}


def test_files_and_batches_are_as_described(service):
    file = check("createFile", service.upload(jsonl([line(1)]), **{"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}), 200)
    check("createFile", service.upload("{}", name="in.txt"), 400)
    check("createFile", service.call("POST", "/files", {}), 415)
    check("listFiles", service.call("GET", "/files"), 200)
    check("listFiles", service.call("GET", "/files?limit=0"), 400)
    check("getFile", service.call("GET", "/files/" + file["id"]), 200)
    for call_id, method, path in (("getFile", "GET", ""), ("getFileContent", "GET", "/content"), ("deleteFile", "DELETE", "")):
        check(call_id, service.call(method, "/files/file-none" + path), 404)
    body = {"aibrix": {"job_id": "j", "client": {"max_concurrency": 1}}, "metadata": {"k": "v"}}
    batch = check("createBatch", service.create(file["id"], **body), 200)
    check("createBatch", service.create("file-none"), 400)
    check("createBatch", service.call("POST", "/batches", None, data="x"), 415)
    check("deleteFile", service.call("DELETE", "/files/" + file["id"]), 409)
    bad = service.create(service.upload("{}\n").json()["id"]).json()["id"]
    with service.runner():
        service.until(batch["id"], "completed")
        service.until(bad, "failed")
    assert check("getBatch", service.call("GET", "/batches/" + batch["id"]), 200)["usage"]
    assert check("getBatch", service.call("GET", "/batches/" + bad), 200)["errors"]
    check("getBatch", service.call("GET", "/batches/batch_none"), 404)
    check("listBatches", service.call("GET", "/batches"), 200)
    check("listBatches", service.call("GET", "/batches?limit=0"), 400)
    check("cancelBatch", service.call("POST", f"/batches/{batch['id']}/cancel"), 409)
    check("cancelBatch", service.call("POST", "/batches/batch_none/cancel"), 404)
    again = service.create(file["id"]).json()["id"]
    check("cancelBatch", service.call("POST", f"/batches/{again}/cancel"), 200)
    with service.runner():
        service.until(again, "cancelled")
    check("deleteFile", service.call("DELETE", "/files/" + file["id"]), 200)
