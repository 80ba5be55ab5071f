# SPDX-License-Identifier: Apache-2.0
"""The batch service's files behind our guard, with the service's double. Jobs contract, section 3, "Files", and section 4."""
import http.client
import json
import threading
from contextlib import closing
from functools import partial

import pytest
import requests

from conftest import HANG_S, at_once, wait_until
from planning import Double
from test_jobs import batch, create, created, jobs  # noqa: F401  jobs is a fixture

TOKEN = "of-the-service"
PREFIXES = ["/v1/files", "/api/v1/files"]


def again(stack, **env):
    """With another batch service: both who passes files on and who lists them are told."""
    stack.environ.update(env)
    stack.dev("stop", "nginx", "jobs")
    stack.dev("start", "jobs", "nginx")


@pytest.fixture(scope="module")
def _service(_stack):
    before = dict(_stack.environ)
    service = Double("batch_service", "--token", TOKEN)
    try:
        again(_stack, WB_BATCH_URL=service.url, WB_BATCH_TOKEN=TOKEN)
        yield service
    finally:
        _stack.environ = before
        again(_stack)
        service.close()


@pytest.fixture
def files(jobs, _service):  # noqa: F811
    jobs.service = _service
    return jobs


def raw(files, method, path, token="viewer"):
    """As it stands, without any client that would tidy the address: status, headers, body."""
    with closing(http.client.HTTPConnection("127.0.0.1", files.port, timeout=HANG_S)) as connection:
        headers = {"Authorization": "Bearer " + files.env[f"WB_{token.upper()}_TOKEN"]} if token else {}
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def upload(files, token="admin", path="/v1/files", text="secret"):
    headers = {"Authorization": "Bearer " + files.env[f"WB_{token.upper()}_TOKEN"]}
    answer = requests.post(files.url + path, headers=headers, data={"purpose": "batch"}, files={"file": ("in.jsonl", text)},
                           timeout=HANG_S)
    assert answer.status_code == 200, answer.text
    return answer.json()["id"]


def named_by_admin(files):
    file = upload(files)
    assert create(files, token="admin", input_dataset=file).status_code == 200
    return file


# --- what is judged is what is asked for ---

WAYS_AROUND = ["/upload/../FID", "/x/../FID", "/./FID", "/%2e/FID", "/upload/%2e%2e/FID", "/%2e%2e/files/FID", "/x%2f..%2fFID",
               "/upload%2f..%2fFID", "/FID#", "/FID?", "//FID", "/%46ID", "/FID%0a", "/FID;x", "/FID%3f", "/FID%23", "/FID/", "/FID/x/..",
               "/FID%2fcontent%2f..", "/..%2ffiles%2fFID"]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_no_way_of_writing_an_address_leads_around_the_guard(files, prefix):
    file = named_by_admin(files)
    ways = [w.replace("FID", file).replace("%46ID", f"%{ord(file[0]):02x}{file[1:]}") for w in WAYS_AROUND]
    for way in ways:
        for method, path, token in (("GET", way, "viewer"), ("GET", way + "/content", "viewer"), ("GET", way + "%2fcontent", "viewer"),
                                    ("HEAD", way, "viewer"), ("DELETE", way, "submitter"), ("POST", way, "submitter"),
                                    ("PUT", way, "submitter")):
            status, _, body = raw(files, method, prefix + path, token)
            assert status in (400, 403, 404, 405), (method, path, status)
            assert b"secret" not in body, (method, path)
    assert files.service.calls("GET", f"/v1/files/{file}/content") == []
    assert file in files.service.state()["files"]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_shapes_of_addresses_that_are_served(files, prefix):
    file = upload(files, path=prefix + ("/upload" if "api" in prefix else ""), token="submitter")
    assert [f["id"] for f in files.get(prefix + "?limit=5", token="viewer").json()["data"]].count(file) == 1
    assert files.service.state()["requests"][-1]["query"] == {"limit": "5"}
    assert files.get(f"{prefix}/{file}", token="viewer").json()["id"] == file
    assert files.get(f"{prefix}/{file}/content", token="viewer").text == "secret"
    seen = files.service.state()["requests"][-1]
    assert seen["path"] == f"/v1/files/{file}/content"
    assert files.call("DELETE", f"{prefix}/{file}", token="submitter").status_code == 403
    assert files.call("DELETE", f"{prefix}/{file}", token="admin").json()["deleted"] is True
    for other in ("x", "/", f"/{file}/contents", f"/{file}/content/", f"/{file}/content/x", "/" + "x" * 256, "/%ff", "/a%2fb", "/a%20b"):
        assert raw(files, "GET", prefix + other, "admin")[0] == 404, other
    assert raw(files, "GET", prefix + "/" + "x" * 255, "admin")[0] == 404
    assert files.service.state()["requests"][-1]["path"] == "/v1/files/" + "x" * 255


@pytest.mark.parametrize("method, path", [("DELETE", ""), ("PUT", ""), ("POST", "/FID"), ("PUT", "/FID"), ("DELETE", "/FID/content"),
                                          ("PATCH", "/FID")])
@pytest.mark.parametrize("prefix", PREFIXES)
def test_methods_that_files_do_not_have_go_no_further(files, prefix, method, path):
    file = upload(files)
    asked = len(files.service.state()["requests"])
    status, headers, body = raw(files, method, prefix + path.replace("FID", file), "admin")
    assert status == 405 and headers["Allow"], body
    assert len(files.service.state()["requests"]) == asked


# --- refusals in the words of the address' dialect ---

def shape(path, body):
    """The message, of a body that must be an error of the path's dialect."""
    o = json.loads(body)
    if path.startswith("/api/"):
        assert list(o) == ["code", "message", "details"] and isinstance(o["code"], int)
        return o["message"]
    assert list(o) == ["error"] and list(o["error"]) == ["message", "type", "param", "code"]
    return o["error"]["message"]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_what_the_guard_refuses_is_told_in_the_dialect_of_the_address(files, prefix):
    file = named_by_admin(files)
    for token, path, status, words in ((None, "/" + file, 401, "token"), ("viewer", f"/{file}/content", 403, "owner"),
                                       ("viewer", "/a/b/c", 404, "nothing"), ("viewer", "/" + "x" * 300, 404, "nothing")):
        got, headers, body = raw(files, "GET", prefix + path, token)
        assert (got, headers["Content-Type"]) == (status, "application/json"), body
        assert words in shape(prefix, body)
        assert headers["X-Request-Id"] and (status != 401 or headers["WWW-Authenticate"].startswith("Bearer"))


@pytest.mark.touches("postgres")
@pytest.mark.parametrize("how", ["stop", "freeze"])
def test_while_postgres_is_away_the_guard_says_503_and_when_to_try_again(files, how):
    file = named_by_admin(files)
    files.dev(how, "postgres")
    for prefix in PREFIXES:
        status, headers, body = raw(files, "GET", f"{prefix}/{file}", "submitter")
        assert (status, headers["Content-Type"]) == (503, "application/json") and headers["Retry-After"], body
        assert shape(prefix, body)


def test_what_nginx_says_itself_has_the_shape_of_the_address(files):
    files.dev("stop", "jobs")
    try:
        for path in ("/v1/files/x", "/api/v1/files/x", "/v1/batches", "/api/v1/jobs", "/api/v1/models", "/api/v1/planner"):
            status, headers, body = raw(files, "GET", path)
            assert (status, headers["Content-Type"]) == (503, "application/json") and headers["Retry-After"], body
            assert "try again" in shape(path, body)
    finally:
        files.dev("start", "jobs")
    for path in ("/v1/nothing", "/api/v1/files/a/b/c"):
        assert "nothing" in shape(path, raw(files, "GET", path)[2])
    large = requests.post(files.url + "/v1/batches", data=b"x" * 80_000, timeout=HANG_S)
    assert large.status_code == 413 and "64 KiB" in shape("/v1/batches", large.content)
    plain = raw(files, "GET", "/elsewhere")
    assert plain[0] == 404 and set(json.loads(plain[2])) == {"error", "request_id"}


# --- whose a file is ---

def belongs(files, file, token, status):
    for prefix in PREFIXES:
        assert files.get(f"{prefix}/{file}/content", token=token).status_code == status


def test_nobody_comes_by_a_file_by_naming_it_in_a_job(files):
    file = named_by_admin(files)
    for answer, words in ((create(files, input_dataset=file), lambda a: a["message"]),
                          (batch(files, input_file_id=file), lambda a: a["error"]["message"])):
        assert answer.status_code == 403 and words(answer.json()).startswith(("input_dataset: this", "input_file_id: this")), answer.text
    assert batch(files, input_file_id=file).json()["error"]["param"] == "input_file_id"
    belongs(files, file, "submitter", 403)
    assert files.call("DELETE", f"/v1/files/{file}", token="submitter").status_code == 403
    assert files.sql("SELECT count(*) FROM job")[0][0] == 1
    assert create(files, input_dataset=upload(files)).status_code == 200


def test_a_file_stays_its_first_owners_whoever_names_it_later(files):
    file = upload(files, token="submitter")
    first = created(files, input_dataset=file)["id"]
    assert create(files, input_dataset=file).status_code == 200
    assert create(files, input_dataset=file, token="admin").status_code == 200
    assert create(files, input_dataset=file).status_code == 200
    belongs(files, file, "submitter", 200)
    belongs(files, file, "viewer", 403)
    files.sql("DELETE FROM job_run WHERE job_id::text = %s", (first[4:],))  # as housekeeping does with what ended long ago
    files.sql("DELETE FROM job WHERE id::text = %s", (first[4:],))
    belongs(files, file, "submitter", 200)
    assert create(files, input_dataset=file, token="admin").status_code == 200
    assert create(files, input_dataset=file).status_code == 200
    assert files.sql("SELECT created_by FROM job JOIN job_file_ref f ON f.job_id = id AND f.first") == [("submitter",)]
    assert files.call("DELETE", f"/v1/files/{file}", token="submitter").status_code == 200


def test_what_came_out_of_a_job_is_its_owners_even_if_somebody_named_it_before_it_ended(files):
    job, output = created(files, token="admin")["id"], upload(files)
    assert create(files, input_dataset=output).status_code == 200
    belongs(files, output, "submitter", 200)
    files.sql("UPDATE job_run SET batch = jsonb_build_object('output_file_id', %s::text), state = 12, event = 18 WHERE job_id::text = %s",
              (output, job[4:]))
    belongs(files, output, "submitter", 403)
    belongs(files, output, "admin", 200)
    assert create(files, input_dataset=output).status_code == 403


def test_of_two_who_name_a_new_file_at_once_one_gets_it_and_the_other_is_refused(files):
    file, answers = upload(files), []
    other = files.pg()
    other.autocommit = False
    with closing(other), other.cursor() as cursor:
        cursor.execute("WITH j AS (INSERT INTO job (pool_id, created_by, endpoint, input_file, completion_window, window_minutes, request)"
                       " SELECT id, 'other', '/v1/embeddings', %s, '24h', 1440, '{}' FROM pool LIMIT 1 RETURNING id)"
                       " INSERT INTO job_file_ref (file_id, job_id, role, first) SELECT %s, id, 0, true FROM j", (file, file))
        thread = threading.Thread(target=lambda: answers.append(create(files, input_dataset=file)))
        thread.start()
        wait_until(lambda: files.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                                     " AND query LIKE '%job_file_ref%'")[0][0] == 1, "one that waits for the other")
        other.commit()
        thread.join()
    assert answers[0].status_code == 403, answers[0].text
    belongs(files, file, "submitter", 403)


def test_of_many_of_one_owner_who_name_a_new_file_at_once_all_are_taken(files):
    file = upload(files)
    answers, again = at_once([partial(create, files, input_dataset=file)] * 8)
    assert [a.status_code for a in answers] == [200] * 8
    (refs, first), = files.sql("SELECT count(*), count(*) FILTER (WHERE first) FROM job_file_ref WHERE file_id = %s", (file,))
    assert 8 <= refs <= 8 + again and first == 1


# --- what is listed ---

def listed(files, query="", token="viewer", prefix="/v1/files"):
    answer = files.get(prefix + query, token=token)
    assert answer.status_code == 200, answer.text
    page = answer.json()
    ids = [f["id"] for f in page["data"]]
    assert (page["object"], page["first_id"], page["last_id"]) == ("list", *((ids[0], ids[-1]) if ids else (None, None)))
    return ids, page["has_more"]


@pytest.fixture
def shelf(files):
    """Files of an admin (a), of a submitter (s), of nobody (n), oldest first; the service has no others."""
    for file in files.service.state()["files"]:
        assert files.call("DELETE", f"/v1/files/{file}").status_code == 200

    def fill(kinds):
        ids = []
        for kind in kinds:
            ids.append(upload(files))
            if kind != "n":
                assert create(files, token={"a": "admin", "s": "submitter"}[kind], input_dataset=ids[-1]).status_code == 200
        return ids
    return fill


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_list_has_what_the_caller_may_read_and_nothing_else(files, shelf, prefix):
    ids = shelf("asn")[::-1]
    for token, sees in (("viewer", ids[:1]), ("submitter", ids[:2]), ("admin", ids)):
        assert listed(files, token=token, prefix=prefix) == (sees, False)
        readable = [i for i in ids if files.get(f"{prefix}/{i}", token=token).status_code == 200]
        assert readable == sees
    assert raw(files, "GET", prefix, None)[0] == 401
    assert raw(files, "HEAD", prefix)[::2] == (200, b"")


def test_pages_go_over_what_is_not_shown_and_none_is_empty_with_more_to_come(files, shelf):
    ids = shelf("nsaaasanaaas")
    mine = [i for i, kind in zip(ids, "nsaaasanaaas") if kind != "a"][::-1]
    seen, after, more = [], "", True
    while more:
        page, more = listed(files, f"?limit=2{after}", token="submitter")
        assert len(page) == 2 or not more
        seen += page
        after = f"&after={seen[-1]}"
    assert seen == mine
    assert listed(files, "?limit=100", token="submitter") == (mine, False)
    assert listed(files, f"?after={mine[-1]}", token="submitter") == ([], False)
    assert listed(files, "?purpose=batch&limit=1", token="submitter") == (mine[:1], True)
    assert listed(files, "?purpose=assistants", token="submitter") == ([], False)


def test_pages_that_are_all_of_others_are_looked_through(files, shelf):
    shelf("a")
    own = [upload(files) for _ in range(150)]
    files.sql("INSERT INTO job_file_ref (file_id, job_id, role, first) SELECT f, id, 0, true FROM job, unnest(%s) f", (own,))
    assert listed(files, "?limit=1") == ([], False)
    assert listed(files, "?limit=1", token="admin")[0] == [own[-1]]


@pytest.mark.parametrize("limit", ["0", "-1", "10001", "x"])
def test_a_limit_that_is_none_is_refused(files, limit):
    for prefix in PREFIXES:
        status, _, body = raw(files, "GET", f"{prefix}?limit={limit}")
        assert status == 400 and shape(prefix, body).startswith("limit: "), body


def test_what_the_service_refuses_is_400_and_a_service_that_is_wrong_503(files):
    status, _, body = raw(files, "GET", "/v1/files?limit=101")
    assert status == 400 and "limit" in shape("/v1/files", body)
    for how in ({"do": "status", "status": 500}, {"do": "status", "status": 401}, {"do": "status", "status": 200, "text": "{}"}, {"do": "drop"},
                {"do": "status", "status": 404}):
        for prefix in PREFIXES:
            files.service.fault("GET /v1/files", **how)
            status, headers, body = raw(files, "GET", prefix)
            assert status == 503 and headers["Retry-After"], body
            assert TOKEN not in shape(prefix, body)


@pytest.mark.touches("postgres")
def test_without_postgres_nothing_is_listed(files, shelf):
    shelf("n")
    files.dev("stop", "postgres")
    assert raw(files, "GET", "/v1/files")[0] == 503


def test_a_slow_service_leaves_threads_for_jobs(files, shelf):
    """Half of the threads wait for it at most; further lists are refused at once, and jobs are answered meanwhile."""
    shelf("n")
    files.service.fault("GET /v1/files", "hold", name="slow", times=-1)
    bodies = []
    lists = [threading.Thread(target=lambda: bodies.append(raw(files, "GET", "/v1/files"))) for _ in range(40)]
    for t in lists:
        t.start()
    wait_until(lambda: any(status == 503 and b"too many" in body for status, _, body in list(bodies)), "a refusal")
    assert files.get("/api/v1/jobs").status_code == 200
    files.service.order(clear=True)
    for t in lists:
        t.join()
    assert {status for status, _, _ in bodies} <= {200, 503}
    assert listed(files)[1] is False  # and all of them are free again
