# SPDX-License-Identifier: Apache-2.0
"""What a newcomer does first: ./dev itself, and the limits of the web server that it starts."""
import subprocess

from conftest import ROOT, wait_until


def try_dev(stack, *args, **environ):
    return subprocess.run(
        [ROOT / "dev", *args], env={**stack.environ, **environ}, cwd=ROOT, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=180, check=False)


def test_demo_succeeds_and_leaves_no_entry(stack):
    said = stack.dev("demo")
    assert "the entry is gone" in said
    assert stack.entry("demo-model") is None


def test_demo_whose_key_is_taken_leaves_the_copy_of_the_other_alone(stack):
    token = stack.claim("demo-model")
    kept = stack.var / "demo" / "copy" / "kept"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text("the other's")
    done = try_dev(stack, "demo")
    assert done.returncode == 1
    assert "somebody else is loading demo-model" in done.stdout
    assert kept.read_text() == "the other's"
    assert stack.load("demo-model", token, state="staging").status_code < 300


def test_demo_that_cannot_copy_gives_its_claim_back(stack):
    source = stack.var / "bad-source"
    source.mkdir()
    (source / "a").write_bytes(b"x")
    (source / ("b" * 254)).write_bytes(b"x")  # its copy's name would be too long
    done = try_dev(stack, "demo", str(source))
    assert done.returncode == 1
    assert "the copy failed" in done.stdout
    wait_until(lambda: stack.entry("demo-model") is None, "the entry to go")
    stack.claim("demo-model")
