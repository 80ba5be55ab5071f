# SPDX-License-Identifier: Apache-2.0
"""weighbridge-agent on one node: artifacts contract, section 4."""
import os
import stat

import pytest

from agent import MIB, Node, Origin, digest, manifest_of, some_bytes, some_files


@pytest.fixture
def node(tmp_path):
    yield Node(tmp_path)
    for folder, _, _ in os.walk(tmp_path): # pytest cannot remove read-only folders
        os.chmod(folder, 0o755)


@pytest.fixture
def origin():
    with Origin() as o:
        yield o


def test_fetch_lands_just_what_the_manifest_says(node, origin):
    files = some_files()
    url = origin.serve(files, executable=("config.json",))
    done = node.fetch(url)
    assert done.status == 0, done
    assert node.content() == files
    assert node.parts() == []
    folder = node.folder()
    manifest = manifest_of(files, executable=("config.json",))
    assert (folder / "manifest.json").read_bytes() == manifest
    assert (folder / "README.digest").read_text() == f"{digest(manifest)}  manifest.json\n"
    receipt = node.receipt()
    total = sum(map(len, files.values()))
    assert receipt["digest"] == "sha256:" + digest(manifest)
    assert (receipt["total_bytes"], receipt["bytes_fetched"], receipt["bytes_avoided"]) == (total, total, 0)
    assert [s["bytes"] for s in receipt["per_source"]] == [total]


def test_a_landed_version_is_read_only(node, origin):
    node.fetch(origin.serve(some_files(), executable=("config.json",)))
    for path in [node.folder(), *node.folder().rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o555 if path.is_dir() or path.name == "config.json" else 0o444), path


def test_one_range_request_per_shard(node, origin):
    files = some_files()
    node.fetch(origin.serve(files))
    size = len(files["model/weights.bin"])
    assert sorted(r[1:] for r in origin.ranges("weights")) == [
        (at, min(at + MIB, size) - 1) for at in range(0, size, MIB)]


def test_a_second_fetch_has_nothing_to_do(node, origin):
    url = origin.serve(some_files())
    node.fetch(url)
    asked = len(origin.requests)
    done = node.fetch(url)
    assert done.status == 0 and "already" in done.out
    assert len(origin.requests) == asked + 1 # the manifest


def test_another_manifest_under_the_same_version_is_refused(node, origin):
    node.fetch(origin.serve(some_files()))
    before = node.content()
    done = node.fetch(origin.serve(some_files(seed=2)))
    assert done.failure == (3, "task_fatal", "manifest_mismatch"), done
    assert node.content() == before


def test_verify_switch_and_status(node, origin):
    node.fetch(origin.serve(some_files()))
    assert node.run("verify", "llama", "v1").status == 0
    assert node.run("switch", "llama", "v1").status == 0
    assert os.readlink(node.root / "llama" / "current") == "versions/v1"
    artifact = node.status()["artifacts"][0]
    assert (artifact["artifact"], artifact["current"], artifact["parts"]) == ("llama", "v1", [])
    assert [v["version"] for v in artifact["versions"]] == ["v1"]
    assert node.run("switch", "llama", "v2").failure == (3, "task_fatal", "artifact_missing")


@pytest.mark.parametrize("args", [(), ("fetch",), ("fetch", "ftp://x/y"), ("fetch", "http://u@127.0.0.1/x"), ("dance",),
                                  ("verify", "llama"), ("verify", "../x", "v1"), ("fetch", "--colour", "https://x")])
def test_wrong_arguments_end_with_2(node, args):
    done = node.run(*args) if args else node.run("")
    assert done.status == 2, done


def test_zeros_that_lie_in_holes_are_there_already(node, origin):
    files = {"zeros": bytes(3 * MIB), "tail": some_bytes(100)}
    assert node.fetch(origin.serve(files)).status == 0
    assert node.content() == files
    assert origin.ranges("zeros") == []
