# SPDX-License-Identifier: Apache-2.0
"""Beside an existing LocalAI, with [operations] read_only: its two tables are only read, by a role that may do no more.
Operations contract, section 6."""
import json
import os
import subprocess
from urllib.parse import quote

import psycopg2
import pytest

from conftest import HANG_S, ROOT, wait_until
from program import Program, ask, binary

THEIRS = ("model_load_jobs", "gallery_operations")
DATABASE, READER = "beside_localai", "wb_reader"


class Beside:
    """A database with tables of LocalAI's own, and a program that may only read them."""

    def __init__(self, stack, run_dir, tables):
        self.stack, self.run_dir, self.tables = stack, run_dir, tables
        self.super_url = stack.env["WB_PGURL"].replace("user=weighbridge", "user=postgres")
        self.url = self.url_of(READER)
        self.env = {"WB_DB_URL": self.url, "WB_OPERATIONS_READ_ONLY": "yes"}

    def url_of(self, user):
        return self.super_url.replace("/weighbridge?", f"/{DATABASE}?").replace("user=postgres", f"user={user}")

    def __enter__(self):
        self.run(self.super_url, f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        self.run(self.super_url, f"DROP ROLE IF EXISTS {READER}")
        self.run(self.super_url, f"CREATE ROLE {READER} LOGIN")
        self.run(self.super_url, f"CREATE DATABASE {DATABASE}")
        self.sql(f"GRANT CREATE ON SCHEMA public TO {READER}")
        self.sql((ROOT / "sql" / "0001_existing_tables.sql").read_text())
        for table in THEIRS:
            self.sql(f"GRANT SELECT ON {table} TO {READER}" if table in self.tables else f"DROP TABLE {table}")
        return self

    def __exit__(self, *_):
        self.run(self.super_url, f"DROP DATABASE {DATABASE} WITH (FORCE)")
        self.run(self.super_url, f"DROP ROLE {READER}")

    @staticmethod
    def run(url, text, args=None):
        connection = psycopg2.connect(url)
        connection.autocommit = True
        try:
            with connection.cursor() as cursor:
                cursor.execute(text, args)
                return cursor.fetchall() if cursor.description else None
        finally:
            connection.close()

    def sql(self, text, args=None):
        return self.run(self.url_of("postgres"), text, args)

    def migrate(self):
        done = subprocess.run([binary(self.stack, "weighbridge-migrate"), "--sql", str(ROOT / "sql")],
                              env={**os.environ, **self.env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=HANG_S, check=False)
        assert done.returncode == 0, done.stdout

    def program(self):
        return Program(self.stack, WB_RUNTIME_DIR=str(self.run_dir), **self.env)

    def rows(self):
        """Also who wrote or locked each row last."""
        return {t: self.sql(f"SELECT xmin::text, xmax::text, ctid::text, * FROM {t} ORDER BY 4") for t in self.tables}

    def tables_now(self):
        return {name for name, in self.sql("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
                                           " AND relkind = 'r'")}


class Caller:
    def __init__(self, stack, program):
        self.stack, self.program = stack, program

    def __call__(self, method, path, body=None, role="admin"):
        data = b"" if body is None else json.dumps(body).encode()
        status, text = ask(self.program.socket, path, method=method, token=self.stack.env[f"WB_{role.upper()}_TOKEN"],
                           body=data)
        return status, json.loads(text) if text else None

    def entries(self):
        status, body = self("GET", "/api/operations")
        assert status == 200, body
        return {e["jobID"]: e for e in body["operations"]}


@pytest.fixture
def beside(stack, tmp_path, request):
    with Beside(stack, tmp_path / "run", getattr(request, "param", THEIRS)) as found:
        found.migrate()
        with found.program() as program:
            program.ready()
            found.call = Caller(stack, program)
            yield found


def fill(beside):
    if "model_load_jobs" in beside.tables:
        beside.sql("INSERT INTO model_load_jobs (tracking_key, state, node_id, node_name, bytes_sent, total_bytes, updated_at)"
                   " VALUES ('load', 'staging', 'n', 'gpu', 25, 100, now())")
    if "gallery_operations" in beside.tables:
        for job, status, error in (("live", "pending", ""), ("failed", "failed", "why"), ("done", "completed", "")):
            beside.sql("INSERT INTO gallery_operations (id, gallery_element_name, op_type, status, error, progress, phase,"
                       " cancellable, created_at, updated_at) VALUES (%s, %s, 'model_install', %s, %s, 10, 'p', true, now(),"
                       " now())", [job, job, status, error])


WRITES = [
    ("POST", "/api/v1/operations", {"gallery_element_name": "m", "op_type": "model_install"}),
    ("POST", "/api/v1/operations", {"id": "live", "gallery_element_name": "m", "op_type": "model_install", "user_id": "u"}),
    *(("PUT", "/api/v1/operations/live", {"status": s}) for s in ("completed", "failed", "cancelled")),
    ("PUT", "/api/v1/operations/failed", {"status": "completed"}),
    ("POST", "/api/operations/live/cancel", None), ("POST", "/api/operations/live/pause", None),
    ("POST", "/api/operations/nobody/cancel", None),
    ("DELETE", "/api/operations/history", None),
    ("POST", "/api/v1/load-jobs/load/claim", {"owner": "o"}), ("POST", "/api/v1/load-jobs/new/claim", {"owner": "o"}),
    ("PUT", "/api/v1/load-jobs/load", {"claim_token": "0" * 64, "state": "staging"}),
    ("POST", "/api/v1/load-jobs/load/fail", {"claim_token": "0" * 64, "error": "e"}),
    ("DELETE", "/api/v1/load-jobs/load", {"claim_token": "0" * 64})]


def test_their_rows_are_shown_and_calls_that_would_write_to_them_are_refused_with_a_reason(beside):
    fill(beside)
    wait_until(lambda: beside.call("GET", "/api/operations")[0] == 200, "the program's first look")  # until then it does not know
    wait_until(lambda: set(beside.call.entries()) == {"staging:load", "live", "failed"}, "their rows")
    before = beside.rows()
    for method, path, body in WRITES:
        status, answer = beside.call(method, path, body)
        assert status == 403 and "read_only" in answer["error"], (method, path, status, answer)
    assert beside.rows() == before
    assert set(beside.call.entries()) == {"staging:load", "live", "failed"}
    assert beside.call("GET", "/api/operations/live/control") == (200, {"control": ""})
    status, answer = beside.call("GET", "/api/operations/history")
    assert status == 200 and {e["jobID"]: e["outcome"] for e in answer["operations"]} == {
        "done": "completed", "failed": "failed"}
    assert beside.call("GET", "/api/v1/load-jobs/load")[1]["progress"] == 25


def test_reports_go_to_the_overlay_alone(beside):
    fill(beside)
    before = beside.rows()
    assert beside.call("PUT", "/api/v1/operations/live", {"progress": 60.5, "phase": "fresh", "nodes": [
        {"node_id": "n", "status": "queued"}]}, "worker") == (200, {"status": "pending", "settled": False, "durable": False})
    entry = beside.call.entries()["live"]
    assert (entry["progress"], entry["phase"], len(entry["nodes"])) == (60, "fresh", 1)
    assert beside.call("PUT", "/api/v1/operations/done", {"progress": 60}, "worker") == (
        200, {"status": "completed", "settled": True, "durable": False})
    assert beside.call("PUT", "/api/v1/operations/nobody", {"progress": 60}, "worker")[0] == 404
    for key in ("load", "copy"):
        path = "/api/v1/staging/" + quote(key, safe="")
        assert beside.call("PUT", path, {"node_name": "n", "file_name": "f", "bytes_sent": 1, "total_bytes": 2}, "worker")[0] == 204
        assert beside.call("POST", path + "/file-complete", {"file_index": 1, "total_files": 4}, "worker")[0] == 204
        wait_until(lambda k=key: beside.call.entries()["staging:" + k]["progress"] == 25, "the report")
        assert beside.call("DELETE", path, None, "worker")[0] == 204
    assert set(beside.call.entries()) == {"staging:load", "live", "failed"}
    assert beside.rows() == before
    assert beside.sql("SELECT count(*) FROM operation_control") == [(0,)]


def test_dismissing_works_as_it_is_kept_beside_their_tables(beside):
    fill(beside)
    before = beside.rows()
    wait_until(lambda: "failed" in beside.call.entries(), "the failure")
    assert beside.call("POST", "/api/operations/failed/dismiss") == (
        200, {"success": True, "message": "Operation dismissed"})
    assert "failed" not in beside.call.entries()
    assert beside.rows() == before
    assert beside.sql("SELECT job_id FROM operation_control WHERE dismissed_at IS NOT NULL") == [("failed",)]


def test_only_side_tables_are_made(stack, tmp_path):
    for tables in ((), THEIRS[:1], THEIRS):
        with Beside(stack, tmp_path, tables) as beside:
            fill(beside)
            before = beside.rows()
            for _ in range(2):
                beside.migrate()
            assert beside.tables_now() & set(THEIRS) == set(tables)
            assert {"load_job_claims", "operation_control", "weighbridge_migration"} <= beside.tables_now()
            assert beside.rows() == before


@pytest.mark.parametrize("beside", [(), THEIRS[:1], THEIRS[1:]], ids=["neither", "loads", "gallery"], indirect=True)
def test_tables_that_they_have_not_made_are_no_rows(beside):
    fill(beside)
    loads = {"staging:load"} if "model_load_jobs" in beside.tables else set()
    gallery = {"live", "failed"} if "gallery_operations" in beside.tables else set()
    wait_until(lambda: set(beside.call.entries()) == loads | gallery, "what there is")
    assert len(beside.call("GET", "/api/v1/load-jobs")[1]["load_jobs"]) == len(loads)
    assert beside.call("GET", "/api/v1/load-jobs/load")[0] == (200 if loads else 404)
    assert len(beside.call("GET", "/api/operations/history")[1]["operations"]) == len(gallery)
    assert beside.call("GET", "/api/operations/live/control")[0] == (200 if gallery else 404)
    assert beside.call("POST", "/api/operations/failed/dismiss")[0] == 200
    assert beside.call("PUT", "/api/v1/operations/live", {"progress": 1})[0] == (200 if gallery else 404)
    for method, path, body in WRITES:
        assert beside.call(method, path, body)[0] == 403
    assert set(beside.call.entries()) == loads | gallery - {"failed"}
    assert beside.call("PUT", "/api/v1/staging/copy", {"node_name": "n"})[0] == 204
    assert "staging:copy" in beside.call.entries()


OPTIONAL = {
    "gallery_operations": ["user_id", "gallery_element_name", "cache_key", "is_backend_op", "op_type", "progress", "phase",
                           "current_bytes", "total_bytes", "message", "error", "file_name", "cancellable", "created_at"],
    "model_load_jobs": ["owner_replica", "node_id", "node_name", "replica_index", "bytes_sent", "total_bytes", "file_index",
                        "total_files", "started_at", "last_progress", "created_at", "last_error"]}


def test_tables_of_an_older_localai_are_read_with_the_columns_they_have(beside):
    fill(beside)
    wait_until(lambda: set(beside.call.entries()) == {"staging:load", "live", "failed"}, "what there is")
    for table, columns in OPTIONAL.items():
        beside.sql(f"ALTER TABLE {table} " + ", ".join(f"DROP COLUMN {c}" for c in columns))
    seen = wait_until(lambda: (e := beside.call.entries())["live"]["progress"] == 0
                      and e["staging:load"]["progress"] == 0 and e, "what is left of it")
    assert set(seen) == {"staging:load", "live", "failed"}
    assert (seen["live"]["message"], seen["live"]["cancellable"], "phase" in seen["live"]) == ("", False, False)
    assert len(beside.call("GET", "/api/v1/load-jobs")[1]["load_jobs"]) == 1
    assert len(beside.call("GET", "/api/operations/history")[1]["operations"]) == 2
    beside.sql("ALTER TABLE gallery_operations ADD COLUMN progress float8 DEFAULT 33")
    wait_until(lambda: beside.call.entries()["live"]["progress"] == 33, "a column that came later")
    beside.sql("ALTER TABLE gallery_operations RENAME updated_at TO elsewhere")
    told = "postgres does not tell the operations"
    wait_until(lambda: told in beside.call.program.text(), "the reason in the log")
    assert set(beside.call.entries()) == set(seen), "the last good rows stay"
    assert beside.call.program.text().count(told) == 1, "once, not with each poll"
