# SPDX-License-Identifier: Apache-2.0
"""What the embedded batch service takes and what it refuses: files, batches, lines. Batch contract, "Files", "Batches", "Validation"."""
import json
import os

import pytest
import requests

from batching import PREFIX, _batches, jsonl, line, service  # noqa: F401  fixtures
from conftest import HANG_S, wait_until


def refused(answer, status, param=None):
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (status, param), answer.text
    return error["message"]


# --- files ---

def test_a_file_as_openai_has_it(service):
    made = service.upload("{}\n", name="in.jsonl").json()
    assert set(made) == {"id", "object", "bytes", "created_at", "filename", "purpose", "status"}
    assert (made["object"], made["bytes"], made["filename"], made["purpose"], made["status"]) == ("file", 3, "in.jsonl", "batch", "processed")
    assert service.call("GET", "/files/" + made["id"]).json() == made
    assert service.content(made["id"]) == "{}\n"
    listed = service.call("GET", "/files").json()
    assert listed == {"object": "list", "data": [made], "first_id": made["id"], "last_id": made["id"], "has_more": False}
    gone = service.call("DELETE", "/files/" + made["id"])
    assert gone.json() == {"id": made["id"], "object": "file", "deleted": True}
    for method, path in ("GET", ""), ("GET", "/content"), ("DELETE", ""):
        refused(service.call(method, f"/files/{made['id']}{path}"), 404)
    assert not service.contents()


def test_a_content_is_sent_in_ranges_too(service):
    file = service.upload("0123456789").json()["id"]
    answer = service.call("GET", f"/files/{file}/content", headers={"Range": "bytes=3-5"})
    assert (answer.status_code, answer.text, answer.headers["Content-Range"]) == (206, "345", "bytes 3-5/10")


def test_files_are_listed_by_pages_newest_first_or_oldest(service):
    made = [service.upload("{}").json()["id"] for _ in range(5)]
    first = service.call("GET", "/files?limit=2").json()
    assert ([f["id"] for f in first["data"]], first["has_more"]) == (made[:2:-1], True)
    second = service.call("GET", f"/files?limit=3&after={first['last_id']}").json()
    assert ([f["id"] for f in second["data"]], second["has_more"]) == (made[2::-1], False)
    oldest = service.call("GET", "/files?order=asc&limit=1&purpose=batch").json()
    assert [f["id"] for f in oldest["data"]] == made[:1]
    assert service.call("GET", "/files?purpose=batch_output").json()["data"] == []
    for query in "limit=0", "limit=10001", "limit=x":
        refused(service.call("GET", "/files?" + query), 400, "limit")
    refused(service.call("GET", "/files?order=up"), 400, "order")
    refused(service.call("GET", "/files?after=file-x"), 400, "after")


@pytest.mark.parametrize("fields, name, param", [
    ({"purpose": "fine-tune"}, "in.jsonl", "purpose"), ({"purpose": ""}, "in.jsonl", "purpose"), ({"purpose": "b" * 64}, "in.jsonl", "purpose"),
    ({}, "in.txt", "file"), ({}, "jsonl", "file"), ({}, "a" * 300 + ".jsonl", "file"),
    ({"expires_after[anchor]": "now", "expires_after[seconds]": "3600"}, "in.jsonl", "expires_after.anchor"),
    ({"expires_after[anchor]": "created_at", "expires_after[seconds]": "59"}, "in.jsonl", "expires_after.seconds"),
    ({"expires_after[anchor]": "created_at", "expires_after[seconds]": "2592001"}, "in.jsonl", "expires_after.seconds"),
])
def test_what_a_form_may_not_say(service, fields, name, param):
    refused(service.upload("{}", name=name, **fields), 400, param)
    assert not service.contents()


def test_the_name_of_a_file_is_no_path(service):
    assert service.upload("{}", name="../../etc/in.jsonl").json()["filename"] == "in.jsonl"


@pytest.mark.parametrize("body, content_type, status", [
    (b"", "multipart/form-data; boundary=x", 400), (b"{}", "application/json", 415), (b"--y\r\n", "multipart/form-data; boundary=x", 400),
    (b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\ncut off', "multipart/form-data; boundary=x", 400),
    (b"--x\r\nContent-Type: text/plain\r\n\r\nnameless\r\n--x--\r\n", "multipart/form-data; boundary=x", 400),
    (b"--x--\r\n", "multipart/form-data; boundary=x", 400),
    (b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--x\r\nContent-Disposition: form-data; name="file"; '
     b'filename="a\x01.jsonl"\r\n\r\n{}\r\n--x--\r\n', "multipart/form-data; boundary=x", 400), (b"--x\r\n", "multipart/form-data", 415),
])
def test_what_is_no_form(service, body, content_type, status):
    headers = {"Authorization": "Bearer " + service.stack.env["WB_SUBMITTER_TOKEN"], "Content-Type": content_type}
    answer = requests.post(service.stack.url + PREFIX + "/files", data=body, headers=headers, timeout=HANG_S)
    assert answer.status_code == status and answer.json()["error"]["message"], answer.text


def test_a_file_that_is_too_large_is_413(service):
    with restarted(service, WB_BATCH_MAX_FILE_BYTES="1000"):
        assert service.upload("x" * 1000).status_code == 200
        refused(service.upload("x" * 1001), 413)


class restarted:
    """The handler with other options for a while."""

    def __init__(self, service, **env):
        self.stack, self.env = service.stack, env

    def again(self):
        self.stack.dev("stop", "batches")
        self.stack.dev("start", "batches")

    def __enter__(self):
        self.before = dict(self.stack.environ)
        self.stack.environ.update(self.env)
        self.again()

    def __exit__(self, *_):
        self.stack.environ = self.before
        self.again()


def test_a_file_whose_time_is_over_is_gone_and_swept(service):
    file = service.upload("{}", **{"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}).json()
    assert file["expires_at"] == file["created_at"] + 3600
    service.stack.sql("UPDATE batch_file SET expires_at = clock_timestamp()")
    refused(service.call("GET", "/files/" + file["id"]), 404)
    assert service.call("GET", "/files").json()["data"] == []
    refused(service.create(file["id"]), 400, "input_file_id")
    service.stack.sql("DELETE FROM chore WHERE name LIKE 'batch%'")
    kept = service.file([line(1)])
    with service.runner():
        wait_until(lambda: [c.name for c in service.contents()] == [kept], "a sweep")
    assert service.stack.sql("SELECT id FROM batch_file") == [(kept,)]


def test_contents_without_a_row_and_working_folders_of_ended_batches_are_swept_once_they_are_old(service):
    content = service.stack.var / "content"
    kept, batch = service.file([line(1)]), service.batch([line(1)])
    ends = [content / "files" / "ab" / ("file-ab" + 30 * "0"), content / "files" / "ab" / ("file-ab" + 30 * "1" + ".new"),
            content / "work" / "batch_ended" / "output.1", content / ".spool" / "0000099998"]
    stays = [content / "files" / "ab" / ("file-ab" + 30 * "2"), content / "work" / batch / "output.1",
             *(c for c in service.contents() if c.name == kept)]
    for path in *ends, *stays[:2]:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    for path in *ends, ends[2].parent, stays[1].parent, stays[2]:
        os.utime(path, (0, 0))
    service.stack.sql("DELETE FROM chore WHERE name LIKE 'batch%'")
    with service.runner(WB_BATCH_UPSTREAM=""):
        wait_until(lambda: not any(path.exists() for path in ends), "a sweep")
    assert not ends[2].parent.exists() and all(path.exists() for path in stays)


# --- whose ---

def test_nobody_sees_or_uses_what_is_anothers_but_an_admin(service):
    file, batch = service.file([line(1)]), service.batch([line(1)])
    for role, status in (("viewer", 403), ("worker", 403), ("node", 403), (None, 401)):
        for method, path in (("GET", "/files"), ("GET", f"/files/{file}/content"), ("GET", "/batches"), ("POST", f"/batches/{batch}/cancel")):
            assert service.call(method, path, token=role).status_code == status
    service.stack.sql("UPDATE batch_file SET owner = 'other'")
    service.stack.sql("UPDATE batch SET owner = 'other'")
    for method, path in (("GET", f"/files/{file}"), ("GET", f"/files/{file}/content"), ("DELETE", f"/files/{file}"),
                         ("GET", f"/batches/{batch}"), ("POST", f"/batches/{batch}/cancel")):
        assert service.call(method, path).status_code == 404
    assert service.call("GET", "/files").json()["data"] == service.call("GET", "/batches").json()["data"] == []
    refused(service.create(file), 400, "input_file_id")
    assert service.call("GET", f"/files/{file}/content", token="admin").status_code == 200
    assert service.call("GET", f"/batches/{batch}", token="admin").status_code == 200


# --- batches ---

def test_a_batch_as_openai_has_it(service):
    made = service.create(service.file([line(1)]), metadata={"a": "b"}, aibrix={"model": "m"}).json()
    for key in ("in_progress_at", "finalizing_at", "completed_at", "failed_at", "expired_at", "cancelling_at", "cancelled_at", "errors",
                "output_file_id", "error_file_id", "usage"):
        assert made[key] is None
    assert (made["object"], made["status"], made["endpoint"], made["completion_window"]) == ("batch", "validating", "/v1/chat/completions", "24h")
    assert (made["metadata"], made["aibrix"], made["expires_at"] - made["created_at"]) == ({"a": "b"}, {"model": "m"}, 24 * 3600)
    assert made["request_counts"] == {"total": 0, "completed": 0, "failed": 0}


def test_creation_is_idempotent_on_the_job_id(service):
    file = service.file([line(1)])
    one, two = (service.create(file, aibrix={"job_id": "job-1"}) for _ in range(2))
    assert (one.status_code, two.status_code) == (200, 200) and one.json() == two.json()
    other = service.create(file, aibrix={"job_id": "job-2"}).json()
    nameless = [service.create(file).json()["id"] for _ in range(2)]
    assert len({one.json()["id"], other["id"], *nameless}) == 4
    again = service.create("file-" + 32 * "0", aibrix={"job_id": "job-1"})
    assert again.json()["id"] == one.json()["id"]  # whatever else the repetition says


@pytest.mark.parametrize("fields, param", [
    ({"endpoint": "/v1/nothing"}, "endpoint"), ({"endpoint": "/v1/images/generations"}, "endpoint"), ({"completion_window": "soon"}, "completion_window"),
    ({"metadata": {str(i): "x" for i in range(17)}}, "metadata"), ({"metadata": {"k": 1}}, "metadata"), ({"metadata": {"k" * 65: "v"}}, "metadata"),
    ({"aibrix": {"surprise": 1}}, "aibrix"), ({"aibrix": {"job_id": 7}}, "aibrix.job_id"), ({"aibrix": {"job_id": "x" * 65}}, "aibrix.job_id"),
    ({"aibrix": {"client": {"max_concurrency": 0}}}, "aibrix.client.max_concurrency"),
    ({"output_expires_after": {"anchor": "now", "seconds": 3600}}, "output_expires_after.anchor"),
])
def test_what_a_batch_may_not_say(service, fields, param):
    refused(service.create(service.file([line(1)]), **fields), 400, param)


def test_a_batch_of_a_file_that_is_not_there_is_refused(service):
    refused(service.create("file-" + 32 * "0"), 400, "input_file_id")
    refused(service.create("../../etc/passwd"), 400, "input_file_id")


def test_batches_are_listed_by_pages(service):
    file = service.file([line(1)])
    made = [service.create(file).json()["id"] for _ in range(5)]
    first = service.call("GET", "/batches?limit=2").json()
    assert ([b["id"] for b in first["data"]], first["has_more"], first["first_id"], first["last_id"]) == (made[:2:-1], True, made[4], made[3])
    second = service.call("GET", f"/batches?limit=100&after={made[3]}").json()
    assert ([b["id"] for b in second["data"]], second["has_more"]) == (made[2::-1], False)
    assert service.call("GET", "/batches?after=batch_x").json() == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
    for limit in "0", "101":
        refused(service.call("GET", "/batches?limit=" + limit), 400, "limit")
    refused(service.call("GET", "/batches/batch_x"), 404)


def test_a_file_that_a_batch_reads_is_not_deleted(service):
    file = service.file([line(1)])
    batch = service.create(file).json()["id"]
    assert service.call("DELETE", "/files/" + file).status_code == 409
    service.call("POST", f"/batches/{batch}/cancel")
    with service.runner():
        service.until(batch, "cancelled")
    assert service.call("DELETE", "/files/" + file).status_code == 200


def test_results_expire_as_the_batch_says(service):
    with service.runner():
        batch = service.batch([line(1)], output_expires_after={"anchor": "created_at", "seconds": 3600})
        done = service.until(batch, "completed")
    file = service.call("GET", "/files/" + done["output_file_id"]).json()
    assert (file["purpose"], file["filename"], file["expires_at"] - file["created_at"]) == ("batch_output", batch + "_output.jsonl", 3600)


# --- lines ---

def faults(service, text, **fields):
    with service.runner(**fields):
        batch = service.create(service.upload(text).json()["id"]).json()["id"]
        done = service.until(batch, "failed")
    assert (done["errors"]["object"], done["output_file_id"], done["failed_at"] is None) == ("list", None, False)
    assert service.upstream.calls("POST", "/v1/chat/completions") == []
    return [(e["line"], e["code"], e["param"]) for e in done["errors"]["data"]]


def without(key):
    return {k: v for k, v in line(2).items() if k != key}


@pytest.mark.parametrize("bad, code, param", [
    ("no JSON", "invalid_json_line", None), ("[1]", "invalid_json_line", None), ('{"a":1,"a":2}', "invalid_json_line", None),
    (without("custom_id"), "invalid_custom_id", "custom_id"), ({**line(2), "custom_id": 7}, "invalid_custom_id", "custom_id"),
    ({**line(2), "custom_id": ""}, "invalid_custom_id", "custom_id"), ({**line(2), "custom_id": "x" * 513}, "invalid_custom_id", "custom_id"),
    (without("method"), "invalid_method", "method"), ({**line(2), "method": "GET"}, "invalid_method", "method"),
    (without("url"), "invalid_url", "url"), ({**line(2), "url": "/v1/embeddings"}, "invalid_url", "url"),
    (without("body"), "invalid_body", "body"), ({**line(2), "body": []}, "invalid_body", "body"),
    (line(2, messages=[]), "missing_required_parameter", "body"), (line(2, messages="x"), "missing_required_parameter", "body"),
    (line(2, model=None), "missing_required_parameter", "body.model"), (line(2, stream=True), "invalid_body", "body.stream"),
    ({**line(2), "custom_id": "id-1"}, "duplicate_custom_id", "custom_id"),
])
def test_a_bad_line_fails_the_batch_before_any_line_runs(service, bad, code, param):
    text = bad if isinstance(bad, str) else json.dumps(bad)
    assert faults(service, jsonl([line(1)]) + text + "\n" + jsonl([line(3)])) == [(2, code, param)]


def test_all_bad_lines_are_told_the_first_hundred_in_order(service):
    lines = [line(i) for i in range(300)]
    for i in range(0, 300, 2):
        lines[i] = {**line(i), "method": "GET"} if i % 4 else {**line(i), "custom_id": "twice"}
    told = faults(service, jsonl(lines))
    assert [(n, c) for n, c, _ in told] == [(i + 1, "duplicate_custom_id" if i % 4 == 0 else "invalid_method") for i in range(2, 202, 2)]


def test_a_file_without_lines_and_one_with_too_many(service):
    assert faults(service, "\n  \r\n\n") == [(None, "empty_file", None)]
    assert faults(service, jsonl([line(i) for i in range(4)]), WB_BATCH_MAX_LINES=3) == [(None, "too_many_lines", None)]


def test_a_line_that_is_too_long_is_told_by_its_number(service):
    text = jsonl([line(1)]) + json.dumps(line(2, padding="x" * 5000)) + "\n" + jsonl([line(3)])
    assert faults(service, text, WB_BATCH_MAX_LINE_BYTES=4096) == [(2, "line_too_long", None)]


def test_a_model_that_no_server_has_is_told(service):
    only = {"WB_BATCH_UPSTREAM": "", "WB_BATCH_MODELS": "known=http://127.0.0.1:9"}
    assert faults(service, jsonl([line(1)]), **only) == [(1, "model_not_found", "body.model")]


def test_blank_lines_are_none_but_are_counted_and_the_last_needs_no_end(service):
    text = "\n" + jsonl([line(1)]) + "\r\n" + json.dumps(line(2))
    with service.runner():
        batch = service.create(service.upload(text).json()["id"]).json()["id"]
        assert service.until(batch, "completed")["request_counts"]["total"] == 2
        assert service.outputs(batch) == {"id-1": "line 1", "id-2": "line 2"}


def test_what_a_line_says_reaches_the_server_as_it_is(service):
    body = {"messages": [{"role": "user", "content": "ä\u2028\\ \" / \U0001f600"}], "seed": 12345678901234567, "top_p": 0.1,
            "tools": [{"deep": {"er": [[[[[[{"x": {"y": {"z": [None, True]}}}]]]]]]}}]}
    with service.runner():
        batch = service.batch([line(1, **body), {**line(2), "custom_id": "ü \" \\ \n"}])
        service.until(batch, "completed")
        sent = [r["body"] for r in service.upstream.calls("POST", "/v1/chat/completions")]
        assert {"model": "m", **body} in sent
        assert set(service.outputs(batch)) == {"id-1", "ü \" \\ \n"}
