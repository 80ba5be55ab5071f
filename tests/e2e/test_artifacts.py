# SPDX-License-Identifier: Apache-2.0
"""Publishing and handing out artifacts, through the web server: artifacts contract, sections 2 and 3."""
import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from urllib.parse import quote

import pytest

from artifacts import MIB, Version, digest
from conftest import patiently, wait_until


def test_a_manifest_first_then_what_is_missing_then_the_release_gate(stack):
    v = Version(stack)
    answer = v.announce()
    assert answer.status_code == 202 and answer.json()["state"] == "uploading"
    assert answer.json()["digest"] == v.digest
    assert sorted(answer.json()["missing"]) == sorted(v.shards)  # each content once, however often it is there
    first, last = v.shards
    assert v.put(first).status_code == 201
    assert v.put(first).status_code == 200  # there already
    again = v.announce()  # the same bytes again: what is still missing
    assert again.status_code == 202 and again.json()["missing"] == [last]
    assert v.put(last).status_code == 201
    assert v.judged() == "published"
    done = v.announce()
    assert done.status_code == 200 and done.json()["missing"] == [] and done.json()["state"] == "published"
    assert v.put(last).status_code == 200


def test_a_version_never_changes_its_content(stack):
    v = Version(stack).publish()
    other = Version(stack, {**v.files, "more": b"1"}, artifact=v.artifact)
    answer = other.announce()
    assert answer.status_code == 409 and v.digest in answer.json()["error"]
    assert v.call("GET").text == v.text
    assert v.announce(v.text + "\n").status_code == 409  # bytes, not meaning
    assert Version(stack, artifact=v.artifact, version="v2", kind="image").announce().status_code == 409


def test_the_manifest_is_kept_byte_for_byte(stack):
    v = Version(stack).publish()
    answer = v.call("GET", token="node")
    assert answer.text == v.text and digest(answer.content) == v.digest
    assert answer.headers["ETag"] == f'"{v.digest}"' and "immutable" in answer.headers["Cache-Control"]
    cached = v.call("GET", token="node", **{"If-None-Match": answer.headers["ETag"]})
    assert cached.status_code == 304 and cached.content == b""


def test_the_store_is_laid_out_like_a_node(stack):
    v = Version(stack).publish()
    top = v.on_disk()
    found = {str(p.relative_to(top / "files")): p.read_bytes() for p in (top / "files").rglob("*") if p.is_file()}
    assert found == v.files
    assert (top / "manifest.json").read_text() == v.text
    assert (top / "README.digest").read_text() == v.digest.removeprefix("sha256:") + "  manifest.json\n"  # as on a node
    assert v.parts() == []
    for p in [top, *top.rglob("*")]:
        assert stat.S_IMODE(p.stat().st_mode) == (0o555 if p.is_dir() else 0o444), p


def test_a_shard_that_is_not_what_it_says_is_not_kept(stack):
    v = Version(stack)
    v.announce()
    block = v.files["d/two"]
    shard = digest(block)
    wrong = v.put(shard, b"!" + block[1:])
    assert wrong.status_code == 422, wrong.text
    for size in (0, 1, MIB - 1, MIB + 1):
        assert v.put(shard, (block * 2)[:size]).status_code == 422
    assert shard in v.announce().json()["missing"]
    assert not [p for part in v.parts() for p in part.rglob("*") if p.is_file()]
    assert v.call("PUT", "/shards/" + digest(b"?"), b"?").status_code == 404  # no shard of the manifest
    assert v.call("PUT", "/shards/nonsense", b"?").status_code == 400


def test_what_a_published_version_has_is_not_sent_again(stack):
    v = Version(stack).publish()
    new = os.urandom(8)
    more = Version(stack, {**v.files, "new": new}, artifact=v.artifact, version="v2")
    answer = more.announce()
    assert answer.json()["missing"] == [digest(new)]
    assert more.put(digest(new)).status_code == 201
    assert more.judged() == "published"
    assert (more.on_disk() / "files" / "d" / "two").read_bytes() == v.files["d/two"]


def test_a_clone_is_hashed_and_what_is_bad_is_asked_for(stack):
    v = Version(stack).publish()
    file = v.on_disk() / "files" / "d" / "two"
    for damaged in (file, v.on_disk() / "files" / "a.bin"):
        damaged.chmod(0o644)
        with damaged.open("r+b") as f:
            f.write(b"!")
    g = os.urandom(8)
    more = Version(stack, {"f": v.files["d/two"], "g": g}, artifact=v.artifact, version="v2")
    assert more.announce().json()["missing"] == [digest(g)]
    more.put(digest(g))
    wait_until(lambda: more.state()["missing_shards"] == 1, "the bad shard asked for")
    assert more.announce().json()["missing"] == [digest(v.files["d/two"])]
    assert more.put(digest(v.files["d/two"])).status_code == 201
    assert more.judged() == "published"
    assert (more.on_disk() / "files" / "f").read_bytes() == v.files["d/two"]


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/etc/hostname")], ids=["pipe", "link"])
def test_what_is_no_file_any_more_is_bad_and_does_not_hold_the_gate_up(stack, make):
    v = Version(stack).publish()
    for damaged in (v.on_disk() / "files" / "d" / "two", v.on_disk() / "files" / "a.bin"):
        damaged.parent.chmod(0o755)
        damaged.unlink()
        make(damaged)
    more = Version(stack, {"f": v.files["d/two"]}, artifact=v.artifact, version="v2")
    assert more.announce().json()["missing"] == []
    wait_until(lambda: more.state()["missing_shards"] == 1, "the bad shard asked for")
    assert more.put(digest(v.files["d/two"])).status_code == 201
    assert more.judged() == "published"


def test_the_release_gate_rejects_what_is_not_the_file(stack):
    v = Version(stack)
    v.manifest["files"][0]["sha256"] = digest(b"another")
    v.text = json.dumps(v.manifest)
    for shard in v.announce().json()["missing"]:
        v.put(shard)
    assert v.judged() == "rejected"
    assert "a.bin" in v.state()["reason"] and "sha256" in v.state()["reason"]
    assert not v.on_disk().exists() and v.parts() == []
    assert v.call("GET", token="node").status_code == 404
    assert v.call("GET", "/files/a.bin", token="node").status_code == 404
    shard = next(iter(v.shards))
    assert v.put(shard).status_code == 409
    assert sorted(v.announce().json()["missing"]) == sorted(v.shards)  # begins anew


def test_two_publishers_at_once(stack):
    v = Version(stack, {f"f{i}": os.urandom(1000) for i in range(12)})

    def publisher(order):
        answer, _ = patiently(v.announce)
        assert answer.status_code in (200, 202), answer.text
        for shard in sorted(answer.json()["missing"], reverse=order):
            assert patiently(partial(v.put, shard))[0].status_code in (200, 201)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(publisher, [False, True, False, True]))
    assert v.judged() == "published"
    found = {p.name: p.read_bytes() for p in (v.on_disk() / "files").iterdir()}
    assert found == v.files and v.parts() == []


def test_bytes_by_range(stack):
    v = Version(stack).publish()
    whole = v.call("GET", "/files/a.bin", token="node")
    assert whole.status_code == 200 and whole.content == v.files["a.bin"]
    assert whole.headers["Accept-Ranges"] == "bytes"
    part = v.call("GET", "/files/a.bin", token="node", Range=f"bytes={MIB}-{MIB + 3}")
    assert part.status_code == 206 and part.content == v.files["a.bin"][MIB:MIB + 4]
    assert part.headers["Content-Range"] == f"bytes {MIB}-{MIB + 3}/{MIB + 20}"
    assert v.call("GET", "/files/a.bin", token="node", Range=f"bytes={MIB + 20}-").status_code == 416
    for path in ("/files/d/two", "/files/d%2Ftwo"):
        assert v.call("GET", path, token="node").content == v.files["d/two"]
    assert v.call("GET", "/files/d/empty", token="node").content == b""
    head = v.call("HEAD", "/files/a.bin", token="node")
    assert head.headers["Content-Length"] == str(MIB + 20)


@pytest.mark.parametrize("path", ["nope", "d", "d/", "", "../manifest.json", "%2e%2e/manifest.json", "d%2F..%2F..%2Fmanifest.json",
                                  "a.bin/x", "%00", "%ff", "a%0ab", "/etc/passwd", "..%5cx"])
def test_no_other_file_is_handed_out(stack, path):
    v = Version(stack).publish()
    answer = v.call("GET", "/files/" + path, token="node")
    assert answer.status_code in (400, 404), (answer.status_code, answer.text)
    assert stack.get(f"/_wb_bytes/8/{v.artifact}/versions/v1/manifest.json").status_code == 404


def test_names_of_files_that_need_care(stack):
    files = {n: n.encode() for n in ("with space", "percent%41", "plus+", "q?x#y", "ünï/çode", "quote\"'", "semi;", "back\\slash")}
    v = Version(stack, files).publish()
    for name, data in files.items():
        for safe in ("/", ""):
            got = v.call("GET", "/files/" + quote(name, safe=safe), token="node")
            assert got.status_code == 200 and got.content == data, (name, got.status_code)


def test_who_may_what(stack):
    v = Version(stack)
    for token in ("viewer", "worker", "submitter", "node"):
        assert v.call("PUT", "", v.text, token=token).status_code == 403
    v.announce()
    for token in ("viewer", "node"):
        assert v.call("PUT", "/shards/" + next(iter(v.shards)), b"", token=token).status_code == 403
        assert v.call("GET", token=token).status_code == 404  # not published
    assert v.call("GET").text == v.text  # its publisher sees it
    assert stack.call("GET", v.path, token=None).status_code == 401
