# SPDX-License-Identifier: Apache-2.0
"""The `openai` package of npm as a real client of /v1/batches, and of the embedded batch service: jobs contract, sections 4 and 6, batch contract. What it does is in
openai_client.mjs. It is fetched once into a folder outside the tree; where that cannot be, these tests are skipped."""
import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from batching import PREFIX, _batches, service  # noqa: F401  fixtures
from conftest import HANG_S, ROOT, wait_until
from test_jobs import jobs  # noqa: F401 (the fixture)

VERSION = "5.23.2"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weighbridge-tests"
FETCH_S = 120


def node_is_missing():
    if not shutil.which("node") or not shutil.which("npm"):
        return "there is no node or no npm"
    told = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout
    major = re.match(r"v(\d+)", told)
    return None if major and int(major[1]) >= 18 else f"node 18 is needed, this is {told.strip()}"


def fetch(folder):
    """Beside its place first, so that a fetch that was cut short is not taken for one."""
    with tempfile.TemporaryDirectory(dir=CACHE) as new:
        done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", new, f"openai@{VERSION}"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=FETCH_S, check=False)
        if done.returncode == 0:
            Path(new, "node_modules").rename(folder)


@pytest.fixture(scope="session")
def package():
    missing = node_is_missing()
    if missing:
        pytest.skip(missing)
    folder = CACHE / f"openai-{VERSION}" / "node_modules"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(CACHE / ".lock", "w", encoding="utf8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            try:
                fetch(folder)
            except subprocess.TimeoutExpired:
                pass
    if not folder.is_dir():
        pytest.skip(f"npm cannot install openai@{VERSION} here")
    return folder


class Client:
    def __init__(self, stack, package, **more):
        self.stack, self.package, self.more = stack, package, more

    def start(self, scene):
        env = {"PATH": os.environ["PATH"], **self.more, **{k: v for k, v in self.stack.env.items() if k.startswith("WB_")}}
        return subprocess.Popen(["node", str(ROOT / "tests/e2e/openai_client.mjs"), str(self.package), scene], cwd="/", env=env,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def play(self, scene):
        """What the scene says at its end."""
        process = self.start(scene)
        out, err = process.communicate(timeout=HANG_S)
        assert process.returncode == 0, err
        return json.loads(out.splitlines()[-1])


@pytest.fixture
def client(jobs, package):  # noqa: F811
    return Client(jobs, package)


def test_create_retrieve_and_cancel_and_a_second_cancel_is_a_conflict_that_is_not_retried(client):
    said = client.play("life")
    made = said["made"]
    assert (made["object"], made["status"], made["metadata"]) == ("batch", "validating", {"run": "7"})
    assert made["weighbridge"]["state"] == "queued"
    assert said["got"] == made
    assert (said["cancelled"]["id"], said["cancelled"]["status"]) == (made["id"], "cancelled")
    assert (said["again"]["error"], said["again"]["calls"]) == ("ConflictError", [409])


def test_lists_page_by_themselves_newest_first_and_without_gaps(client):
    said = client.play("paging")
    newest_first = said["made"][::-1]
    assert said["seen"] == newest_first
    assert (said["first"], said["second"], said["more"]) == (newest_first[:3], newest_first[3:6], True)


def test_each_refusal_is_the_class_that_programs_catch_and_none_is_retried(client):
    said = client.play("errors")
    assert {name: (how["error"], how["calls"]) for name, how in said.items()} == {
        "unknown": ("NotFoundError", [404]), "refused": ("BadRequestError", [400]), "stranger": ("AuthenticationError", [401]),
        "reader": ("PermissionDeniedError", [403])}
    assert said["refused"]["param"] == "endpoint" and "endpoint" in said["refused"]["message"]
    assert all(how["type"] for how in said.values())


def test_an_idempotency_key_gives_the_same_batch_and_refuses_another(client):
    said = client.play("idempotency")
    assert said["same"]["value"]["id"] == said["first"]["value"]["id"]
    assert (said["other"]["error"], said["other"]["calls"]) == ("ConflictError", [409])
    assert client.stack.sql("SELECT count(*) FROM job")[0][0] == 1


@contextmanager
def playing(client, status):
    """The scene `list`, whose first attempt was answered so; afterwards it must succeed, and have waited as it was told."""
    process = client.start("list")
    try:
        first = json.loads(process.stdout.readline())
        assert first["call"] == status
        yield
        out, err = process.communicate(timeout=HANG_S)
        assert process.returncode == 0, err
        lines = [json.loads(line) for line in out.splitlines()]
        assert lines[-1]["done"]["value"] and lines[-1]["done"]["calls"][-1] == 200, lines
        assert set(lines[-1]["done"]["calls"][:-1]) == {status}
        waited_ms = lines[0]["at"] - lines[0]["ms"] - first["at"]
        assert waited_ms >= 990, "Retry-After: 1"
    finally:
        process.kill()


@pytest.mark.touches("postgres")
def test_a_503_is_tried_again_after_the_time_that_it_says(client):
    client.stack.dev("stop", "postgres")
    with playing(client, 503):
        client.stack.dev("start", "postgres")


@contextmanager
def limited(stack):
    """One request a second, as a site may do it."""
    folder = stack.var / "nginx" / "weighbridge"
    kept = {name: (folder / name).read_text() for name in ("weighbridge.conf", "jobs.conf")}

    def write(name, text):
        (folder / name).write_text(text)
    write("weighbridge.conf", kept["weighbridge.conf"] + "\nlimit_req_zone $server_name zone=tried:32k rate=60r/m;\n")
    write("jobs.conf", kept["jobs.conf"].replace("location ^~ /v1/batches {", "location ^~ /v1/batches {\n    limit_req zone=tried;"))
    try:
        stack.dev("reload", "nginx")
        yield
    finally:
        for name, text in kept.items():
            write(name, text)
        stack.dev("reload", "nginx")


def test_a_429_is_tried_again_after_the_time_that_it_says(client):
    refused = threading.Event()

    def others():
        while not refused.is_set():
            client.stack.get("/v1/batches")
    with limited(client.stack):
        wait_until(lambda: client.stack.get("/v1/batches").status_code == 429, "the limit")
        crowd = threading.Thread(target=others)
        crowd.start()
        try:
            with playing(client, 429):
                refused.set()
        finally:
            refused.set()
            crowd.join()


def test_files_and_batches_of_the_embedded_service_work_unchanged(service, package):  # noqa: F811
    client = Client(service.stack, package, WB_BATCH_BASE=service.stack.url + PREFIX.removesuffix("/v1"))
    with service.runner():
        said = client.play("service")
    assert said["same"] and said["ready"]["status"] == "processed"
    assert said["file"]["expires_at"] - said["file"]["created_at"] == 86400
    assert said["batch"]["request_counts"] == {"total": 7, "completed": 7, "failed": 0}
    assert said["said"] == {c: "say " + c for c in "abcdefg"}
    assert said["listed"] == [said["file"]["id"], said["batch"]["output_file_id"]]
    assert (said["refused"]["error"], said["refused"]["calls"]) == ("ConflictError", [409, 200])  # the 200 is the next call
    assert said["gone"] == {"id": said["file"]["id"], "object": "file", "deleted": True}
    assert said["unknown"]["error"] == "NotFoundError"
