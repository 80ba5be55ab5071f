# SPDX-License-Identifier: Apache-2.0
"""weighbridge-agent run when things go wrong: killed, refused, without control plane, without space. Artifacts contract, sections 3 to 5."""
import json
import os
import random
import shutil
import signal
import subprocess
import time
import uuid

import pytest

from agent import Origin
from agent_daemon import NODE, Daemon, assign, assignment, awaits
from artifacts import MIB, Version
from conftest import HANG_S, wait_until
from test_agent_run import daemon, gate, in_the_middle, site, some_files, some_version  # noqa: F401

AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


# --- killed ---

def kill_at_random_points(site, gate, daemon, n):
    rng = random.Random(n)
    gate.let()
    for _ in range(n):
        v = some_version(site)
        before = len(gate.files())
        number = assign(site, v)
        after = rng.randrange(SHARDS_AND_MORE)
        wait_until(lambda: len(gate.files()) - before >= after or assignment(site, number)["state"] == "landed", "requests")
        try:
            daemon.process.wait(rng.random() * 0.05)
        except subprocess.TimeoutExpired:
            daemon.kill()
        landed = daemon.versions(v.artifact)
        assert landed == [] or daemon.content("v1", v.artifact) == v.files
        left = v.manifest["total_bytes"] if landed else daemon.verified(v.files, v.artifact)
        gate.bytes = 0
        daemon.up()
        awaits(site, number, "landed")
        assert gate.bytes <= v.manifest["total_bytes"] - left
        assert daemon.content("v1", v.artifact) == v.files and daemon.parts(v.artifact) == []
        assert site.sql("SELECT count(*) FROM receipt r JOIN assignment a ON a.id = r.assignment WHERE a.id = %s", [number]) == [(1,)]
        for path, _, _ in os.walk(daemon.root / v.artifact):
            os.chmod(path, 0o755)
        shutil.rmtree(daemon.root / v.artifact)


SHARDS_AND_MORE = 8


def test_killed_at_random_points_it_goes_on_where_it_was(site, gate, daemon):
    kill_at_random_points(site, gate, daemon, 6)


@pytest.mark.long
def test_killed_at_200_random_points_it_goes_on_where_it_was(site, gate, daemon):
    kill_at_random_points(site, gate, daemon, 200)


# --- the control plane away ---

@pytest.fixture
def elsewhere():
    """Bytes that do not come from the store: an origin that the manifest names."""
    with Origin() as made:
        yield made
        made.let()


def elsewhere_version(site, gate, origin):
    files = some_files()
    v = Version(site, files=files, urls={p: [f"http://127.0.0.1:{origin.port}/v1/files/{p}"] for p in files if p != "empty"}).publish()
    origin.serve(files)
    origin.on("/files/a/weights", "held", times=-1)
    for path in files:
        gate.on("GET", f"/files/{path}", 404)
    return v


@pytest.mark.parametrize("what", ["stop nginx", "stop artifacts", "freeze artifacts", "stop postgres", "stop redis"])
@pytest.mark.touches("nginx", "postgres", "redis")
def test_a_pull_in_flight_finishes_while_the_control_plane_is_away(site, gate, elsewhere, tmp_path, what):
    v = elsewhere_version(site, gate, elsewhere)
    node = Daemon(site, tmp_path / "node", gate.url, WB_AGENT_LOCAL_URLS=f"http://127.0.0.1:{elsewhere.port}").up()
    node.says("registered")
    number = assign(site, v)
    wait_until(lambda: len(elsewhere.ranges("a/weights")) >= 4, "shards in flight")
    how, name = what.split()
    site.dev(how, name)
    try:
        elsewhere.let()
        wait_until(lambda: node.versions(v.artifact), "it lands")
        assert node.content("v1", v.artifact) == v.files
    finally:
        site.dev("thaw" if how == "freeze" else "start", name)
    awaits(site, number, "landed")
    assert assignment(site, number)["attempts"] == 0
    node.down()


@pytest.mark.touches("nginx")
def test_without_the_store_a_pull_waits_for_its_return_and_costs_one_attempt_at_most(site, gate, daemon):
    """Since the failure must be told before the next attempt begins, that one begins when there is somebody to ask."""
    v, number = in_the_middle(site, gate)
    site.dev("stop", "nginx")
    gate.let()
    daemon.says("not landed")
    site.dev("start", "nginx")
    awaits(site, number, "landed")
    assert assignment(site, number)["attempts"] == 1
    assert daemon.content("v1", v.artifact) == v.files


def test_it_leaves_at_once_though_the_control_plane_does_not_answer(site, gate, daemon):
    """A call in progress ends with the signal: it would have taken its 10 seconds."""
    site.dev("freeze", "artifacts")
    try:
        asked = len(gate.seen)
        wait_until(lambda: len(gate.seen) > asked, "a call that hangs")
        began = time.monotonic()
        assert daemon.kill(signal.SIGTERM) == 0
        assert time.monotonic() - began < 9
    finally:
        site.dev("thaw", "artifacts")


def test_a_receipt_that_was_not_delivered_is_delivered_after_a_restart(site, gate, daemon):
    v = some_version(site)
    gate.on("POST", "/receipt", 503)
    gate.let()
    number = assign(site, v)
    wait_until(lambda: len(gate.posts("/receipt")) > 2, "it is tried again")
    daemon.kill()
    assert assignment(site, number)["state"] == "pulling"
    gate.on("POST", "/receipt", None)
    gate.seen.clear()
    daemon.up()
    awaits(site, number, "landed")
    assert not [p for m, p in gate.seen if m == "GET"] and len(gate.posts("/receipt")) == 1
    assert site.sql("SELECT bytes_fetched FROM receipt") == [(v.manifest["total_bytes"],)]


def test_a_receipt_whose_answer_is_lost_counts_once(site, gate, daemon):
    v = some_version(site)
    gate.on("POST", "/receipt", 0)
    gate.let()
    number = assign(site, v)
    wait_until(lambda: len(gate.posts("/receipt")) > 1, "it is handed in again")
    assert assignment(site, number)["state"] == "landed"
    gate.on("POST", "/receipt", None)
    awaits(site, assign(site, some_version(site)), "landed")
    assert site.sql("SELECT count(*) FROM receipt") == [(2,)]


def test_an_outage_is_said_once_and_so_is_its_end(site, gate, daemon):
    in_the_middle(site, gate)
    gate.on("PUT", NODE, 503)
    gate.on("POST", "/progress", 503)
    daemon.says("call=progress")
    daemon.says("call=heartbeat")
    gate.seen.clear()
    wait_until(lambda: len(gate.seen) > 6, "it goes on asking")
    assert daemon.said().count("does not do what it is asked") == 2
    gate.on("PUT", NODE, None)
    gate.on("POST", "/progress", None)
    daemon.says("answers again", 2)
    assert daemon.said().count("does not do what it is asked") == 2


# --- failures ---

def test_a_failure_whose_answer_is_lost_counts_once(site, gate, daemon):
    v = some_version(site)
    gate.on("GET", "/versions/v1", 503)
    gate.on("POST", "/failure", 0)
    number = assign(site, v)
    wait_until(lambda: assignment(site, number)["attempts"] == 1, "it counts")
    gate.on("GET", "/versions/v1", None)
    gate.let()
    awaits(site, number, "landed")
    assert assignment(site, number)["attempts"] == 1 and len(gate.posts("/failure")) == 1


def test_a_failure_that_was_not_taken_is_told_again(site, gate, daemon):
    v = some_version(site)
    gate.on("GET", "/versions/v1", 503)
    gate.on("POST", "/failure", 503)
    number = assign(site, v)
    wait_until(lambda: len(gate.posts("/failure")) > 2, "it is told again")
    assert assignment(site, number)["attempts"] == 0
    gate.on("GET", "/versions/v1", None)
    gate.on("POST", "/failure", None)
    gate.let()
    awaits(site, number, "landed")
    assert assignment(site, number)["attempts"] == 1


def test_four_attempts_are_all_and_another_version_does_not_wait_for_them(site, gate, daemon):
    v = some_version(site)
    gate.on("GET", "/versions/v1", 503)
    gate.let()
    number = assign(site, v)
    other = some_version(site, version="v2")
    awaits(site, assign(site, other), "landed")
    failed = awaits(site, number, "failed")
    assert failed["attempts"] == 4 and failed["reason"] == "timeout"
    tried = len(gate.seen)
    awaits(site, assign(site, some_version(site, version="v3")), "landed")
    assert not [p for m, p in gate.seen[tried:] if v.artifact in p], "not asked for any more"
    assert daemon.versions(v.artifact) == []


@pytest.mark.long
def test_after_a_failure_the_next_attempt_comes_when_the_source_says(site, gate, daemon):
    """Retry-After holds between attempts as it does between tries."""
    v = some_version(site)
    gate.on("GET", "/versions/v1", 429)
    number = assign(site, v)
    wait_until(lambda: assignment(site, number)["attempts"] == 1, "the first")
    failed = gate.times["POST", "failure"]
    before = gate.times["GET", "v1"]
    wait_until(lambda: gate.times["GET", "v1"] > before, "the second")
    assert gate.times["GET", "v1"] - failed >= 0.9


def test_a_manifest_that_is_not_the_assignments_is_fatal_at_once(site, gate, daemon):
    v = some_version(site)
    gate.on("GET", "/versions/v1", v.text.encode() + b" ")
    gate.let()
    failed = awaits(site, assign(site, v), "failed")
    assert (failed["attempts"], failed["reason"]) == (1, "manifest_mismatch")
    assert gate.files() == [] and daemon.versions(v.artifact) == [] and daemon.parts(v.artifact) == []


def order(v, url, **fields):
    return {"id": str(uuid.uuid4()), "artifact": v.artifact, "version": "v1", "digest": v.digest, "total_bytes": 1, "attempts_left": 4,
            "sources": [{"url": url, "kind": "origin", "max_concurrency": 4}], **fields}


@pytest.mark.parametrize("trusted", [False, True])
def test_the_token_goes_where_it_was_configured_to_go_and_nowhere_else(site, gate, tmp_path, elsewhere, trusted):
    """Section 2: credentials are sent only to configured prefixes, whatever the control plane says."""
    v = Version(site)
    url = elsewhere.serve(v.files)
    elsewhere.versions["/v1"] = (v.text.encode(), v.files)
    gate.on("PUT", NODE, json.dumps([order(v, url)]).encode())
    node = Daemon(site, tmp_path / "node", gate.url, **({"WB_AGENT_TOKEN_URLS": url} if trusted else {})).up()
    wait_until(lambda: node.versions(v.artifact), "it lands")
    sent = {token for _, token in elsewhere.tokens}
    assert sent == ({"Bearer " + site.env["WB_NODE_TOKEN"]} if trusted else {None})
    node.down()


def test_assignments_that_make_no_sense_are_left_out(site, gate, daemon):
    v = Version(site)
    wrong = [{}, 5, order(v, v.path, artifact="../x"), order(v, v.path, version="."), order(v, v.path, digest=""), order(v, v.path, id="x"),
             order(v, v.path, sources=[]), order(v, "ftp://a/b"), order(v, "http://user@127.0.0.1/"), order(v, "/" + "x" * 3000)]
    gate.on("PUT", NODE, json.dumps(wrong).encode())
    daemon.says("an assignment makes no sense", times=2 * len(wrong))
    gate.on("PUT", NODE, b'{"not":"a list"}')
    gate.on("PUT", NODE, None)
    gate.let()
    awaits(site, assign(site, v.publish()), "landed")
    assert [p.name for p in daemon.root.iterdir()] == [v.artifact]


def test_another_version_under_the_same_name_is_left_alone(site, gate, tmp_path, elsewhere):
    v = some_version(site)
    node = Daemon(site, tmp_path / "node", gate.url)
    other = some_files()
    assert node.fetch(elsewhere.serve(other, artifact=v.artifact)).status == 0
    node.up()
    node.says("registered")
    failed = awaits(site, assign(site, v), "failed")
    assert (failed["attempts"], failed["reason"]) == (1, "manifest_mismatch")
    assert node.content("v1", v.artifact) == other
    [spread] = site.get(f"/api/v1/artifacts/{v.artifact}/distribution").json()["versions"]
    assert [n["other_digest"] for n in spread["nodes"]] == [True]
    node.down()


def test_a_version_that_does_not_fit_fails_with_a_reason_and_is_seen_and_counted(site, gate, tmp_path):
    v = some_version(site)
    node = Daemon(site, tmp_path / "node", gate.url, WB_AGENT_CAPACITY_BYTES=str(2 * MIB)).up()
    node.says("registered")
    assert site.get(NODE).json()["capacity_bytes"] == 2 * MIB
    failed = awaits(site, assign(site, v), "failed")
    assert (failed["attempts"], failed["reason"]) == (1, "disk_full")
    assert gate.files() == [] and node.parts(v.artifact) == []
    metrics = site.get("/artifacts/metrics", token="viewer").text
    assert f'dist_retry_total{{artifact="{v.artifact}",version="v1",reason="disk_full"}} 1' in metrics
    node.down()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a tmpfs")
def test_a_full_disk_is_fatal_and_the_next_one_that_fits_lands(site, gate, tmp_path):
    node = Daemon(site, tmp_path / "node", gate.url)
    node.root.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(node.root)], check=False).returncode != 0:
        pytest.skip("no tmpfs may be mounted here")
    try:
        gate.let()
        node.up()
        failed = awaits(site, assign(site, some_version(site)) if node.says("registered") is None else None, "failed")
        assert failed["reason"] == "disk_full"
        small = Version(site, files={"a": os.urandom(MIB)}).publish()
        awaits(site, assign(site, small), "landed")
        node.down()
    finally:
        subprocess.run(["umount", "-l", str(node.root)], check=True)


# --- who is it? ---

@pytest.mark.parametrize("wrong", [{"token": "0" * 48}, {"node": "other"}])
def test_who_is_not_let_in_says_so_once_and_is_let_in_after_a_reload(site, gate, tmp_path, wrong):
    def ini(token, node="node"):
        (tmp_path / "ini").write_text(f"[agent]\nurl = {gate.url}\nnode = {node}\ntoken = {token}\n")

    right = site.env["WB_NODE_TOKEN"]
    ini(**{"token": right, **wrong})
    node = Daemon(site, tmp_path / "node", WB_CONFIG=str(tmp_path / "ini"))
    for name in ("URL", "NODE", "TOKEN"):
        del node.env["WB_AGENT_" + name]
    node.up()
    wait_until(lambda: len(gate.seen) > 3, "it goes on asking")
    assert node.said().count("error=") == 1 and ("401" if "token" in wrong else "403") in node.said()
    ini(right)
    os.kill(node.process.pid, signal.SIGHUP)
    node.says("registered")
    assert right not in node.said() and "0" * 48 not in node.said()
    node.down()


@pytest.mark.skipif(os.geteuid() != 0, reason="this is one already")
def test_it_runs_as_an_ordinary_user(site, gate, tmp_path):
    for folder in [tmp_path, *tmp_path.parents][:-1]:
        folder.chmod(folder.stat().st_mode | 0o755)
    home = tmp_path / "node"
    node = Daemon(site, home, gate.url, prefix=AS_NOBODY)
    os.chown(home, 65534, 65534)
    node.up()
    node.says("registered")
    v, number = in_the_middle(site, gate)
    node.kill()
    node.up()
    gate.let()
    awaits(site, number, "landed")
    assert node.content("v1", v.artifact) == v.files
    assert node.folder("v1", v.artifact).stat().st_uid == 65534 and node.folder("v1", v.artifact).stat().st_mode & 0o777 == 0o555
    node.down()


def test_a_root_that_cannot_be_written_is_said_at_once(site, tmp_path):
    (tmp_path / "file").write_text("")
    node = Daemon(site, tmp_path / "node")
    node.root = tmp_path / "file" / "root"
    done = node.run("run")
    assert done.status == 3 and done.said("class") == "task_fatal", done
