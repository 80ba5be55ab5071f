# SPDX-License-Identifier: Apache-2.0
"""The commands that do one thing and leave: weighbridge-housekeeping, and what it has in common with
weighbridge-migrate. What housekeeping removes by which rule: tests/store/test_housekeeping.c."""
import os
import re
import subprocess

import pytest

from conftest import HANG_S, wait_until
from program import binary, ini_of, run

COMMAND = "weighbridge-housekeeping"
COUNTS = ("failed_loads", "orphaned_loads", "claims", "stale_operations", "history", "controls")


def counts(line):
    return {name: int(n) for name, n in re.findall(r"(\w+)=(\d+)(?= |$)", line) if name in COUNTS}


def housekeeping(stack, **env):
    status, out, err = run(stack, "--config", ini_of(stack), name=COMMAND, env={**os.environ, **env})
    assert (status, out) == (0, ""), err
    assert err.count("\n") == 1, err
    return err.rstrip("\n")


def put_old(stack):
    """One of each kind that goes."""
    stack.sql("INSERT INTO model_load_jobs (tracking_key, state, updated_at) VALUES"
              " ('failed', 'failed', now() - interval '1 minute'), ('silent', 'staging', now() - interval '2 minutes')")
    stack.sql("INSERT INTO load_job_claims (tracking_key, token_sha256, claimed_at, claimed_created_at) VALUES"
              " ('gone', repeat('0', 64), now() - interval '1 hour', now())")
    stack.gallery_row("stale", status="downloading", created_at="2020-01-01", updated_at="2020-01-01")
    stack.gallery_row("old", status="completed", created_at="2020-01-01", updated_at="2020-01-01")
    stack.sql("INSERT INTO operation_control (job_id, control, changed_at) VALUES"
              " ('gone', 'cancel', now() - interval '2 days')")


ONE_OF_EACH = dict.fromkeys(COUNTS, 1)
NOTHING = dict.fromkeys(COUNTS, 0)


def test_one_line_says_what_was_done(stack):
    put_old(stack)
    stack.admit("runs")
    line = housekeeping(stack)
    assert "level=info" in line and 'msg="housekeeping is done"' in line and "left_alone=\"\"" in line
    assert counts(line) == ONE_OF_EACH
    assert counts(housekeeping(stack)) == NOTHING
    assert stack.sql("SELECT count(*) FROM model_load_jobs")[0][0] == 0
    stale = wait_until(lambda: stack.job("stale"), "the failure in a snapshot: housekeeping is no acting call")
    assert stale["error"].startswith("given up") and not stale["cancellable"]
    assert stack.job("runs")["isQueued"]
    history = stack.get("/api/operations/history").json()["operations"]
    assert [(o["jobID"], o["outcome"]) for o in history] == [("stale", "failed")]


def test_many_may_run_at_once(stack):
    put_old(stack)
    started = [subprocess.Popen([binary(stack, COMMAND), "--config", ini_of(stack)], stdin=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True) for _ in range(5)]
    lines = [p.communicate(timeout=HANG_S)[1] for p in started]
    assert all(p.returncode == 0 for p in started), lines
    done = [counts(line) for line in lines]
    assert {name: sum(d[name] for d in done) for name in COUNTS} == ONE_OF_EACH


def test_the_days_of_the_history_are_an_option(stack):
    stack.gallery_row("done", status="completed", created_at="2020-01-01", updated_at="2020-01-01")
    assert counts(housekeeping(stack, WB_OPERATIONS_KEEP_DAYS="36500"))["history"] == 0
    assert counts(housekeeping(stack, WB_OPERATIONS_KEEP_DAYS="1"))["history"] == 1


def test_read_only_touches_side_tables_only(stack):
    put_old(stack)
    line = housekeeping(stack, WB_OPERATIONS_READ_ONLY="on")
    assert counts(line) == {**NOTHING, "claims": 1, "controls": 1}


@pytest.mark.touches("redis")
def test_without_redis_nobody_is_given_up(stack):
    put_old(stack)
    stack.dev("freeze", "redis")
    line = housekeeping(stack)
    assert "level=warn" in line and "redis does not answer" in line
    assert counts(line) == {**ONE_OF_EACH, "orphaned_loads": 0, "stale_operations": 0}
    stack.dev("thaw", "redis")
    assert counts(housekeeping(stack, WB_REDIS_URL="")) == {**NOTHING, "orphaned_loads": 1, "stale_operations": 1}


def test_without_postgres_it_says_so_and_fails(stack):
    status, out, err = run(stack, "--config", ini_of(stack), name=COMMAND,
                           env={**os.environ, "WB_DB_URL": "host=/nowhere password=correct-horse"})
    assert (status, out) == (1, "")
    assert "level=error" in err and "housekeeping was not done" in err and "correct-horse" not in err


# --- what all such commands have in common ---

@pytest.fixture(params=[COMMAND, "weighbridge-migrate"])
def command(request):
    return request.param


def test_help_version_and_configuration(stack, command):
    status, out, err = run(stack, "--help", name=command)
    assert (status, err) == (0, "") and out.startswith(f"usage: {command} ")
    assert all(option in out for option in ("--config", "--print-config", "--version"))
    status, out, err = run(stack, "--version", name=command)
    assert (status, err) == (0, "") and re.fullmatch(command + r" \d+\.\d+\.\d+\n", out)
    status, out, err = run(stack, "--config", ini_of(stack), "--print-config", name=command)
    assert (status, err) == (0, "") and "[operations]" in out and "keep_days = 30" in out


@pytest.mark.parametrize("args", [["--colour"], ["surprise"], ["--config"], ["--version=2"]])
def test_wrong_arguments_end_with_2_and_say_where_help_is(stack, command, args):
    status, out, err = run(stack, *args, name=command)
    assert (status, out) == (2, "") and f"Try '{command} --help'." in err


def test_a_wrong_configuration_ends_with_2_and_is_named(stack, command, tmp_path):
    bad = tmp_path / "bad.ini"
    bad.write_text("[operations]\nkeep_days = 0\n")
    status, out, err = run(stack, "--config", str(bad), name=command)
    assert (status, out) == (2, "") and "keep_days" in err
