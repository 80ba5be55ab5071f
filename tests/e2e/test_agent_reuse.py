# SPDX-License-Identifier: Apache-2.0
"""What is here already is not fetched: other versions, and folders to be adopted. Artifacts contract, section 4."""
import os

import pytest

from agent import MIB, manifest_of, some_bytes
from test_agent import node, origin  # noqa: F401

FILE = "model/weights.bin"
OLD = {FILE: some_bytes(4 * MIB + 99), "config.json": b"{}"}
NEW = {"moved/weights.bin": OLD[FILE][:MIB] + some_bytes(MIB, 7) + OLD[FILE][2 * MIB:], "config.json": b"{}"}


def test_shards_of_another_version_are_cloned_and_counted(node, origin):
    assert node.fetch(origin.serve(OLD)).status == 0
    origin.requests.clear()
    assert node.fetch(origin.serve(NEW, version="v2")).status == 0
    assert node.content("v2") == NEW and node.content("v1") == OLD
    assert [(r[1], r[2]) for r in origin.ranges()] == [(MIB, 2 * MIB - 1)]
    receipt = node.receipt("v2")
    assert (receipt["bytes_fetched"], receipt["bytes_avoided"]) == (MIB, 3 * MIB + 99 + 2)


def test_a_bad_shard_of_another_version_is_fetched_and_harms_nothing(node, origin):
    """Row 27: never fatal."""
    node.fetch(origin.serve(OLD))
    path = node.folder() / "files" / FILE
    path.chmod(0o644)
    with open(path, "r+b") as f:
        f.seek(3 * MIB)
        f.write(b"damage")
    path.chmod(0o444)
    origin.requests.clear()
    assert node.fetch(origin.serve(NEW, version="v2")).status == 0
    assert node.content("v2") == NEW
    assert sorted(r[1] for r in origin.ranges()) == [MIB, 3 * MIB]


def put(folder, files):
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


@pytest.mark.parametrize("move", [False, True])
def test_a_folder_is_adopted_without_a_network(node, tmp_path, move):
    image = tmp_path / "image"
    put(image / "files", OLD)
    (image / "manifest.json").write_bytes(manifest_of(OLD))
    done = node.run("adopt", *(["--move"] if move else []), image)
    assert done.status == 0, done
    assert node.content() == OLD
    receipt = node.receipt()
    assert (receipt["bytes_fetched"], receipt["bytes_avoided"]) == (0, sum(map(len, OLD.values())))
    assert (image / "files" / FILE).exists() is not move
    assert node.run("verify", "llama", "v1").status == 0


@pytest.mark.parametrize("move", [False, True])
def test_what_is_wrong_in_a_folder_is_fetched(node, origin, tmp_path, move):
    url = origin.serve(OLD)
    put(tmp_path / "disk", {FILE: OLD[FILE][:MIB] + b"x" * MIB + OLD[FILE][2 * MIB:], "stranger": b"?"})
    done = node.run("adopt", *(["--move"] if move else []), tmp_path / "disk", url)
    assert done.status == 0, done
    assert node.content() == OLD
    assert sorted(r[:2] for r in origin.ranges()) == [("/v1/files/config.json", 0), (f"/v1/files/{FILE}", MIB)]
    assert node.receipt()["bytes_avoided"] == 3 * MIB + 99
    assert (tmp_path / "disk" / "stranger").exists()


def test_without_a_url_what_is_missing_stays_missing(node, tmp_path):
    put(tmp_path / "disk", {"config.json": b"{}"})
    (tmp_path / "m.json").write_bytes(manifest_of(OLD))
    done = node.run("adopt", "--manifest", tmp_path / "m.json", tmp_path / "disk")
    assert done.failure == (3, "task_fatal", "artifact_missing"), done
    assert node.versions() == []


def test_links_in_a_folder_lead_nowhere(node, tmp_path):
    """A link in an image must not bring in a file of the host, nor a second name let somebody write into a version."""
    image = tmp_path / "image"
    put(image / "files", {FILE: OLD[FILE]})
    (tmp_path / "secret").write_bytes(b"{}")
    (image / "files" / "config.json").symlink_to(tmp_path / "secret")
    (image / "manifest.json").write_bytes(manifest_of(OLD))
    assert node.run("adopt", image).failure == (3, "task_fatal", "artifact_missing")
    (image / "files" / "config.json").unlink()
    (image / "files" / "config.json").write_bytes(b"{}")
    os.link(image / "files" / FILE, tmp_path / "second name")
    assert node.run("adopt", "--move", image).status == 0
    assert (tmp_path / "second name").stat().st_nlink == 2
    assert node.content() == OLD


def test_a_pipe_in_a_folder_is_no_file_and_nobody_waits_for_it(node, origin, tmp_path):
    url = origin.serve(OLD)
    put(tmp_path / "disk", {FILE: OLD[FILE]})
    os.mkfifo(tmp_path / "disk" / "config.json")
    assert node.run("adopt", tmp_path / "disk", url).status == 0
    assert node.content() == OLD
    os.mkfifo(tmp_path / "m.json")
    done = node.run("adopt", "--manifest", tmp_path / "m.json", tmp_path / "disk")
    assert done.failure == (3, "task_fatal", "manifest_mismatch"), done
