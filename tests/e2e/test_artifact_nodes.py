# SPDX-License-Identifier: Apache-2.0
"""Nodes, their assignments and what comes of them, through the web server: artifacts contract, section 3."""
import re
import socket

import pytest

from artifacts import JSON, MIB, Version
from conftest import HANG_S, wait_until

NODE = "/api/v1/nodes/node"  # whose name the token of ./dev is bound to


@pytest.fixture
def node(stack):
    stack.sql("TRUNCATE node CASCADE")
    beat(stack)
    return stack


def beat(stack, name="node", token="node", **said):
    answer = stack.call("PUT", "/api/v1/nodes/" + name, {"rack": "r1", "zone": "z1", **said}, token=token)
    assert answer.status_code == 200, answer.text
    return answer.json()


def assign(stack, v, name="node"):
    answer = stack.call("POST", f"/api/v1/nodes/{name}/assignments", {"artifact": v.artifact, "version": v.version})
    assert answer.status_code == 201, answer.text
    return f"/api/v1/nodes/{name}/assignments/" + answer.json()["id"]


def receipt(v, **fields):
    return {"digest": v.digest, "bytes_fetched": 5, "bytes_avoided": 7, "per_source": {}, "retries": {}, "phases": {}, **fields}


def node_call(stack, method, path, body=None, token="node"):
    return stack.call(method, path, body, token=token)


def test_a_heartbeat_registers_and_brings_assignments(node):
    v = Version(node).publish()
    path = assign(node, v)
    [order] = beat(node, address="10.0.0.1:9", capacity_bytes=100, used_bytes=40, agent_version="1",
                   mounts=["/a", {"path": "/b", "total_bytes": 4, "used_bytes": 1}],
                   versions=[{"artifact": "m", "version": "v0", "digest": "sha256:" + "0" * 64, "state": "landed"}])
    assert order["id"] == path.rpartition("/")[2] and order["release"] is None and order["deadline"] is None
    assert (order["artifact"], order["version"], order["digest"]) == (v.artifact, v.version, v.digest)
    assert order["total_bytes"] == v.manifest["total_bytes"] and order["phase"] == "fetch"
    assert order["sources"] == [{"url": v.path, "kind": "origin", "max_concurrency": 4}]
    seen = node.get(NODE, token="viewer").json()
    assert (seen["rack"], seen["zone"], seen["capacity_bytes"], seen["used_bytes"], seen["alive"]) == ("r1", "z1", 100, 40, True)
    assert seen["mounts"] == [{"path": "/a"}, {"path": "/b", "total_bytes": 4, "used_bytes": 1}]
    assert [n["node"] for n in node.get("/api/v1/nodes", token="viewer").json()["nodes"]] == ["node"]
    node.sql("UPDATE node SET seen_at = now() - interval '61 seconds'")
    assert node.get(NODE, token="viewer").json()["alive"] is False


@pytest.mark.parametrize("said", [{"rack": 5}, {"capacity_bytes": -1}, {"mounts": {}}, {"mounts": [5]}, {"unknown": 1},
                                  {"versions": [{"artifact": "m"}]}, {"rack": "r" * 65},
                                  {"versions": [{"artifact": "../m", "version": "v", "digest": "sha256:" + "0" * 64, "state": "landed"}]},
                                  {"versions": [{"artifact": "m", "version": "v", "digest": "", "state": "landed"}]}])
def test_a_heartbeat_that_makes_no_sense_is_refused(node, said):
    answer = node.call("PUT", NODE, said, token="node")
    assert answer.status_code == 400, answer.text


def test_a_node_is_bound_to_its_name(node):
    v = Version(node).publish()
    beat(node, "other", token="admin")
    path = assign(node, v, "other")
    for method, where, body in (("PUT", "/api/v1/nodes/other", {}), ("GET", "/api/v1/nodes/other", None),
                                ("POST", path + "/progress", {"phase": "fetch", "bytes": 1}),
                                ("POST", path + "/receipt", receipt(v)),
                                ("POST", path + "/failure", {"class": "retryable", "reason": "timeout"})):
        assert node_call(node, method, where, body).status_code == 403, where
        assert node_call(node, method, where, body, token="publisher").status_code == 403, where
    assert node_call(node, "PUT", "/api/v1/nodes/BAD", {}, token="admin").status_code == 400
    # Its own assignments, but not by another's address.
    assert node_call(node, "POST", path.replace("/other/", "/node/") + "/receipt", receipt(v)).status_code == 404


def test_only_an_admin_assigns_and_only_what_is_published(node):
    v = Version(node)
    v.announce()
    body = {"artifact": v.artifact, "version": v.version}
    for token in ("viewer", "worker", "publisher", "node"):
        assert node.call("POST", NODE + "/assignments", body, token=token).status_code == 403
    assert node.call("POST", NODE + "/assignments", body).status_code == 409
    assert node.call("POST", NODE + "/assignments", {**body, "version": "none"}).status_code == 404
    assert node.call("POST", "/api/v1/nodes/nobody/assignments", body).status_code == 404
    v.publish()
    first = node.call("POST", NODE + "/assignments", body)
    again = node.call("POST", NODE + "/assignments", body)
    assert (first.status_code, again.status_code) == (201, 200) and first.json()["id"] == again.json()["id"]


def test_a_copy_shows_in_the_operations_like_any_other(node):
    v = Version(node).publish()
    path = assign(node, v)
    key = f"{v.artifact}@{v.version}:node"
    answer = node_call(node, "POST", path + "/progress",
                       {"phase": "fetch", "bytes": MIB, "file_name": "a.bin", "speed": "1 MB/s", "verified": "80"})
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"state": "pulling", "sources": [{"url": v.path, "kind": "origin", "max_concurrency": 4}]}
    shown = wait_until(lambda: node.entry(key), "the copy")
    assert shown["nodeName"] == "node" and shown["taskType"] == "staging" and "a.bin" in shown["message"]
    assert shown["progress"] == pytest.approx(100 * MIB / v.manifest["total_bytes"], abs=1)
    row = node.sql("SELECT state, bytes_sent, total_bytes, node_name FROM model_load_jobs WHERE tracking_key = %s", [key])
    assert row == [("staging", MIB, v.manifest["total_bytes"], "node")]
    # It never goes back.
    node_call(node, "POST", path + "/progress", {"phase": "verify", "bytes": 5})
    [now] = node.get(NODE + "/assignments").json()["assignments"]
    assert (now["bytes"], now["phase"], now["state"]) == (MIB, "verify", "pulling")
    assert node_call(node, "POST", path + "/receipt", receipt(v)).status_code == 201
    wait_until(lambda: node.entry(key) is None, "its end")
    assert node.sql("SELECT count(*) FROM model_load_jobs") == [(0,)]


@pytest.mark.parametrize("said", [{"bytes": 1}, {"phase": "fetch"}, {"phase": "dream", "bytes": 1}, {"phase": "fetch", "bytes": -1},
                                  {"phase": "fetch", "bytes": 1, "verified": "8"}, {"phase": "fetch", "bytes": 1, "verified": "zz"},
                                  {"phase": "fetch", "bytes": 1, "verified": "8000"}])
def test_progress_that_makes_no_sense_is_refused(node, said):
    path = assign(node, Version(node).publish())
    assert node_call(node, "POST", path + "/progress", said).status_code == 400


def test_a_copy_is_never_seen_to_be_more_than_its_version(node):
    """A node counts what it fetched twice, or lies."""
    v = Version(node).publish()
    path = assign(node, v)
    assert node_call(node, "POST", path + "/progress", {"phase": "fetch", "bytes": (1 << 53) - 1}).status_code == 200
    [now] = node.get(NODE + "/assignments").json()["assignments"]
    assert now["bytes"] == v.manifest["total_bytes"]
    assert node.sql("SELECT bytes_sent FROM model_load_jobs") == [(v.manifest["total_bytes"],)]


def test_a_receipt_counts_with_the_published_digest_only_and_once(node):
    v = Version(node).publish()
    path = assign(node, v)
    wrong = node_call(node, "POST", path + "/receipt", receipt(v, digest="sha256:" + "0" * 64))
    assert wrong.status_code == 422 and v.digest in wrong.json()["error"]
    assert node_call(node, "POST", path + "/receipt", receipt(v, digest="")).status_code == 422
    assert node.get(NODE + "/assignments").json()["assignments"][0]["state"] == "queued"
    assert node_call(node, "POST", path + "/receipt", receipt(v)).status_code == 201
    assert node_call(node, "POST", path + "/receipt", receipt(v, bytes_fetched=99)).status_code == 200
    assert node.sql("SELECT bytes_fetched, bytes_avoided FROM receipt") == [(5, 7)]
    assert beat(node) == []
    assert node_call(node, "POST", path + "/progress", {"phase": "fetch", "bytes": 1}).status_code == 409
    assert node_call(node, "POST", path + "/failure", {"class": "retryable", "reason": "timeout"}).status_code == 409
    assert node.call("DELETE", path).status_code == 409


def test_four_attempts_are_all_there_are_until_an_admin_says_so(node):
    v = Version(node).publish()
    path = assign(node, v)
    for n in range(1, 5):
        answer = node_call(node, "POST", path + "/failure", {"class": "retryable", "reason": "timeout", "source": v.path})
        assert answer.json()["attempts"] == n
        assert answer.json()["state"] == ("queued" if n < 4 else "failed")
        assert len(beat(node)) == (1 if n < 4 else 0)
    again = node.call("POST", NODE + "/assignments", {"artifact": v.artifact, "version": v.version})
    assert again.status_code == 201 and (again.json()["state"], again.json()["attempts"]) == ("queued", 0)
    fatal = node_call(node, "POST", path + "/failure", {"class": "task_fatal", "reason": "disk_full"})
    assert fatal.json()["state"] == "failed" and fatal.json()["reason"] == "disk_full"
    assert node_call(node, "POST", path + "/failure", {"class": "other", "reason": "x"}).status_code == 400


def test_a_failed_copy_is_seen_to_have_failed(node):
    v = Version(node).publish()
    path = assign(node, v)
    key = f"{v.artifact}@{v.version}:node"
    node_call(node, "POST", path + "/progress", {"phase": "fetch", "bytes": 1})
    wait_until(lambda: node.entry(key), "the copy")
    node_call(node, "POST", path + "/failure", {"class": "task_fatal", "reason": "disk_full"})
    assert node.sql("SELECT state, last_error FROM model_load_jobs WHERE tracking_key = %s", [key]) == [("failed", "disk_full")]


def test_an_assignment_can_be_cancelled(node):
    v = Version(node).publish()
    path = assign(node, v)
    assert node.call("DELETE", path, token="node").status_code == 403
    assert node.call("DELETE", path).json()["state"] == "cancelled"
    assert node.call("DELETE", path).status_code == 200 and beat(node) == []
    assert node_call(node, "POST", path + "/receipt", receipt(v)).status_code == 409


def test_withdrawn_starts_no_new_distribution_and_names_the_nodes_that_have_it(node):
    v = Version(node).publish()
    beat(node, "late", token="admin")
    begun, waiting = assign(node, v), assign(node, v, "late")
    node_call(node, "POST", begun + "/progress", {"phase": "fetch", "bytes": 1})
    for body, status in (({}, 400), ({"reason": ""}, 400)):
        assert node.call("POST", v.path + "/withdraw", body, token="publisher").status_code == status
    assert node.call("POST", v.path + "/withdraw", {"reason": "bad"}, token="viewer").status_code == 403
    answer = node.call("POST", v.path + "/withdraw", {"reason": "bad weights"}, token="publisher")
    assert answer.status_code == 200 and answer.json()["state"] == "withdrawn" and answer.json()["reason"] == "bad weights"
    assert {(n["node"], n["state"]) for n in answer.json()["nodes"]} == {("node", "pulling"), ("late", "queued")}
    assert node.call("POST", v.path + "/withdraw", {"reason": "again"}, token="publisher").json()["reason"] == "bad weights"
    assert beat(node, "late", token="admin") == [] and len(beat(node)) == 1
    assert node_call(node, "POST", waiting + "/progress", {"phase": "fetch", "bytes": 1}, token="admin").status_code == 409
    assert node.call("POST", "/api/v1/nodes/late/assignments", {"artifact": v.artifact, "version": v.version}).status_code == 200
    beat(node, "third", token="admin")
    assert node.call("POST", "/api/v1/nodes/third/assignments", {"artifact": v.artifact, "version": v.version}).status_code == 409
    # Who has begun goes on, nobody else gets a byte.
    assert v.call("GET", "/files/a.bin", token="node").status_code == 200
    assert v.call("GET", "/files/a.bin", token="viewer").status_code == 409
    assert v.call("GET", token="viewer").text == v.text
    assert node_call(node, "POST", begun + "/receipt", receipt(v)).status_code == 201
    fresh = Version(node)
    fresh.announce()
    assert node.call("POST", fresh.path + "/withdraw", {"reason": "x"}, token="publisher").status_code == 409


def test_which_node_runs_what_is_a_query(node):
    v1 = Version(node).publish()
    v2 = Version(node, artifact=v1.artifact, version="v2").publish()
    for name, version, digest in (("n1", v1, v1.digest), ("n2", v2, v2.digest), ("n3", v2, "sha256:" + "0" * 64)):
        beat(node, name, token="admin", versions=[
            {"artifact": v1.artifact, "version": version.version, "digest": digest, "state": "landed"}])
    assign(node, v2)
    answer = node.get(f"/api/v1/artifacts/{v1.artifact}/distribution", token="viewer").json()
    got = {x["version"]: [(n["node"], n["state"], n["other_digest"]) for n in x["nodes"]] for x in answer["versions"]}
    assert got == {"v1": [("n1", "landed", False)],
                   "v2": [("n2", "landed", False), ("n3", "landed", True), ("node", "queued", False)]}
    assert node.get("/api/v1/artifacts/no-such/distribution").status_code == 404


def test_lists(node):
    v1 = Version(node).publish()
    v2 = Version(node, artifact=v1.artifact, version="v2")
    v2.announce()
    listed = node.get(f"/api/v1/artifacts/{v1.artifact}/versions", token="viewer").json()["versions"]
    assert [(x["version"], x["state"]) for x in listed] == [("v2", "uploading"), ("v1", "published")]
    one = node.get(f"/api/v1/artifacts/{v1.artifact}", token="viewer").json()
    assert one["kind"] == "weights" and [x["version"] for x in one["versions"]] == ["v2", "v1"]
    [mine] = [a for a in node.get("/api/v1/artifacts", token="viewer").json()["artifacts"] if a["artifact"] == v1.artifact]
    assert mine["newest"]["version"] == "v1"  # published ones first
    assert node.get("/api/v1/artifacts/none").status_code == 404


def test_metrics_tell_of_distribution(node):
    v = Version(node).publish()
    path = assign(node, v)
    beat(node, mounts=[{"path": "/b", "total_bytes": 4, "used_bytes": 1}])
    node_call(node, "POST", path + "/failure", {"class": "retryable", "reason": "timeout"})
    node_call(node, "POST", path + "/failure", {"class": "retryable", "reason": "made up"})
    text = node.get("/artifacts/metrics", token="viewer").text
    labels = f'artifact="{v.artifact}",version="{v.version}"'
    assert f'version_replicas{{{labels},state="queued"}} 1\n' in text and "\ndist_queue_size 1\n" in text
    node_call(node, "POST", path + "/receipt", receipt(v, retries={"shard_digest_mismatch": 3}))
    text = node.get("/artifacts/metrics", token="viewer").text
    for line in (f"dist_bytes_total{{{labels}}} 5", f"cache_avoided_bytes_total{{{labels}}} 7",
                 f'dist_retry_total{{{labels},reason="timeout"}} 1', f'dist_retry_total{{{labels},reason="other"}} 1',
                 f'dist_retry_total{{{labels},reason="shard_digest_mismatch"}} 3',
                 f'version_replicas{{{labels},state="landed"}} 1', 'disk_used_ratio{node="node",mount="/b"} 0.2500',
                 "dist_queue_size 0", 'dist_duration_seconds_bucket{le="+Inf"} 1', "dist_duration_seconds_count 1"):
        assert f"\n{line}\n" in text, line
    assert re.search(r"^dist_duration_seconds_max \d", text, re.M)
    les = re.findall(r'^dist_duration_seconds_bucket\{le="(\d+)"\}', text, re.M)
    assert les == [str(2 ** n) for n in range(14)] + ["14400"]


def test_a_node_that_says_things_twice_or_that_cannot_be_does_not_spoil_the_metrics(node):
    """No series may come twice: who reads them would take neither."""
    v = Version(node).publish()
    has = {"artifact": v.artifact, "version": v.version, "digest": v.digest, "state": "landed"}
    beat(node, versions=[has, has], mounts=[{"path": "/b", "total_bytes": 1, "used_bytes": 1 << 50},
                                            {"path": "/b", "total_bytes": 4, "used_bytes": 1}])
    text = node.get("/artifacts/metrics", token="viewer").text
    series = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert sorted(series) == sorted(set(series))
    assert '\ndisk_used_ratio{node="node",mount="/b"} 1.0000\n' in text
    assert f'\nversion_replicas{{artifact="{v.artifact}",version="{v.version}",state="landed"}} 1\n' in text


def slow_readers(stack, v, n):
    """Connections that ask for a large file and take nothing of it but the head; the statuses."""
    out = []
    for _ in range(n):
        s = socket.create_connection(("127.0.0.1", stack.port), HANG_S)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.sendall((f"GET {v.path}/files/big HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {stack.env['WB_NODE_TOKEN']}\r\n\r\n").encode())
        out.append((s, s.recv(256)))
    return out


def test_readers_of_a_version_are_at_most_four_for_each_rack(node):
    """At least 8, then 429 with Retry-After; who leaves makes room."""
    v = Version(node, {"big": b"0" * (24 * MIB)}).publish()
    other = Version(node, {"big": b"0" * (24 * MIB)}).publish()
    readers = []
    try:
        readers += slow_readers(node, v, 9)
        assert [head.split()[1] for _, head in readers] == [b"200"] * 8 + [b"429"]
        refused = v.call("GET", "/files/big", token="node")
        assert refused.status_code == 429 and int(refused.headers["Retry-After"]) >= 1 and refused.json()["error"]
        assert other.call("HEAD", "/files/big", token="node").status_code == 200  # another version's
        for rack in ("r2", "r3"):
            beat(node, "in-" + rack, token="admin", rack=rack)
        readers += slow_readers(node, v, 5)
        assert [head.split()[1] for _, head in readers[9:]] == [b"200"] * 4 + [b"429"]  # 3 racks: 12
        for s, _ in readers[:5]:
            s.close()
        wait_until(lambda: v.call("HEAD", "/files/big", token="node").status_code == 200, "room")
    finally:
        for s, _ in readers:
            s.close()
