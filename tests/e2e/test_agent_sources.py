# SPDX-License-Identifier: Apache-2.0
"""weighbridge-agent and sources that misbehave: artifacts contract, section 4, "Fetching" and "Errors have classes", and the rows of
the reference's section 3 that concern one node."""
import os
import pty
import re
import subprocess

import pytest

from agent import MIB, Origin, some_bytes, some_files
from conftest import HANG_S
from test_agent import node, origin  # noqa: F401

FILE = "model/weights.bin"
ONE = {FILE: some_bytes(3 * MIB)}
SHORT_WAITS = {"WB_AGENT_SILENCE_MS": "150", "WB_AGENT_HEADER_MS": "150"}


def landed_despite(node, origin, done, files=None):
    assert done.status == 0, done
    assert node.content() == (files or ONE)


# --- what is tried again, the one shard alone ---

@pytest.mark.parametrize("action,reason", [
    ("short", "short_body"), ("short_kept", "stall"), ("silent", "timeout"), ("flipped", "shard_digest_mismatch"),
    ("zeros", "shard_digest_mismatch"), ("reset", "reset"), ("refused", "reset")])
def test_one_bad_answer_costs_one_shard(node, origin, action, reason):
    """Rows 2, 4, 11, 15, 16: a short body with and without the end of the connection, silence before and within a body, same-size
    corruption."""
    url = origin.serve(ONE)
    origin.on(f"{FILE} {MIB}-", action)
    landed_despite(node, origin, node.fetch(url, **SHORT_WAITS))
    asked = [r[1] for r in origin.ranges()]
    assert sorted(asked) == [0, MIB, MIB, 2 * MIB]
    assert node.receipt()["retries"] == {reason: 1}
    assert node.receipt()["bytes_fetched"] == 3 * MIB


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_statuses_that_may_pass_are_tried_again(node, origin, status):
    url = origin.serve(ONE)
    origin.on(f"{FILE} 0-", "status", status=status, body=b"<html>busy</html>" * 500)
    landed_despite(node, origin, node.fetch(url))


@pytest.mark.parametrize("headers", [{"Retry-After": "1"}, {"RateLimit": '"default";r=0;t=1'}])
def test_a_throttled_agent_stays_away_as_long_as_it_is_asked(node, origin, headers):
    """Row 30. The origin notes that nothing was asked of it within that second."""
    import time
    url = origin.serve(ONE)
    times = []
    take = origin.take
    origin.take = lambda what: (times.append(time.monotonic()), take(what))[1]
    origin.on(FILE, "status", status=429, headers=headers)
    landed_despite(node, origin, node.fetch(url, WB_AGENT_IN_FLIGHT="1"))
    gaps = [b - a for a, b in zip(times[1:], times[2:])]
    assert max(gaps) >= 1.0, gaps
    assert node.receipt()["retries"] == {"upstream_throttle": 1}


def test_when_tries_are_used_up_it_fails_and_what_came_is_kept(node, origin):
    """Row 20: not for ever. And the start fails: nothing lands."""
    url = origin.serve(ONE)
    origin.on(f"{FILE} {2 * MIB}-", "status", times=-1, status=503, body=b"<html>down for repairs</html>")
    done = node.fetch(url, WB_AGENT_IN_FLIGHT="1")
    assert done.failure == (1, "retryable", "server_error"), done
    assert "down for repairs" in done.said("body")
    assert done.err.count("\n") == 1
    assert len([r for r in origin.ranges() if r[1] == 2 * MIB]) == 4
    assert node.versions() == []
    origin.rules.clear()
    origin.requests.clear()
    landed_despite(node, origin, node.fetch(url))
    assert [r[1] for r in origin.ranges()] == [2 * MIB]
    assert (node.receipt()["bytes_resumed"], node.receipt()["bytes_fetched"]) == (2 * MIB, MIB)


# --- what ends a source ---

@pytest.mark.parametrize("action,options,reason", [
    ("whole", {}, "range_ignored"), ("shifted", {}, "wrong_range"), ("resized", {}, "size_changed"),
    ("no_content_range", {}, "wrong_range"), ("gzip", {}, "refused"),
    ("status", {"status": 403, "body": b"<Code>AccessDenied</Code>"}, "forbidden"),
    ("status", {"status": 416}, "range_refused"), ("status", {"status": 302, "headers": {"Location": "http://127.0.0.1:1/"}}, "refused")])
def test_answers_that_another_try_does_not_mend(node, origin, action, options, reason):
    """Rows 1, 17, 19, 24: nothing of such an answer is written, and it is asked once."""
    url = origin.serve(ONE)
    origin.on(FILE, action, times=-1, **options)
    done = node.fetch(url, WB_AGENT_IN_FLIGHT="1")
    assert done.failure == (3, "source_fatal", reason), done
    assert len(origin.ranges()) == 1
    assert node.versions() == []
    if options.get("body"):
        assert "AccessDenied" in done.said("body")
    part = node.root / "llama" / ".tmp" / node.parts()[0] / "files" / FILE
    assert part.read_bytes() == bytes(3 * MIB)


def test_a_file_that_is_missing_everywhere(node, origin):
    url = origin.serve(ONE)
    origin.on(FILE, "status", times=-1, status=404, body=b"gone")
    done = node.fetch(url)
    assert done.failure == (3, "task_fatal", "artifact_missing"), done


def test_the_same_shard_bad_twice_is_not_asked_for_a_third_time(node, origin):
    """Row 6."""
    url = origin.serve(ONE)
    origin.on(f"{FILE} 0-", "flipped", times=-1)
    done = node.fetch(url)
    assert done.failure == (3, "source_fatal", "shard_digest_mismatch"), done
    assert len([r for r in origin.ranges() if r[1] == 0]) == 2
    assert node.versions() == []


def test_a_manifest_that_does_not_hold(node, origin):
    url = origin.serve(ONE)
    manifest, files = origin.versions["/v1"]
    origin.versions["/v1"] = (manifest.replace(b"sha256:", b"sha256:0", 1), files)
    assert node.fetch(url).failure == (3, "task_fatal", "manifest_mismatch")
    assert node.fetch(origin.url("v9")).failure == (3, "source_fatal", "not_found")
    assert not node.root.exists()


def test_nobody_there_uses_up_its_tries(node):
    with Origin() as o:
        url = o.serve(ONE)
    assert node.fetch(url).failure == (1, "retryable", "connect")


# --- more than one source ---

def test_urls_of_the_manifest_are_sources_too(node, origin):
    with Origin() as second:
        second.serve(ONE, version="mirror")
        url = origin.serve(ONE, urls={FILE: [second.file_url(FILE, "mirror")]})
        origin.on(FILE, "status", times=-1, status=403)
        done = node.fetch(url, WB_AGENT_LOCAL_URLS=second.url("mirror"))
        landed_despite(node, origin, done)
        assert len(second.ranges()) == 3
        assert [s["source"] for s in node.receipt()["per_source"]] == [f"http://127.0.0.1:{second.port}"]


def test_a_shard_is_never_continued_on_another_source(node, origin):
    """Row 27 as well: what one source lacks, the other is asked for."""
    with Origin() as second:
        second.serve(ONE, version="mirror")
        url = origin.serve(ONE, urls={FILE: [second.file_url(FILE, "mirror")]})
        origin.on(FILE, "short", times=-1)
        done = node.fetch(url, WB_AGENT_LOCAL_URLS=second.url("mirror"))
        landed_despite(node, origin, done)
        assert {r[1:] for r in second.ranges()} == {(i * MIB, (i + 1) * MIB - 1) for i in range(3)}


def test_a_source_that_serves_damage_is_left_and_nobody_lands_it(node, origin):
    """Row 5."""
    files = {FILE: some_bytes(12 * MIB)}
    with Origin() as second:
        second.serve(files, version="mirror")
        second.on(FILE, "flipped", times=-1)
        url = origin.serve(files, urls={FILE: [second.file_url(FILE, "mirror")]})
        done = node.fetch(url, WB_AGENT_LOCAL_URLS=second.url("mirror"))
        landed_despite(node, origin, done, files)
        assert [s["source"] for s in node.receipt()["per_source"]] == [f"http://127.0.0.1:{origin.port}"]
        assert len(second.ranges()) < 12


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_urls_of_a_manifest_may_not_lead_to_this_host(node, origin, scheme):
    with Origin() as second:
        second.serve(ONE, version="mirror")
        url = origin.serve(ONE, urls={FILE: [second.file_url(FILE, "mirror").replace("http", scheme, 1)]})
        origin.on(FILE, "status", times=-1, status=404)
        done = node.fetch(url)
        assert done.status == 3, done
        assert second.requests == []


def test_plain_http_is_for_loopback_only(node):
    done = node.fetch("http://192.0.2.1:9/v1") # TEST-NET-1: nothing is sent there
    assert done.failure == (3, "source_fatal", "bad_url"), done


def test_the_token_goes_to_the_origin_and_nowhere_else(node, origin, tmp_path):
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    with Origin() as second:
        second.serve(ONE, version="mirror")
        url = origin.serve(ONE, urls={FILE: [second.file_url(FILE, "mirror")]})
        origin.on(f"{FILE} 0-", "status", times=-1, status=404)
        done = node.fetch(url, "--token-file", token, WB_AGENT_LOCAL_URLS=second.url("mirror"))
        landed_despite(node, origin, done)
        assert {t for _, t in origin.tokens} == {"Bearer s3cret"}
        assert {t for _, t in second.tokens} == {None}
        assert "s3cret" not in done.out + done.err


def test_more_than_one_shard_is_in_flight_and_at_most_four(node, origin):
    files = {FILE: some_bytes(8 * MIB)}
    url = origin.serve(files)
    origin.on(FILE, "held", times=-1)
    process = node.start("fetch", url)
    try:
        from conftest import wait_until
        wait_until(lambda: len(origin.ranges()) >= 4, "four requests")
        assert len(origin.ranges()) == 4
    finally:
        origin.let()
        assert process.wait(HANG_S) == 0
    assert node.content() == files


def test_progress_on_a_terminal_only_grows(node, origin):
    """Row 20."""
    url = origin.serve(some_files(6))
    origin.on(f"{FILE} {MIB}-", "flipped")
    origin.on(f"{FILE} {2 * MIB}-", "slow")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(node.args("fetch", url), env=node.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=theirs)
    os.close(theirs)
    text = b""
    while True:
        try:
            more = os.read(ours, 4096)
        except OSError: # the other end is closed
            break
        if not more:
            break
        text += more
    os.close(ours)
    assert process.wait(HANG_S) == 0
    shares = [float(x) for x in re.findall(rb"([0-9.]+) % of", text)]
    assert len(shares) > 2 and shares == sorted(shares) and shares[-1] == 100.0, text
