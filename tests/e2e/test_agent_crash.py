# SPDX-License-Identifier: Apache-2.0
"""weighbridge-agent killed, run twice at once, without space, and in which order it makes things durable: artifacts contract, sections 4
and 5."""
import os
import random
import re
import shutil
import signal
import subprocess

import pytest

from agent import MIB, Node, Origin, some_bytes
from conftest import HANG_S, wait_until
from test_agent import node, origin  # noqa: F401

FILE = "model/weights.bin"
FILES = {FILE: some_bytes(6 * MIB + 777), "b": some_bytes(MIB, 2), "empty": b""}
TOTAL = sum(map(len, FILES.values()))


def kill_points(n):
    """Runs that are killed after a random number of requests and a random moment more, then one that is let finish."""
    rng = random.Random(n)
    for i in range(n):
        yield i, rng.randrange(9), rng.random() * 0.03


def one_kill(folder, i, after, moment):
    node = Node(folder / str(i))
    with Origin() as o:
        url = o.serve(FILES)
        process = node.start("fetch", url)
        wait_until(lambda: len(o.requests) > after or process.poll() is not None, "requests", HANG_S)
        try:
            process.wait(moment)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait(HANG_S)
        assert node.versions() == [] or node.content() == FILES
        left = TOTAL if node.versions() else node.verified(FILES)
        o.requests.clear()
        o.bytes = 0
        done = node.fetch(url)
        assert done.status == 0, done
        assert node.content() == FILES
        assert o.bytes <= TOTAL - left, (o.bytes, TOTAL, left)
        assert node.parts() == []
    for path, _, _ in os.walk(folder / str(i)):
        os.chmod(path, 0o755)
    shutil.rmtree(folder / str(i))


def test_killed_at_random_points_it_goes_on_where_it_was(tmp_path):
    for point in kill_points(10):
        one_kill(tmp_path, *point)


@pytest.mark.long
def test_killed_at_200_random_points_it_goes_on_where_it_was(tmp_path):
    for point in kill_points(200):
        one_kill(tmp_path, *point)


# --- leftovers ---

def leave_part(node, origin, url, action="status", **options):
    """A pull that fails with one shard missing; its part."""
    origin.on(f"{FILE} {2 * MIB}-", action, times=4, **(options or {"status": 503}))
    done = node.fetch(url)
    assert done.status == 1, done
    origin.requests.clear()
    part = node.root / "llama" / ".tmp" / node.parts()[0]
    return part, missing(part)


def missing(part):
    """Where the shards begin that are not right in a part, as requests name them."""
    return sorted((f"/v1/files/{path}", i) for path, data in FILES.items() for i in range(0, len(data), MIB)
                  if (part / "files" / path).read_bytes()[i:i + MIB] != data[i:i + MIB])


def asked(origin):
    return sorted(r[:2] for r in origin.ranges())


def test_leftovers_are_hashed_and_length_proves_nothing(node, origin):
    """Rows 11, 27: what is damaged in a part is fetched again, alone."""
    url = origin.serve(FILES)
    part, lacks = leave_part(node, origin, url)
    with open(part / "files" / FILE, "r+b") as f:
        f.seek(5)
        f.write(b"damage")
    done = node.fetch(url)
    assert done.status == 0, done
    assert node.content() == FILES
    assert asked(origin) == sorted({*lacks, (f"/v1/files/{FILE}", 0)})


@pytest.mark.parametrize("journal", [None, b"", b"nonsense\n\0", b"weighbridge-journal 1 sha256:00 7\n0\n99999999\n"])
def test_the_journal_is_a_hint(node, origin, journal):
    """One that is missing, cut or wrong harms nothing."""
    url = origin.serve(FILES)
    part, lacks = leave_part(node, origin, url)
    (part / "journal").unlink()
    if journal is not None:
        (part / "journal").write_bytes(journal)
    assert node.status()["artifacts"][0]["parts"][0]["live"] is False
    assert node.fetch(url).status == 0
    assert node.content() == FILES
    assert asked(origin) == lacks


def test_leftovers_are_hashed_before_connecting(node, origin):
    """Row 31: a slow re-hash does not run into the bounds of a connection."""
    url = origin.serve(FILES)
    leave_part(node, origin, url)
    trace = run_traced(node, url, "openat2,connect,pread64,bind")
    if trace is None:
        pytest.skip("ptrace is not allowed here")
    reads = [i for i, line in enumerate(trace) if re.search(r"pread64\(\d+<[^>]*\.part/files/model", line)]
    connects = [i for i, line in enumerate(trace) if re.search(r"connect\(.*AF_INET", line)]
    assert len(connects) >= 2 # for the manifest, then for shards
    assert len([r for r in reads if connects[0] < r < connects[1]]) >= 6


def test_strangers_in_a_part_do_not_land(node, origin):
    url = origin.serve(FILES)
    part, _ = leave_part(node, origin, url)
    (part / "files" / "model" / "extra").write_bytes(b"x")
    (part / "files" / "other").mkdir()
    (part / "files" / "other" / "y").write_bytes(b"y")
    (part / "files" / "b").unlink()
    (part / "files" / "b").symlink_to("/etc/passwd")
    assert node.fetch(url).status == 0
    assert node.content() == FILES
    assert not (node.folder() / "files" / "other").exists()


def test_strangers_beside_the_files_of_a_part_do_not_land_and_lead_nowhere(node, origin, tmp_path):
    url = origin.serve(FILES)
    part, lacks = leave_part(node, origin, url)
    secret = tmp_path / "secret"
    secret.write_text("s")
    secret.chmod(0o600)
    (part / "link").symlink_to(secret)
    (part / "receipt.json").symlink_to(secret)
    (part / "journal").unlink()
    (part / "journal").symlink_to(secret)
    (part / "manifest.json").mkdir()
    (part / "README.digest").mkdir()
    (part / "README.digest" / "x").write_text("y")
    (part / "extra").write_text("x")
    os.mkfifo(part / "pipe")
    done = node.fetch(url)
    assert done.status == 0, done
    assert sorted(os.listdir(node.folder())) == ["README.digest", "files", "manifest.json", "receipt.json"]
    assert node.content() == FILES and asked(origin) == lacks
    assert secret.read_text() == "s" and secret.stat().st_mode & 0o777 == 0o600


def test_a_part_whose_files_are_a_link_is_begun_anew(node, origin, tmp_path):
    url = origin.serve(FILES)
    part, _ = leave_part(node, origin, url)
    shutil.rmtree(part / "files")
    (tmp_path / "elsewhere").mkdir()
    (part / "files").symlink_to(tmp_path / "elsewhere")
    assert node.fetch(url).status == 0
    assert node.content() == FILES and os.listdir(tmp_path / "elsewhere") == []


@pytest.mark.parametrize("path", [
    ".tmp/v9.00000000-0000-0000-0000-000000000000.part/journal", "versions/v9/manifest.json"])
def test_a_pipe_in_the_root_holds_nobody_up(node, origin, path):
    """Of another artifact: whoever looks through the root must not wait for its other end."""
    url = origin.serve(FILES)
    pipe = node.root / "other" / path
    (pipe.parent / "files").mkdir(parents=True)
    os.mkfifo(pipe)
    assert [a["artifact"] for a in node.status()["artifacts"]] == (["other"] if "versions" in path else [])
    assert node.fetch(url).status == 0
    assert node.content() == FILES


def test_a_part_that_was_about_to_land_is_taken_up(node, origin):
    """Killed after its files were made read-only."""
    url = origin.serve(FILES)
    part, lacks = leave_part(node, origin, url)
    (part / "journal").unlink()
    (part / "manifest.json").write_bytes(b"of an earlier try")
    for folder, _, files in os.walk(part, topdown=False):
        for name in files:
            os.chmod(os.path.join(folder, name), 0o444)
        os.chmod(folder, 0o555 if folder != str(part) else 0o755)
    assert node.fetch(url).status == 0
    assert node.content() == FILES
    assert asked(origin) == lacks


def test_a_version_whose_last_step_was_missed_is_finished(node, origin):
    url = origin.serve(FILES)
    node.fetch(url)
    node.folder().chmod(0o755)
    assert node.fetch(url).status == 0
    assert node.folder().stat().st_mode & 0o777 == 0o555


def test_what_is_missing_from_a_version_is_refused(node, origin):
    """Row 14: a version with a hole is not offered to be loaded."""
    url = origin.serve(FILES)
    node.fetch(url)
    (node.folder() / "files").chmod(0o755)
    (node.folder() / "files" / "b").unlink()
    for command in (["verify", "llama", "v1"], ["switch", "llama", "v1"], ["fetch", url]):
        assert node.run(*command).failure == (3, "task_fatal", "manifest_mismatch"), command
    assert not (node.root / "llama" / "current").exists()


def test_verify_finds_a_flipped_byte(node, origin):
    node.fetch(origin.serve(FILES))
    path = node.folder() / "files" / "b"
    path.chmod(0o644)
    with open(path, "r+b") as f:
        f.write(bytes([FILES["b"][0] ^ 1]))
    path.chmod(0o444)
    assert node.run("verify", "llama", "v1").failure == (3, "task_fatal", "shard_digest_mismatch")


# --- two at once ---

NO_LOCK = "int flock(int fd, int how) { (void)fd; (void)how; return 0; }\n"


@pytest.fixture(scope="module")
def no_lock(tmp_path_factory):
    """flock(2) as on file systems where it does nothing."""
    folder = tmp_path_factory.mktemp("lock")
    (folder / "lock.c").write_text(NO_LOCK)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(folder / "lock.so"), str(folder / "lock.c")], check=True)
    return {"LD_PRELOAD": str(folder / "lock.so"), "ASAN_OPTIONS": "verify_asan_link_order=0"}


@pytest.mark.parametrize("locks", [True, False])
def test_two_at_once_cost_bandwidth_not_data(node, origin, no_lock, locks):
    """Rows 1 and 12: even where locks do nothing."""
    env = {} if locks else no_lock
    url = origin.serve(FILES)
    origin.on(FILE, "held", times=-1)
    first = node.start("fetch", url, **env)
    wait_until(lambda: len(origin.ranges(FILE)) >= 4, "the first is within its shards")
    second = node.start("fetch", url, **env)
    wait_until(lambda: len(node.parts()) >= 2, "a part of its own")
    origin.let()
    assert (first.wait(HANG_S), second.wait(HANG_S)) == (0, 0)
    assert node.content() == FILES
    assert node.parts() == []
    assert node.run("verify", "llama", "v1").status == 0


def test_a_part_that_is_taken_away_from_a_writer_is_not_written_to(node, origin):
    url = origin.serve(FILES)
    origin.on("/files/", "held", times=-1)
    process = node.start("fetch", url)
    wait_until(lambda: len(origin.ranges()) == 4, "shards in flight")
    tmp = node.root / "llama" / ".tmp"
    taken = tmp / node.parts()[0]
    taken.rename(tmp / "elsewhere")
    origin.let()
    assert process.wait(HANG_S) == 0 # it began anew
    assert node.content() == FILES
    for path, data in FILES.items():
        assert (tmp / "elsewhere" / "files" / path).read_bytes() == bytes(len(data))


def test_a_folder_that_appears_under_the_versions_name_is_not_replaced(node, origin):
    """A plain rename would silently take the place of an empty folder."""
    url = origin.serve(FILES)
    origin.on(f"{FILE} {MIB}-", "held", times=-1)
    process = node.start("fetch", url)
    wait_until(lambda: origin.held.is_set(), "a shard in flight")
    node.folder().mkdir()
    origin.let()
    assert process.wait(HANG_S) == 3
    assert list(node.folder().iterdir()) == []


# --- space ---

def test_capacity_is_looked_at_before_anything_is_written(node, origin):
    """Rows 18 and 29."""
    done = node.fetch(origin.serve(FILES), WB_AGENT_CAPACITY_BYTES=str(3 * MIB))
    assert done.failure == (3, "task_fatal", "disk_full"), done
    assert origin.ranges() == [] and node.parts() == []


def test_a_limit_on_files_is_a_full_disk(node, origin):
    url = origin.serve(FILES)
    done = node.run("fetch", url, prefix=["prlimit", f"--fsize={2 * MIB}", "--"])
    assert done.failure[1:] == ("task_fatal", "disk_full") or done.status in (-signal.SIGXFSZ, 128 + signal.SIGXFSZ), done
    assert node.versions() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a tmpfs")
def test_a_full_disk_is_fatal_and_has_a_reason_of_its_own(node, origin):
    node.root.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(node.root)], check=False)
    if mounted.returncode != 0:
        pytest.skip("no tmpfs may be mounted here")
    try:
        done = node.fetch(origin.serve(FILES))
        assert done.failure == (3, "task_fatal", "disk_full"), done
        assert node.versions() == [] and node.parts() == []
        small = {"a": some_bytes(MIB)} # and without O_DIRECT all is as elsewhere
        assert node.fetch(origin.serve(small, version="v2")).status == 0
        assert node.content("v2") == small
    finally:
        subprocess.run(["umount", str(node.root)], check=True)


# --- an ordinary user ---

@pytest.mark.skipif(os.geteuid() != 0, reason="this is one already")
def test_an_ordinary_user_can_do_it_all(tmp_path, origin):
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    for folder in [tmp_path, *tmp_path.parents][:-1]:
        folder.chmod(folder.stat().st_mode | 0o755)
    node = Node(home)
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    url = origin.serve(FILES)
    origin.on(f"{FILE} {2 * MIB}-", "status", times=4, status=503)
    assert node.run("fetch", url, prefix=as_nobody).status == 1
    done = node.run("fetch", url, prefix=as_nobody)
    assert done.status == 0, done
    assert node.content() == FILES
    assert node.run("switch", "llama", "v1", prefix=as_nobody).status == 0
    for path, _, _ in os.walk(home):
        os.chmod(path, 0o755)


# --- order ---

def run_traced(node, url, calls):
    """Lines of strace of a fetch, or None where it is not allowed."""
    if not shutil.which("strace"):
        return None
    out = node.root.parent / "trace"
    done = node.run("fetch", url, prefix=["strace", "-f", "-y", "-qq", "-e", f"trace={calls}", "-o", str(out)],
                    ASAN_OPTIONS="detect_leaks=0")
    if done.status != 0 and "ptrace" in done.err:
        return None
    assert done.status == 0, done
    return out.read_text(errors="replace").splitlines()


def test_landing_is_durable_in_the_contracts_order(node, origin):
    """Row 22: data, journal, papers, folders, modes, rename, parents, top folder."""
    trace = run_traced(node, origin.serve(FILES), "fsync,fdatasync,unlinkat,renameat2,fchmod,fchmodat,mkdirat,pwrite64")
    if trace is None:
        pytest.skip("ptrace is not allowed here")

    def at(pattern, which=0):
        found = [i for i, line in enumerate(trace) if re.search(pattern, line) and "= -1" not in line]
        assert found, pattern
        return found[which]

    part = r"/\.tmp/v1\.[0-9a-f-]+\.part"
    written = at(r"pwrite64\(", -1)
    data = [at(rf"fsync\(\d+<[^>]*{part}/files/{name}>") for name in (FILE, "b", "empty")]
    journal = at(r'unlinkat\(.*"journal"')
    papers = [at(rf"fsync\(\d+<[^>]*{part}/{name}>") for name in ("manifest.json", "README.digest", "receipt.json")]
    folders = [at(rf"fsync\(\d+<[^>]*{part}{path}>") for path in ("/files/model", "/files", "")]
    modes = [at(rf"fchmod\(\d+<[^>]*{part}/files/{name}>, 0444") for name in (FILE, "b")]
    modes += [at(rf"fchmod\(\d+<[^>]*{part}/files/model>, 0555")]
    rename = at(r'renameat2\(.*"v1", RENAME_NOREPLACE')
    parents = [at(r"fsync\(\d+<[^>]*/llama/versions>", -1), at(r"fsync\(\d+<[^>]*/llama/\.tmp>", -1)]
    top = at(r"fchmod\(\d+<[^>]*/versions/v1>, 0555")
    for before, after in zip([[written], data, [journal], papers, folders, modes, [rename], parents],
                             [data, [journal], papers, folders, modes, [rename], parents, [top]]):
        assert max(before) < min(after), "\n".join(trace)
    assert not [line for line in trace[:rename] if re.search(rf"fchmod\(\d+<[^>]*{part}>, 0555", line)]


def test_a_shard_is_marked_only_after_its_data_was_synced(node, origin):
    trace = run_traced(node, origin.serve(FILES), "fdatasync,write,pwrite64")
    if trace is None:
        pytest.skip("ptrace is not allowed here")
    marks = [i for i, line in enumerate(trace) if re.search(r'write\(\d+<[^>]*/journal>, "\d', line)]
    synced = [i for i, line in enumerate(trace) if re.search(r"fdatasync\(\d+<[^>]*/files/", line)]
    assert marks and synced and max(synced) < marks[0]
