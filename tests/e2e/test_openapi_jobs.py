# SPDX-License-Identifier: Apache-2.0
"""docs/openapi-jobs.yaml against the code's route table and against the running server."""
import re

import pytest
import yaml
from jsonschema import Draft202012Validator, RefResolver

from conftest import ROOT
from test_jobs import jobs  # noqa: F401 (the fixture)

DOC = yaml.safe_load((ROOT / "docs" / "openapi-jobs.yaml").read_text(encoding="utf8"))
RESOLVER = RefResolver("", DOC)
METHODS = ("get", "post", "put", "delete")
INTERNAL = {("GET", "/internal/file-access")}
NOBODY = "job_00000000-0000-0000-0000-000000000000"
CALLS = {item[m]["operationId"]: (path, m.upper(), item[m]) for path, item in DOC["paths"].items() for m in METHODS if m in item}


def resolved(node):
    while "$ref" in node:
        node = RESOLVER.resolve(node["$ref"])[1]
    return node


def check(call_id, answer, status):
    assert answer.status_code == status, (call_id, answer.text)
    spec = resolved(CALLS[call_id][2]["responses"][str(status)])
    schema = spec["content"]["application/json"]["schema"]
    Draft202012Validator(schema, resolver=RESOLVER).validate(answer.json())


def make(site, call_id, /, body=None, token=None, **params):
    path, method, spec = CALLS[call_id]
    if "requestBody" in spec and body is None:
        body = resolved(spec["requestBody"])["content"]["application/json"]["example"]
    for name, value in params.items():
        path = path.replace("{" + name + "}", value)
    return site.call(method, path, body, token=token or "admin")


def test_the_page_has_the_routes_of_the_program_and_no_others():
    text = (ROOT / "handlers" / "jobs.c").read_text(encoding="utf8")
    text = re.sub(r"\bTEMPLATES\b(?! \")", '"/api/v1/models/{id}/deployment-templates"', text.split("ROUTES[] = {")[1])
    text = re.sub(r'TEMPLATES "', '"/api/v1/models/{id}/deployment-templates', text)
    routes = set(re.findall(r'{ "(\w+)", "([^"]+)"', text)) - INTERNAL
    assert routes == {(method, path) for path, method, _ in CALLS.values()}


def test_references_lead_somewhere_and_everything_is_used():
    text = (ROOT / "docs" / "openapi-jobs.yaml").read_text(encoding="utf8")
    used = set(re.findall(r'"(#/components/[^"]+)"', text))
    for ref in used:
        RESOLVER.resolve(ref)
    there = {f"#/components/{kind}/{name}" for kind, parts in DOC["components"].items() for name in parts}
    assert there - used == {"#/components/securitySchemes/bearer"}


def test_answers_are_as_described(jobs):  # noqa: F811
    jobs.sql("TRUNCATE model CASCADE")
    check("createModel", make(jobs, "createModel"), 200)
    check("createModel", make(jobs, "createModel"), 409)
    template = make(jobs, "createTemplate", id="example")
    check("createTemplate", template, 200)
    check("createTemplate", make(jobs, "createTemplate", id="example"), 409)
    job = make(jobs, "createJob", {"input_dataset": "f", "endpoint": "/v1/embeddings", "model_template_name": "big"})
    check("createJob", job, 200)
    check("createBatch", make(jobs, "createBatch"), 200)
    for name in ("listJobs", "listBatches", "jobStats", "listProvisions", "getPlanner", "listModels", "jobCapabilities", "authConfig",
                 "userInfo", "consoleHealth"):
        check(name, make(jobs, name), 200)
    for name in ("getJob", "jobEvents", "getBatch", "cancelJob"):
        check(name, make(jobs, name, id=job.json()["id"]), 200)
        check(name, make(jobs, name, id=NOBODY), 404)
    check("cancelBatch", make(jobs, "cancelBatch", id=job.json()["id"]), 409)
    check("cancelBatch", make(jobs, "cancelBatch", id=NOBODY), 404)
    for name in ("drainPool", "resumePool"):
        check(name, make(jobs, name, name="default"), 200)
        check(name, make(jobs, name, name="nowhere"), 404)
        check(name, make(jobs, name, name="default", token="submitter"), 403)
    check("getModel", make(jobs, "getModel", id="example"), 200)
    check("listTemplates", make(jobs, "listTemplates", id="example"), 200)
    check("resolveTemplate", make(jobs, "resolveTemplate", id="example", name="big"), 200)
    for name in ("getTemplate", "updateTemplate", "deleteTemplate"):
        check(name, make(jobs, name, id="example", template=template.json()["id"]), 200)
        check(name, make(jobs, name, id="example", template=NOBODY[4:]), 404)


@pytest.mark.parametrize("call_id", ["createJob", "createBatch"])
def test_refusals_are_as_described(jobs, call_id):  # noqa: F811
    check(call_id, make(jobs, call_id, {"endpoint": "/v1/embeddings"}), 400)
