# SPDX-License-Identifier: Apache-2.0
"""weighbridge-agent run beside the real web server and the handler: artifacts contract, sections 3 and 4."""
import os
import signal
import socket
import time

import pytest

from agent_daemon import NODE, Daemon, Gate, assign, assignment, awaits, end_agents
from artifacts import MIB, Version
from conftest import wait_until

SHARDS = 6


def some_files():
    return {"a/weights": os.urandom((SHARDS - 1) * MIB + 77), "config.json": os.urandom(9), "empty": b""}


def some_version(stack, **kw):
    return Version(stack, files=some_files(), **kw).publish()


@pytest.fixture
def site(stack):
    stack.sql("TRUNCATE node CASCADE")
    yield stack
    end_agents()


@pytest.fixture
def gate(site):
    made = Gate(site)
    yield made
    made.close()


@pytest.fixture
def daemon(site, gate, tmp_path):
    made = Daemon(site, tmp_path / "node", gate.url).up()
    made.says("registered")
    yield made
    gate.let()
    made.down()


# --- a pull ---

def test_an_assignment_lands_and_is_seen_steadily_meanwhile(site, gate, daemon):
    v = some_version(site)
    key = f"{v.artifact}@{v.version}:node"
    number = assign(site, v)
    total = v.manifest["total_bytes"]
    wait_until(lambda: site.entry(key), "the copy")
    seen = []
    for n in range(1, SHARDS + 1):
        gate.let(1)
        least = (n - 1) * MIB if n > 1 else 0 # the small ones may have come first
        while not seen or seen[-1] < least:
            shown = site.entry(key)
            assert shown is not None, "it must be there in every poll while it runs"
            assert shown["taskType"] == "staging" and shown["nodeName"] == "node" and shown["totalBytes"] == total
            seen.append(shown.get("currentBytes", 0))
    assert seen == sorted(seen), "it never goes back"
    gate.let()
    wait_until(lambda: site.entry(key) is None, "its end")
    done = awaits(site, number, "landed")
    assert done["bytes"] == total
    assert daemon.content("v1", v.artifact) == v.files
    [spread] = site.get(f"/api/v1/artifacts/{v.artifact}/distribution").json()["versions"]
    assert [(n["node"], n["rack"], n["state"], n["other_digest"]) for n in spread["nodes"]] == [("node", "r1", "landed", False)]
    assert site.sql("SELECT bytes_fetched, bytes_avoided FROM receipt") == [(total, 0)]
    told = wait_until(lambda: site.get(NODE).json()["versions"], "the node says so itself")
    assert told == [{"artifact": v.artifact, "version": "v1", "digest": v.digest, "state": "landed"}]


def test_a_file_is_shown_by_its_own_name_however_deep_it_lies(site, gate, daemon):
    """A path has up to 1,024 bytes, a file's name in a report 512 characters."""
    v = Version(site, files={"/".join(["d" * 250] * 3 + ["deep"]): os.urandom(MIB)}).publish()
    number = assign(site, v)
    shown = wait_until(lambda: (e := site.entry(f"{v.artifact}@v1:node")) and "deep" in e["message"] and e, "the copy")
    assert shown["message"].startswith("deep (")
    gate.let()
    awaits(site, number, "landed")


def test_a_node_says_what_it_is_and_has(site, daemon):
    seen = site.get(NODE).json()
    assert (seen["rack"], seen["zone"], seen["alive"], seen["versions"]) == ("r1", "z1", True, [])
    [mount] = seen["mounts"]
    assert mount["path"] == str(daemon.root) and 0 < mount["used_bytes"] < mount["total_bytes"] == seen["capacity_bytes"]
    assert seen["agent_version"]


def test_more_versions_than_a_heartbeat_takes_do_not_silence_the_node(site, tmp_path):
    """The service takes 64 KiB."""
    node = Daemon(site, tmp_path / "node")
    for i in range(500):
        folder = node.root / "many" / "versions" / f"v{i}"
        folder.mkdir(parents=True)
        (folder / "README.digest").write_text("0" * 64 + "  manifest.json\n")
    node.up()
    node.says("registered")
    assert 250 < len(site.get(NODE).json()["versions"]) < 500
    node.down()


def test_assignments_are_carried_out_one_at_a_time_oldest_first(site, gate, daemon):
    first, second = some_version(site), some_version(site)
    numbers = assign(site, first), assign(site, second)
    wait_until(lambda: gate.files(), "the first")
    assert assignment(site, numbers[1])["state"] == "queued"
    gate.let()
    for number in numbers:
        awaits(site, number, "landed")
    of = [first.artifact in path for path in gate.files()]
    assert of == sorted(of, reverse=True)


def test_several_nodes_land_the_same_version_and_the_distribution_has_them_all(site, tmp_path):
    names = [f"gpu-{i}" for i in range(3)]
    nodes = [Daemon(site, tmp_path / name, WB_AGENT_NODE=name, WB_AGENT_RACK=f"r-{name}", WB_AGENT_TOKEN=site.env["WB_ADMIN_TOKEN"]).up()
             for name in names]
    v = some_version(site)
    for name, node in zip(names, nodes):
        node.says("registered")
        assign(site, v, name)

    def spread():
        [version] = site.get(f"/api/v1/artifacts/{v.artifact}/distribution").json()["versions"]
        return [(n["node"], n["rack"], n["state"]) for n in version["nodes"]]

    wait_until(lambda: spread() == [(name, f"r-{name}", "landed") for name in names], "all of them")
    wait_until(lambda: site.sql("SELECT count(*) FROM receipt") == [(3,)], "their receipts")
    for node in nodes:
        assert node.content("v1", v.artifact) == v.files
        node.down()


# --- what ends it, and how it goes on ---

def in_the_middle(site, gate):
    """A pull with one shard on disk and the others awaited."""
    v = some_version(site)
    number = assign(site, v)
    wait_until(lambda: len(gate.files()) >= 4, "shards in flight")
    gate.let(2)
    wait_until(lambda: len(gate.files()) >= 6, "some that came")
    return v, number


def test_term_leaves_a_part_that_the_next_start_takes_up(site, gate, daemon):
    v, number = in_the_middle(site, gate)
    assert daemon.kill(signal.SIGTERM) == 0
    assert daemon.versions(v.artifact) == [] and len(daemon.parts(v.artifact)) == 1
    had = daemon.verified(v.files, v.artifact)
    assert had > 0
    gate.let()
    gate.bytes = 0
    daemon.up()
    awaits(site, number, "landed")
    assert daemon.content("v1", v.artifact) == v.files
    total = v.manifest["total_bytes"]
    assert gate.bytes == total - had
    assert site.sql("SELECT bytes_fetched FROM receipt") == [(total,)], "both pulls together"


def test_verified_shards_are_told_bit_by_bit(site, gate, daemon):
    """The bitmap: what is on disk and right, the first shard in the highest bit."""
    v, _ = in_the_middle(site, gate)
    assert daemon.kill(signal.SIGTERM) == 0
    files = daemon.root / v.artifact / ".tmp" / daemon.parts(v.artifact)[0] / "files"
    shards = [(path, i) for path, data in sorted(v.files.items()) for i in range(0, len(data), MIB)]
    had = [(files / path).read_bytes()[i:i + MIB] == v.files[path][i:i + MIB] for path, i in shards]
    bits = sum(0x80 >> n for n, there in enumerate(had) if there)
    assert 0 < bits < 0xff
    daemon.up()
    wait_until(lambda: bytes(site.sql("SELECT verified FROM assignment")[0][0]) == bytes([bits]), "these bits")


def test_hup_reads_the_configuration_again_and_the_pull_goes_on(site, gate, daemon):
    v, number = in_the_middle(site, gate)
    os.kill(daemon.process.pid, signal.SIGHUP)
    daemon.says("the configuration was read again")
    gate.let()
    awaits(site, number, "landed")
    assert daemon.parts(v.artifact) == []


def test_a_configuration_that_is_wrong_is_not_taken(site, gate, tmp_path):
    ini = tmp_path / "ini"
    ini.write_text("[agent]\nrack = r1\n")
    node = Daemon(site, tmp_path / "node", gate.url, WB_CONFIG=str(ini))
    del node.env["WB_AGENT_RACK"]
    node.up()
    node.says("registered")
    ini.write_text("[agent]\nrack = r2\nno_such = 1\n")
    os.kill(node.process.pid, signal.SIGHUP)
    node.says("the configuration stays as it was")
    ini.write_text("[agent]\nrack = r3\n")
    os.kill(node.process.pid, signal.SIGHUP)
    wait_until(lambda: site.get(NODE).json()["rack"] == "r3", "the new one")
    node.down()


def test_the_service_manager_is_told(site, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(tmp_path / "notify"))
        told.settimeout(30)
        node = Daemon(site, tmp_path / "node").up(NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="1")
        assert told.recv(99) == b"READY=1"
        assert told.recv(99) == b"WATCHDOG=1"
        os.kill(node.process.pid, signal.SIGHUP)
        heard = []
        while heard[-2:] != [b"RELOADING=1", b"READY=1"]:
            word = told.recv(99).partition(b"\n")[0]
            heard += [word] if word != b"WATCHDOG=1" else []
        node.down()
        while told.recv(99) != b"STOPPING=1":
            pass


def test_a_root_has_one_agent(site, daemon):
    done = daemon.run("run")
    assert done.failure == (1, "retryable", "taken_over") and "another agent" in done.err


def test_a_cancelled_assignment_is_let_go_and_its_part_is_of_use_later(site, gate, daemon):
    v, number = in_the_middle(site, gate)
    assert site.call("DELETE", f"{NODE}/assignments/{number}").status_code == 200
    daemon.says("not wanted any more")
    gate.let()
    wait_until(lambda: site.entry(f"{v.artifact}@v1:node") is None, "nobody shows it")
    other = some_version(site)
    awaits(site, assign(site, other), "landed")
    assert daemon.versions(v.artifact) == []
    had = daemon.verified(v.files, v.artifact)
    gate.bytes = 0
    assert assign(site, v) == number
    awaits(site, number, "landed")
    assert gate.bytes == v.manifest["total_bytes"] - had


def test_a_withdrawn_version_is_not_begun_and_what_was_begun_goes_on(site, gate, daemon):
    begun, number = in_the_middle(site, gate)
    later = some_version(site)
    queued = assign(site, later)
    for v in (begun, later):
        assert site.call("POST", v.path + "/withdraw", {"reason": "bad"}, token="publisher").status_code == 200
    gate.let()
    awaits(site, number, "landed")
    other = some_version(site)
    awaits(site, assign(site, other), "landed")
    assert assignment(site, queued)["state"] == "queued" and daemon.versions(later.artifact) == []


def test_a_version_that_is_here_already_needs_no_byte(site, gate, tmp_path):
    v = some_version(site)
    node = Daemon(site, tmp_path / "node", gate.url)
    done = node.fetch(site.url + v.path, WB_AGENT_TOKEN=site.env["WB_VIEWER_TOKEN"])
    assert done.status == 0, done
    node.up()
    node.says("registered")
    awaits(site, assign(site, v), "landed")
    assert gate.files() == [] and site.sql("SELECT bytes_fetched FROM receipt") == [(v.manifest["total_bytes"],)]
    node.down()


def test_a_pull_takes_no_more_of_the_network_than_it_may(site, tmp_path):
    """A bound from below: a busy machine only makes it longer."""
    v = some_version(site)
    node = Daemon(site, tmp_path / "node", WB_AGENT_BYTES_PER_S=str(4 * MIB))
    began = time.monotonic()
    done = node.fetch(site.url + v.path, WB_AGENT_TOKEN=site.env["WB_VIEWER_TOKEN"])
    assert done.status == 0 and time.monotonic() - began > 1.25, done


# --- arguments ---

def test_a_node_without_a_name_has_that_of_its_host(site, gate, tmp_path):
    name = socket.gethostname().split(".")[0].lower()
    node = Daemon(site, tmp_path / "node", gate.url, WB_AGENT_NODE="", WB_AGENT_TOKEN=site.env["WB_ADMIN_TOKEN"]).up()
    node.says("registered")
    assert gate.seen[0] == ("PUT", "/api/v1/nodes/" + name)
    assert [n["node"] for n in site.get("/api/v1/nodes").json()["nodes"]] == [name]
    node.down()


@pytest.mark.parametrize("env, said", [({"WB_AGENT_URL": ""}, "[agent] url is not set"),
                                       ({"WB_AGENT_URL": "http://store.example"}, "[agent] url: https"),
                                       ({"WB_AGENT_NODE": "Node"}, "[agent] node")])
def test_what_cannot_work_is_refused_at_once(site, tmp_path, env, said):
    done = Daemon(site, tmp_path / "node").run("run", **env)
    assert done.status == 2 and said in done.err, done


def test_its_configuration_can_be_printed(site, tmp_path):
    node = Daemon(site, tmp_path / "node")
    done = node.run("run", "--print-config")
    assert done.status == 0 and f"url = {site.url}\n" in done.out and site.env["WB_NODE_TOKEN"] not in done.out
