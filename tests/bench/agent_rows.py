# SPDX-License-Identifier: Apache-2.0
"""What is measured of weighbridge-agent on one node: an nginx of its own as the origin, on the same machine, and what else could be used
to the same end. Durable bytes: from the start of the command until it has ended and everything is synced."""
import hashlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from agent_run_rows import AgentRunRows
from stack import ROOT, say

MIB = 1 << 20
SIZE, FILES = 1024 * MIB, 4
NGINX = """daemon off; worker_processes 1; pid %(at)s/pid; error_log %(at)s/error.log;
events { worker_connections 256; }
http {
    access_log off; sendfile on; tcp_nopush on; sendfile_max_chunk 2m; client_body_temp_path %(at)s/t1; proxy_temp_path %(at)s/t2;
    fastcgi_temp_path %(at)s/t3; uwsgi_temp_path %(at)s/t4; scgi_temp_path %(at)s/t5;
    server {
        listen 127.0.0.1:%(port)s;
        location ~ ^/(?<v>[a-z]+)$ { alias %(at)s/$v.json; }
        location / { root %(at)s/www; }
    }
}
"""


def shards_of(path, shard):
    found, whole = [], hashlib.sha256()
    with open(path, "rb") as f:
        while data := f.read(shard):
            found.append("sha256:" + hashlib.sha256(data).hexdigest())
            whole.update(data)
    return found, whole.hexdigest()


class Origin:
    """Versions of files that lie in www/<version>/files."""

    def __init__(self, folder):
        self.folder = folder
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        (folder / "nginx.conf").write_text(NGINX % {"at": folder, "port": self.port}, encoding="utf-8")
        folder.chmod(0o755)
        self.process = subprocess.Popen([shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin"), "-c", str(folder / "nginx.conf")])
        self.wait()

    def wait(self):
        end = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def url(self, version, name=""):
        return f"http://127.0.0.1:{self.port}/{version}" + (f"/files/{name}" if name else "")

    def serve(self, version, files, shard):
        """files: {name: a file, of which there may be several under other names}."""
        at = self.folder / "www" / version / "files"
        at.mkdir(parents=True)
        hashed, entries, total = {}, [], 0
        for name, path in sorted(files.items()):
            os.link(path, at / name)
            if path not in hashed:
                hashed[path] = shards_of(path, shard)
            shards, whole = hashed[path]
            total += path.stat().st_size
            entries.append({"path": name, "size": path.stat().st_size, "mode": "0644", "sha256": whole, "shards": shards})
        (self.folder / f"{version}.json").write_text(json.dumps(
            {"schema": 1, "artifact": "bench", "version": version, "kind": "weights", "total_bytes": total,
             "shard_bytes": shard, "files": entries, "annotations": {}}), encoding="utf-8")
        return total

    def close(self):
        self.process.terminate()
        self.process.wait()


def timed(*commands):
    """Seconds of commands one after the other."""
    begun = time.perf_counter()
    for command in commands:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def at_once(jobs):
    begun = time.perf_counter()
    threads = [threading.Thread(target=job) for job in jobs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return time.perf_counter() - begun


class AgentRows(AgentRunRows):
    """Rows of run.py's Bench: rate() and note() are its."""

    def agent(self):
        folder = Path(tempfile.mkdtemp(prefix="wb-bench-agent-", dir=os.environ.get("TMPDIR", "/tmp")))
        origin = Origin(folder)
        try:
            self.agent_speed(folder, origin)
            manifest = (folder / "v.json").read_bytes()
            self.agent_run(folder, origin.url("v"), hashlib.sha256(manifest).hexdigest())
            self.agent_memory(folder, origin)
        finally:
            origin.close()
            subprocess.run(["chmod", "-R", "u+w", str(folder)], check=False)
            shutil.rmtree(folder, ignore_errors=True)

    def agent_command(self, root, url):
        return [str(Path(os.environ.get("WB_DEV_BUILD", ROOT / "build")) / "weighbridge-agent"), "fetch", "--config", "/dev/null",
                "--root", str(root), url]

    def agent_speed(self, folder, origin):
        files = {}
        for i in range(FILES):
            files[f"f{i}"] = folder / f"f{i}"
            files[f"f{i}"].write_bytes(os.urandom(SIZE // FILES))
        origin.serve("v", files, 16 * MIB)
        urls = [origin.url("v", name) for name in files]
        limits, curls, arias = [], [], []
        for i in range(self.options.rounds):
            root, out = folder / f"root{i}", folder / f"out{i}"
            out.mkdir()
            us = timed(self.agent_command(root, origin.url("v")))
            outs = [str(out / n) for n in files]
            curl = timed(["curl", "-sf", *[w for u, o in zip(urls, outs) for w in ("-o", o, u)]],
                         ["openssl", "dgst", "-sha256", *outs], ["sync", *outs])
            shutil.rmtree(out)
            limits.append(us and self.agent_limit(folder, urls) / (SIZE / us))
            curls.append(curl / us)
            if shutil.which("aria2c"):
                arias.append(self.agent_aria(folder, out, origin, files) / us)
            self.agent_drop(root)
        self.rate("agent: durable bytes/s / min(disk, sha256 x cores, source)", [1 / x for x in limits], 0.7, 0.95)
        self.rate("agent: vs curl, openssl dgst, sync", curls, 1.5, 3, unit="x")
        if arias:
            self.rate("agent: vs aria2c with checksums, sync", arias, 1.2, 2, unit="x")

    def agent_drop(self, root):
        subprocess.run(["chmod", "-R", "u+w", str(root)], check=True)
        shutil.rmtree(root)

    def agent_aria(self, folder, out, origin, files):
        lines = []
        for name, path in files.items():
            with open(path, "rb") as f:
                whole = hashlib.file_digest(f, "sha256").hexdigest()
            lines.append(f"{origin.url('v', name)}\n out={name}\n checksum=sha-256={whole}\n")
        (folder / "list").write_text("".join(lines), encoding="utf-8")
        took = timed(["aria2c", "-q", "--no-conf", "-j4", "-x4", "-s4", "--file-allocation=falloc", "-d", str(out), "-i", str(folder / "list")],
                     ["sync", *[str(out / n) for n in files]])
        shutil.rmtree(out)
        return took

    def agent_limit(self, folder, urls):
        """Bytes per second of what is slowest, each alone: two writers past the page cache, hashing on all cores, the source."""
        half = SIZE // 2 // (4 * MIB)

        def write(i):
            return lambda: subprocess.run(["dd", "if=/dev/zero", f"of={folder}/dd{i}", "bs=4M", f"count={half}", "oflag=direct",
                                           "conv=fdatasync"], check=True, stderr=subprocess.DEVNULL)

        def digest():
            data = bytes(MIB)
            h = hashlib.sha256()
            for _ in range(SIZE // cores // MIB):
                h.update(data)  # lets other threads run

        def get(url):
            return lambda: subprocess.run(["curl", "-sf", "-o", "/dev/null", url], check=True)
        cores = os.cpu_count()
        disk, sha, source = at_once([write(0), write(1)]), at_once([digest] * cores), at_once([get(u) for u in urls])
        say(f"  disk {SIZE / disk / 1e6:.0f} MB/s, sha256 {SIZE / sha / 1e6:.0f} MB/s, source {SIZE / source / 1e6:.0f} MB/s")
        for i in range(2):
            (folder / f"dd{i}").unlink()
        return SIZE / max(disk, sha, source)

    def agent_memory(self, folder, origin):
        """8 GB in shards of 1 MiB, 8,192 of them: the same file under 32 names."""
        total = origin.serve("large", {f"f{i}": folder / "f0" for i in range(32)}, MIB)
        root = folder / "root"
        process = subprocess.Popen(self.agent_command(root, origin.url("large")), stdout=subprocess.DEVNULL)
        most = 0  # of the process itself: what wait4() tells counts this one's, before exec, too
        while process.poll() is None:
            try:
                status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
            except OSError:
                break
            most = max([most, *[int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")]])
            time.sleep(0.02)
        if process.wait() != 0:
            raise SystemExit("agent: the large artifact was not fetched")
        self.rate(f"agent: memory, {total / 1e9:.1f} GB, {total // MIB} shards", [most / 1024], 64, 24, unit=" MB", higher=False)
        self.agent_drop(root)
