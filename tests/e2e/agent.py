# SPDX-License-Identifier: Apache-2.0
"""weighbridge-agent as a command, beside a scripted origin; no other program of the stack is needed."""
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

from conftest import HANG_S, ROOT

sys.path.insert(0, str(ROOT / "tests" / "fake"))
from fake_origin import MIB, Origin, digest, manifest_of  # noqa: E402,F401

AGENT = str(Path(os.environ.get("WB_DEV_BUILD", ROOT / "build")) / "weighbridge-agent")
QUICK = {"WB_AGENT_BACKOFF_MS": "1"}


class Done:
    def __init__(self, process):
        self.status, self.out, self.err = process.returncode, process.stdout, process.stderr

    def __repr__(self):
        return f"status {self.status}\n{self.out}{self.err}"

    def said(self, key):
        """A value of the line of a failure."""
        found = re.search(rf'\b{key}=("(?:[^"\\]|\\.)*"|\S+)', self.err)
        return found[1].strip('"') if found else None

    @property
    def failure(self):
        return self.status, self.said("class"), self.said("reason")


class Node:
    def __init__(self, folder):
        self.root = Path(folder) / "root"
        Path(folder).mkdir(exist_ok=True)
        self.env = {**{k: v for k, v in os.environ.items() if not k.startswith("WB_")}, "WB_CONFIG": "/dev/null", **QUICK}

    def args(self, command, *args):
        return [AGENT, command, "--root", str(self.root), *map(str, args)]

    def run(self, command, *args, prefix=(), **env):
        return Done(subprocess.run([*prefix, *self.args(command, *args)], env={**self.env, **env}, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=HANG_S, check=False))

    def start(self, command, *args, **env):
        return subprocess.Popen(self.args(command, *args), env={**self.env, **env}, stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def fetch(self, url, *args, **env):
        return self.run("fetch", *args, url, **env)

    def folder(self, version="v1", artifact="llama"):
        return self.root / artifact / "versions" / version

    def content(self, version="v1", artifact="llama"):
        files = self.folder(version, artifact) / "files"
        return {str(p.relative_to(files)): p.read_bytes() for p in files.rglob("*") if not p.is_dir()}

    def receipt(self, version="v1"):
        return json.loads((self.folder(version) / "receipt.json").read_text())

    def status(self):
        done = self.run("status")
        assert done.status == 0, done
        return json.loads(done.out)

    def parts(self, artifact="llama"):
        tmp = self.root / artifact / ".tmp"
        return sorted(p.name for p in tmp.iterdir()) if tmp.exists() else []

    def versions(self, artifact="llama"):
        folder = self.root / artifact / "versions"
        return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


    def verified(self, files, artifact="llama"):
        """Bytes of shards of {path: content} that are right in what pulls left."""
        good = 0
        for part in self.parts(artifact):
            for path, data in files.items():
                there = self.root / artifact / ".tmp" / part / "files" / path
                content = there.read_bytes() if there.exists() else b""
                good += sum(len(data[i:i + MIB]) for i in range(0, len(data), MIB)
                            if content[i:i + MIB] == data[i:i + MIB] and any(data[i:i + MIB]))
        return good


def some_bytes(size, seed=1):
    return random.Random(seed).randbytes(size)


def some_files(shards=4, seed=1):
    """A few small files beside one of several shards, the last one short."""
    return {"model/weights.bin": some_bytes((shards - 1) * MIB + 4097, seed), "config.json": b"{}", "empty": b"",
            "a name%2f with #?.txt": b"x" * 5000}
