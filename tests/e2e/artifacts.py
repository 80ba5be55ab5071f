# SPDX-License-Identifier: Apache-2.0
"""Small artifacts for the tests: made, announced, uploaded."""
import hashlib
import json
import os
import shutil
import uuid

import requests

from conftest import HANG_S, wait_until

MIB = 1 << 20
JSON = {"Content-Type": "application/json"}


def fresh_files():
    """Content that no other test has published: three files, two shards, one of them twice."""
    block = os.urandom(32) * (MIB // 32)
    return {"a.bin": block + block[:20], "d/empty": b"", "d/two": block}


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def empty_store(stack):
    """No artifacts and no nodes. What lies on the disk goes too: a version that is there already is judged by what it has."""
    stack.sql("TRUNCATE artifact, node CASCADE")
    for folder in (stack.var / "store").iterdir():
        if folder.name.startswith("."):
            continue
        for top, _, _ in os.walk(folder):
            os.chmod(top, 0o755)
        shutil.rmtree(folder)


class Version:
    """A version of an artifact of its own, unless it is named."""

    def __init__(self, stack, files=None, artifact=None, version="v1", urls=None, **manifest):
        self.stack = stack
        self.files = fresh_files() if files is None else files
        self.artifact = artifact or "t-" + uuid.uuid4().hex[:12]
        self.version = version
        self.path = f"/api/v1/artifacts/{self.artifact}/versions/{version}"
        self.shards = {}
        listed = []
        for path, data in sorted(self.files.items(), key=lambda f: f[0].encode()):
            cut = [data[i:i + MIB] for i in range(0, len(data), MIB)]
            self.shards |= {digest(c): c for c in cut}
            listed.append({"path": path, "size": len(data), "mode": "0644", "sha256": digest(data),
                           "shards": [digest(c) for c in cut], **({"urls": urls[path]} if urls and path in urls else {})})
        self.manifest = {"schema": 1, "artifact": self.artifact, "version": version, "kind": "weights",
                         "total_bytes": sum(map(len, self.files.values())), "shard_bytes": MIB, "files": listed,
                         "annotations": {}, **manifest}
        self.text = json.dumps(self.manifest, indent=1)  # not how anybody else would print it
        self.digest = digest(self.text.encode())

    def call(self, method, path="", body=None, token="publisher", **headers):
        return requests.request(method, self.stack.url + self.path + path, data=body, timeout=HANG_S, headers={
            "Authorization": "Bearer " + self.stack.env[f"WB_{token.upper()}_TOKEN"], **headers})

    def announce(self, text=None):
        return self.call("PUT", "", self.text if text is None else text)

    def put(self, shard, data=None):
        return self.call("PUT", "/shards/" + shard, self.shards[shard] if data is None else data)

    def state(self):
        answer = self.call("GET", "?state", token="viewer")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def judged(self):
        """Its state once the release gate has spoken."""
        return wait_until(lambda: (s := self.state()["state"]) not in ("uploading", "verifying") and s, "a verdict")

    def publish(self):
        answer = self.announce()
        assert answer.status_code == 202, answer.text
        for shard in answer.json()["missing"]:
            assert self.put(shard).status_code == 201
        assert self.judged() == "published", self.state()
        return self

    def on_disk(self):
        return self.stack.var / "store" / self.artifact / "versions" / self.version

    def parts(self):
        return sorted((self.stack.var / "store" / self.artifact / ".tmp").glob("*.part"))
