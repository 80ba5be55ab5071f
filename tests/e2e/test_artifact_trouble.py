# SPDX-License-Identifier: Apache-2.0
"""Publishing when things go wrong: artifacts contract, sections 2, 3 and 5."""
import fcntl
import json
import os
import socket
import subprocess
import tempfile
from contextlib import contextmanager

import pytest

from artifacts import MIB, Version
from conftest import HANG_S, ROOT, Stack, wait_until


@contextmanager
def artifacts_with(stack, **env):
    """The program with other settings for a while."""
    before = dict(stack.environ)
    stack.environ = {**before, **env}
    stack.dev("stop", "artifacts")
    stack.dev("start", "artifacts")
    try:
        yield
    finally:
        stack.environ = before
        stack.dev("stop", "artifacts")
        stack.dev("start", "artifacts")


POINTS = ("manifest.announced", "shard.checked", "shard.placed", "shard.landed", "gate.claimed", "gate.cloned", "gate.read",
          "gate.sealed", "gate.moved", "gate.published")


@pytest.mark.parametrize("points", [("shard.placed", "gate.sealed", "gate.moved"), pytest.param(POINTS, marks=pytest.mark.long)],
                         ids=["some", "all"])
def test_publishing_goes_on_after_a_kill_at_each_step(stack, tmp_path, points):
    """kill -9 of the handler at these points; the publisher says everything again until it is answered. Most of the time
    goes to the supervisor, which starts a worker that keeps dying ever later."""
    base = Version(stack).publish()
    faults = " ".join(f"{p}=kill!{tmp_path}/{p}" for p in points)
    with artifacts_with(stack, WB_FAULTS_ALLOW="on", WB_FAULTS_SET=faults):
        v = Version(stack, {**base.files, "new": os.urandom(MIB + 5)}, artifact=base.artifact, version="v2")

        def published():
            stack.sql("UPDATE artifact_version SET gate_until = '-infinity' WHERE state = 'verifying'")  # a dead one's claim
            answer = v.announce()
            if answer.status_code == 202:
                for shard in answer.json()["missing"]:
                    v.put(shard)
            return answer.status_code == 200 and answer.json()["state"] == "published"

        wait_until(published, "its publication", 4 * HANG_S)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(points), "each point was come to"
    found = {str(p.relative_to(v.on_disk() / "files")): p.read_bytes() for p in (v.on_disk() / "files").rglob("*") if p.is_file()}
    assert found == v.files
    assert v.on_disk().stat().st_mode & 0o777 == 0o555 and v.parts() == []


@pytest.mark.parametrize("change", [
    {"schema": 2}, {"schema": None}, {"artifact": "other"}, {"version": "v9"}, {"kind": "poem"}, {"total_bytes": 5},
    {"shard_bytes": MIB + 1}, {"shard_bytes": 0}, {"files": None}, {"files": "x"}])
def test_a_manifest_that_makes_no_sense_is_refused_with_the_reason(stack, change):
    v = Version(stack)
    answer = v.announce(json.dumps({**v.manifest, **change}))
    assert answer.status_code == 400 and len(answer.json()["error"]) > 5, answer.text
    assert v.call("GET", "?state").status_code == 404


@pytest.mark.parametrize("path", ["../up", "/abs", "a/../b", "a//b", "./a", "a/", "", "..", "a\nb", "x" * 256, "a/\x7f"])
def test_a_hostile_path_is_refused(stack, path):
    v = Version(stack)
    v.manifest["files"][0]["path"] = path
    v.manifest["files"].sort(key=lambda f: f["path"])
    answer = v.announce(json.dumps(v.manifest))
    assert answer.status_code == 400, answer.text
    assert not (stack.var / "store" / v.artifact).exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "nonsense", "{}" * 2, '{"a":' * 6 + "1" + "}" * 6, "\x00", "[" * 100000])
def test_what_is_no_manifest_is_refused(stack, text):
    assert Version(stack).announce(text).status_code == 400


def test_files_that_stand_against_each_other_are_refused(stack):
    for paths in (("a", "a"), ("b", "a"), ("a", "a/b")):
        v = Version(stack, {"0": b""})
        v.manifest["files"] = [{**v.manifest["files"][0], "path": p} for p in paths]
        assert v.announce(json.dumps(v.manifest)).status_code == 400, paths
    v = Version(stack)
    for digests in ([], ["sha256:" + "0" * 64], ["", ""], ["md5:" + "0" * 32] * 2, ["sha256:" + "0" * 63] * 2):
        v.manifest["files"][0]["shards"] = digests
        assert v.announce(json.dumps(v.manifest)).status_code == 400, digests


def test_bodies_have_the_size_they_may_have(stack):
    v = Version(stack)
    assert v.announce(v.text + " " * (8 * MIB - len(v.text))).status_code == 202
    more = v.announce(v.text + " " * (8 * MIB + 1))
    assert more.status_code == 413 and "8 MiB" in more.json()["error"]
    head = (f"PUT {v.path}/shards/{next(iter(v.shards))} HTTP/1.1\r\nHost: x\r\nContent-Length: {2 ** 30 + 1}\r\n"
            f"Authorization: Bearer {stack.env['WB_PUBLISHER_TOKEN']}\r\n\r\n")
    with socket.create_connection(("127.0.0.1", stack.port), HANG_S) as s:
        s.sendall(head.encode())
        got = s.recv(4096)
    assert got.split()[1] == b"413" and b"1 GiB" in got


def test_a_body_that_is_cut_short_leaves_nothing(stack):
    v = Version(stack)
    v.announce()
    shard, data = next(iter(v.shards.items()))
    head = (f"PUT {v.path}/shards/{shard} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n"
            f"Authorization: Bearer {stack.env['WB_PUBLISHER_TOKEN']}\r\n\r\n")
    with socket.create_connection(("127.0.0.1", stack.port), HANG_S) as s:
        s.sendall(head.encode() + data[:-1])
    wait_until(lambda: list((stack.var / "store" / ".spool").iterdir()) == [], "an empty spool")
    assert shard in v.announce().json()["missing"] and v.parts() == []
    assert v.put(shard).status_code == 201
    chunked = v.call("PUT", "/shards/" + list(v.shards)[1], iter([v.shards[list(v.shards)[1]]]))  # without a length
    assert chunked.status_code == 201
    assert v.judged() == "published" and list((stack.var / "store" / ".spool").iterdir()) == []


@pytest.mark.touches("postgres")
def test_without_postgres_it_says_so_and_goes_on_after(stack):
    v = Version(stack)
    v.announce()
    shard = next(iter(v.shards))
    stack.dev("stop", "postgres")
    for answer in (v.announce(), v.put(shard), v.call("GET", "?state"), v.call("GET", "/files/a.bin"), stack.get("/api/v1/nodes"),
                   stack.call("PUT", "/api/v1/nodes/node", {}, token="node")):
        assert answer.status_code == 503 and answer.headers["Retry-After"] and answer.json()["error"], answer.text
    assert stack.get("/artifacts/metrics", token="viewer").status_code == 200
    stack.dev("start", "postgres")
    wait_until(lambda: v.put(shard).status_code in (200, 201), "the shard")
    v.put(list(v.shards)[1])
    assert v.judged() == "published"


@pytest.mark.touches("redis")
def test_without_redis_all_but_the_overlay_is_as_ever(stack):
    stack.dev("stop", "redis")
    v = Version(stack).publish()
    stack.sql("TRUNCATE node CASCADE")
    assert stack.call("PUT", "/api/v1/nodes/node", {}, token="node").status_code == 200
    made = stack.call("POST", "/api/v1/nodes/node/assignments", {"artifact": v.artifact, "version": v.version})
    path = "/api/v1/nodes/node/assignments/" + made.json()["id"]
    assert stack.call("POST", path + "/progress", {"phase": "fetch", "bytes": 3}, token="node").status_code == 200
    assert stack.sql("SELECT bytes_sent FROM model_load_jobs") == [(3,)]
    done = stack.call("POST", path + "/receipt", {"digest": v.digest, "bytes_fetched": 1, "bytes_avoided": 0}, token="node")
    assert done.status_code == 201 and stack.sql("SELECT count(*) FROM model_load_jobs") == [(0,)]


def housekeeping(stack):
    """What it tells."""
    build = os.environ.get("WB_DEV_BUILD", str(ROOT / "build"))
    done = subprocess.run([build + "/weighbridge-housekeeping", "--config", str(stack.var / "weighbridge.ini")], capture_output=True,
                          text=True, timeout=HANG_S, env=stack.environ, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_bodies_that_a_killed_web_server_left_are_removed_once_they_are_old(stack):
    spool = stack.var / "store" / ".spool"
    old, young, folder = spool / "0000099998", spool / "0000099999", spool / "folder"
    folder.mkdir()
    for path in (old, young):
        path.write_bytes(b"a body cut short")
    for path in (old, folder):
        os.utime(path, (0, 0))
    assert "spooled=1" in housekeeping(stack)
    assert not old.exists() and young.exists() and folder.exists()
    young.unlink()
    folder.rmdir()


def test_an_upload_that_stands_still_for_a_day_is_dropped_and_listed(stack):
    v = Version(stack)
    v.announce()
    shard = next(iter(v.shards))
    v.put(shard)
    assert v.parts()

    stack.sql("UPDATE artifact_version SET progress_at = now() - interval '23 hours 59 minutes' WHERE artifact = %s", [v.artifact])
    assert "dropped_uploads=0" in housekeeping(stack) and v.state()["state"] == "uploading"
    stack.sql("UPDATE artifact_version SET progress_at = now() - interval '24 hours 1 second' WHERE artifact = %s", [v.artifact])
    assert "dropped_uploads=1" in housekeeping(stack)
    assert v.state()["state"] == "dropped" and "24 h" in v.state()["reason"] and v.parts() == []
    assert v.put(shard).status_code == 409
    v.publish()  # the same bytes may begin anew


@pytest.mark.touches("artifacts")
def test_a_large_body_that_finds_nobody_is_503_and_not_too_large(stack):
    """The pages of the web server's own errors have a limit of bodies, too: it must not replace the error by its own."""
    v = Version(stack)
    v.announce()
    stack.dev("stop", "artifacts")
    try:
        answer = v.put(next(iter(v.shards)))
    finally:
        stack.dev("start", "artifacts")
    assert answer.status_code == 503 and "Retry-After" in answer.headers, (answer.status_code, answer.text)
    wait_until(lambda: v.announce().status_code == 202, "the service again")


@pytest.fixture
def small_disk():
    """A stack whose store is a file system of 8 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    folder = tempfile.mkdtemp(prefix="wb-small-", dir="/tmp")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], check=False, capture_output=True).returncode != 0:
        os.rmdir(folder)
        pytest.skip("nothing can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
        os.rmdir(folder)


def test_a_full_disk_is_said_and_what_was_kept_is_kept(small_disk):
    stack = Stack()
    try:
        stack.var.joinpath("store").symlink_to(small_disk)
        stack.up()
        v = Version(stack, {f"f{i}": os.urandom(MIB) for i in range(9)})
        missing = v.announce().json()["missing"]
        answers = [v.put(s) for s in missing]
        assert {a.status_code for a in answers} == {201, 507}, [a.status_code for a in answers]
        assert all(a.json()["error"] for a in answers if a.status_code == 507)
        kept = len(missing) - len(v.announce().json()["missing"])
        assert kept == sum(a.status_code == 201 for a in answers) > 0
        assert list((stack.var / "store" / ".spool").iterdir()) == []
        subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
        v.publish()
    finally:
        stack.down()


@pytest.fixture
def gate_claims(stack):
    """Who had a version to judge, and '' when it was given back, in order."""
    stack.sql("""CREATE TABLE gate_claims (holder text);
        CREATE FUNCTION note_claim() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN INSERT INTO gate_claims VALUES (NEW.gate_holder); RETURN NULL; END';
        CREATE TRIGGER note_claim AFTER UPDATE OF gate_holder ON artifact_version FOR EACH ROW EXECUTE FUNCTION note_claim()""")
    yield lambda: [holder for holder, in stack.sql("SELECT holder FROM gate_claims")]
    stack.sql("DROP TRIGGER note_claim ON artifact_version; DROP FUNCTION note_claim; DROP TABLE gate_claims")


def test_an_upload_that_is_still_at_it_holds_the_gate_up_for_as_long_as_it_takes_and_no_longer(stack, gate_claims):
    """The last shard calls the gate while another request has not yet let go of the part."""
    v = Version(stack)
    *before, last = v.announce().json()["missing"]
    for shard in before:
        assert v.put(shard).status_code == 201
    [part] = v.parts()
    at_it = os.open(part, os.O_RDONLY)
    try:
        fcntl.flock(at_it, fcntl.LOCK_SH)
        assert v.put(last).status_code == 201
        wait_until(lambda: any(gate_claims()) and gate_claims()[-1] == "", "the gate to look, and to give it back")
    finally:
        os.close(at_it)
    wait_until(lambda: v.state()["state"] == "published", "the gate to look again", timeout_s=20)  # unasked it does every 30 s
