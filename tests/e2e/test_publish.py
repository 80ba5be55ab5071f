# SPDX-License-Identifier: Apache-2.0
"""`weighbridge-agent publish` and `import`, against the real store, and `fetch` of what they published: artifacts contract,
sections 3 and 4, "Command lines"."""
import hashlib
import os
import shutil
import signal
import subprocess
import uuid
from pathlib import Path

import pytest

from conftest import HANG_S, wait_until
from program import binary

MIB = 1 << 20


class Site:
    def __init__(self, stack, folder):
        self.stack, self.folder = stack, folder
        self.source = folder / "source"
        self.source.mkdir()
        self.tokens = {}
        for role in ("publisher", "node", "viewer"):
            self.tokens[role] = folder / role
            self.tokens[role].write_text(stack.env[f"WB_{role.upper()}_TOKEN"] + "\n")
        self.artifact = "a" + uuid.uuid4().hex[:12]

    def command(self, *words, version="v1", url=None, token="publisher", **options):
        more = [w for key, value in options.items() for w in (f"--{key.replace('_', '-')}", str(value))]
        return [binary(self.stack, "weighbridge-agent"), words[0], "--url", url or self.stack.env["WB_URL"], "--token-file",
                str(self.tokens[token]), "--artifact", self.artifact, "--version", version, *more, *map(str, words[1:])]

    def run(self, *words, **kw):
        environ = {k: v for k, v in os.environ.items() if not k.startswith("WB_")}
        return subprocess.run(self.command(*words, **kw), capture_output=True, text=True, timeout=HANG_S, check=False, env=environ)

    def publish(self, *words, **kw):
        done = self.run(*(words or ("publish", self.source)), **kw)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def fetch(self, version="v1"):
        """Lands it on a node of its own: the files, by path."""
        root = self.folder / "depot"
        url = f"{self.stack.env['WB_URL']}/api/v1/artifacts/{self.artifact}/versions/{version}"
        done = subprocess.run([binary(self.stack, "weighbridge-agent"), "fetch", "--root", str(root), "--token-file",
                               str(self.tokens["node"]), url], capture_output=True, text=True, timeout=HANG_S, check=False)
        assert done.returncode == 0, done.stderr
        return files_below(root / self.artifact / "versions" / version / "files")


def files_below(top):
    return {str(p.relative_to(top)): p.read_bytes() for p in sorted(top.rglob("*")) if p.is_file()}


@pytest.fixture
def site(stack, tmp_path):
    s = Site(stack, tmp_path)
    yield s
    for p in tmp_path.rglob("*"):
        if p.is_dir() and not p.is_symlink():
            p.chmod(0o755)


def fill(folder):
    (folder / "sub").mkdir()
    (folder / "config.json").write_text('{"layers": 2}')
    (folder / "sub" / "weights").write_bytes(os.urandom(2 * MIB + 17))
    (folder / "empty").touch()
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o755)


def test_what_is_published_is_what_a_node_lands(site):
    fill(site.source)
    told = site.publish(shard_bytes=MIB)
    assert f"{site.artifact}@v1 sha256:" in told and " published: " in told
    assert site.fetch() == files_below(site.source)
    landed = site.folder / "depot" / site.artifact / "versions" / "v1" / "files"
    assert os.access(landed / "run", os.X_OK) and not (landed / "config.json").stat().st_mode & 0o111


def test_publishing_again_sends_nothing(site):
    fill(site.source)
    site.publish()
    assert " 0 sent," in site.publish()


def test_other_bytes_under_the_same_version_are_a_conflict_that_says_so(site):
    fill(site.source)
    site.publish()
    (site.source / "config.json").write_text("{}")
    done = site.run("publish", site.source)
    assert done.returncode == 1 and "409" in done.stderr and "class=" in done.stderr
    assert " sent," in site.publish(version="v2")  # what v1 has is not sent again


def test_a_killed_publisher_goes_on_where_it_was(site):
    """kill -9 at any moment: what the store has got is not sent again."""
    (site.source / "weights").write_bytes(os.urandom(24 * MIB))
    environ = {k: v for k, v in os.environ.items() if not k.startswith("WB_")}
    first = subprocess.Popen(site.command("publish", site.source, shard_bytes=MIB), env=environ, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    state = f"/api/v1/artifacts/{site.artifact}/versions/v1?state"

    def some_came():
        answer = site.stack.get(state, token="publisher")
        return first.poll() is not None or (answer.status_code == 200 and answer.json()["missing_shards"] < 24)
    wait_until(some_came, "a shard in the store")
    if first.poll() is None:
        first.send_signal(signal.SIGKILL)
    first.wait(HANG_S)
    told = site.publish(shard_bytes=MIB)
    assert " 0 of 24 shards there already" not in told
    assert site.fetch() == files_below(site.source)


@pytest.mark.parametrize("spoil, says", [
    (lambda s: (s / "link").symlink_to("/etc/passwd"), "link: a symbolic link"),
    (lambda s: os.mkfifo(s / "pipe"), "pipe: no plain file"),
    (lambda s: shutil.rmtree(s), "No such file"),
    (lambda s: None, "no file in it"),
])
def test_what_cannot_be_published_is_told_before_anything_is_sent(site, spoil, says):
    spoil(site.source)
    done = site.run("publish", site.source)
    assert done.returncode == 3 and says in done.stderr and done.stderr.count("\n") == 1
    assert site.stack.get(f"/api/v1/artifacts/{site.artifact}/versions/v1?state", token="publisher").status_code == 404


def test_usage_is_2_and_a_refusal_says_why(site):
    fill(site.source)
    assert site.run("publish", site.source, shard_bytes=5).returncode == 2
    assert site.run("publish", site.source, version="V 1").returncode == 2
    for url in ("http://192.0.2.1/", "http://localhost.example/", "http://127.0.0.1.example", "ftp://x/", "http://a@localhost/"):
        assert site.run("publish", site.source, url=url).returncode == 2, url  # no token over plain http
    assert site.run("import", "tar", site.source).returncode == 2
    done = site.run("publish", site.source, token="viewer")
    assert done.returncode == 3 and "403" in done.stderr
    assert site.tokens["viewer"].read_text().strip() not in done.stderr


def hub(site, revisions=("abc",)):
    """A model as Hugging Face's cache has it: blobs by their hash, snapshots of links."""
    top = site.source / "models--org--name"
    (top / "blobs").mkdir(parents=True)
    for revision in revisions:
        data = os.urandom(1000)
        blob = top / "blobs" / hashlib.sha256(data).hexdigest()
        blob.write_bytes(data)
        (top / "snapshots" / revision).mkdir(parents=True)
        (top / "snapshots" / revision / "model.safetensors").symlink_to(f"../../blobs/{blob.name}")
    return top


def test_a_model_of_a_hub_cache_is_imported_by_its_snapshot(site):
    top = hub(site, ("abc", "def"))
    done = site.run("import", "hf", top)
    assert done.returncode == 3 and "--revision" in done.stderr
    (top / "refs").mkdir()
    (top / "refs" / "main").write_text("def\n")
    site.publish("import", "hf", top)
    assert site.fetch() == files_below(top / "snapshots" / "def")
    site.publish("import", "hf", top, version="v2", revision="abc")
    assert site.fetch("v2") == files_below(top / "snapshots" / "abc")
    site.publish("import", "hf", top / "snapshots" / "abc", version="v3")
    assert site.fetch("v3") == site.fetch("v2")


def test_a_link_that_leads_out_of_a_hub_cache_is_refused(site):
    top = hub(site)
    (top / "snapshots" / "abc" / "evil").symlink_to("/etc/passwd")
    done = site.run("import", "hf", top)
    assert done.returncode == 3 and "evil: a link that leads outside" in done.stderr


def test_an_oci_layout_is_imported_and_its_blobs_held_against_their_names(site):
    blobs = site.source / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    data = os.urandom(500)
    (blobs / hashlib.sha256(data).hexdigest()).write_bytes(data)
    done = site.run("import", "oci", site.source)
    assert done.returncode == 3 and "no OCI image layout" in done.stderr
    (site.source / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (site.source / "index.json").write_text('{"schemaVersion": 2, "manifests": []}')
    site.publish("import", "oci", site.source)
    assert site.stack.get(f"/api/v1/artifacts/{site.artifact}/versions/v1?state", token="publisher").json()["kind"] == "image"
    assert site.fetch() == files_below(site.source)
    (blobs / ("0" * 64)).write_bytes(b"something else")
    done = site.run("import", "oci", site.source, version="v2")
    assert done.returncode == 3 and "the blob's sha256 is not its name" in done.stderr
