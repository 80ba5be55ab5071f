# SPDX-License-Identifier: Apache-2.0
"""Questions of a guide under docs/, each with a line that answers it, and the answer on a site as the page describes it."""
import re
import subprocess

from conftest import HANG_S, ROOT

QUESTION = re.compile(r"^\*\*(\d+)\. (.*?)\*\*.*?^```sh\n(.*?)^```\n```\n(.*?)^```$", re.M | re.S)


def page(name):
    return (ROOT / "docs" / name).read_text(encoding="utf8")


def questions(text):
    """(number, question, command, answer) of each, in the order of the page."""
    found = QUESTION.findall(text)
    assert [int(number) for number, *_ in found] == list(range(1, len(found) + 1))
    return found


def check_answer(site, question, command, answer, **env):
    """Runs the line as a reader would; "..." in the answer stands for whatever is there."""
    done = subprocess.run(["bash", "-o", "pipefail", "-euc", command], env={"PATH": "/usr/bin:/bin", **site.env, **env},
                          capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, (question, done.stderr)
    expected = ".*".join(re.escape(piece) for piece in answer.rstrip("\n").split("..."))
    assert re.fullmatch(expected, done.stdout.rstrip("\n")), (question, done.stdout)


def metrics_of(text, section):
    """{name: meaning} of the table below a heading."""
    table = text.split(f"### {section}\n")[1].split("\n#")[0]
    return dict(re.findall(r"^\| `(\w+)` \| \w+ \| [^|]*\| ([^|]*) \|", table, re.M))


def metrics_told(answer):
    assert answer.status_code == 200, answer.text
    return dict(re.findall(r"^# HELP (\w+) (.*)$", answer.text, re.M))
