# SPDX-License-Identifier: Apache-2.0
"""What a packager gets: `make install` into a staging folder, the units, and a release that has every file.
docs/install.md. `make installcheck`, a part of `make distcheck`, tries an installation in its final place."""
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from conftest import HANG_S, ROOT
from program import Program, ask

MAKE_S = 300  # a guard
COMMANDS = {"weighbridge-migrate", "weighbridge-housekeeping", "weighbridge-agent"}  # they do one thing and leave
NGINX = {p.name for p in (ROOT / "nginx").glob("*.conf")}


def build(stack):
    return Path(stack.environ.get("WB_DEV_BUILD", ROOT / "build"))


def make(stack, *args):
    done = subprocess.run(["make", "-C", str(build(stack)), "--no-print-directory", *args], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=MAKE_S, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


def variable(stack, name):
    """A directory as configure has set it, without variables in it."""
    value = re.search(rf"^{name} = (.*)$", (build(stack) / "Makefile").read_text(), re.M)[1]
    while found := re.search(r"\$[{(](\w+)[})]", value):
        value = value.replace(found[0], variable(stack, found[1]))
    return value


class Stage:
    """An installation below a folder that is not its final place."""

    def __init__(self, stack, folder):
        self.stack, self.root = stack, folder / "stage"
        make(stack, "install", f"DESTDIR={self.root}")

    def at(self, name):
        return Path(f"{self.root}{variable(self.stack, name)}")

    def files(self):
        return {p for p in self.root.rglob("*") if not p.is_dir()}

    def sbin(self, name):
        return self.at("sbindir") / name


@pytest.fixture(scope="module")
def stage(_stack, tmp_path_factory):
    folder = tmp_path_factory.mktemp("install")
    yield Stage(_stack, folder)
    shutil.rmtree(folder, ignore_errors=True)


def units(stage):
    return {p.name: p for p in stage.at("SYSTEMD_UNIT_DIR").iterdir()}


# --- what is installed ---

def test_every_part_is_there(stack, stage):
    data = stage.at("datadir") / "weighbridge"
    assert {p.name for p in (data / "sql").iterdir()} == {p.name for p in (ROOT / "sql").glob("*.sql")}
    assert {p.name for p in (data / "nginx").iterdir()} == NGINX | {"README.md"}
    for server in ("apache", "lighttpd"):
        assert {p.name for p in (data / server).iterdir()} == {"cgi.conf", "fastcgi.conf"}
    programs = {p.name for p in stage.at("sbindir").iterdir()}
    assert programs == {p.name for p in build(stack).glob("weighbridge-*") if p.is_file()}
    assert {f"{program}.{kind}" for program in programs - COMMANDS for kind in ("service", "socket")} <= set(units(stage))
    assert {p.name for p in (stage.at("mandir") / "man8").iterdir()} == {p.name for p in (ROOT / "docs/man").glob("*.8")} == {
        f"{program}.8" for program in programs}
    for folder in ("sysusers.d", "tmpfiles.d"):
        assert (stage.at("prefix") / "lib" / folder / "weighbridge.conf").is_file()
    pages = {p.name for p in (ROOT / "docs").glob("*.*")} - {"weighbridge.ini.in"}
    assert {p.name for p in (stage.at("docdir") / "docs").iterdir() if p.name != "weighbridge.ini"} == pages
    assert {"README.md", "LICENSE", "weighbridge.ini"} <= {p.name for p in stage.at("docdir").iterdir()}


def test_links_of_installed_pages_lead_to_installed_pages(stage):
    pages = list(stage.at("docdir").rglob("*.md"))
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf8"))]
    assert len(links) > 30
    for page, link in links:
        assert (page.parent / link).exists(), (page.name, link)


def test_every_file_that_the_pages_name_is_there(stage):
    named = set()
    for page in ("docs/install.md", "nginx/README.md"):
        named |= set(re.findall(r"/usr/(s?bin|share)/(weighbridge[\w./-]*\w)", (ROOT / page).read_text()))
    assert len(named) > 4
    for folder, path in named:
        assert (stage.at("sbindir" if folder == "sbin" else "datadir") / path).exists(), path


def test_nothing_is_left_to_be_filled_in(stage):
    for path in stage.files():
        if path.parent != stage.at("sbindir") and stage.at("docdir") not in path.parents:
            assert not re.search(r"@[a-z]+@", path.read_text()), path


def test_modes(stage):
    """Only programs can be executed, nobody but the owner writes, and who is not in the group does not read the ini."""
    for path in stage.files():
        mode = stat.S_IMODE(path.stat().st_mode)
        expected = 0o755 if path.parent == stage.at("sbindir") else 0o640 if path == ini_of(stage) else 0o644
        assert mode == expected, (path, oct(mode))


def ini_of(stage):
    return stage.at("sysconfdir") / "weighbridge" / "weighbridge.ini"


def test_what_the_admin_changed_stays(stack, tmp_path):
    stage = Stage(stack, tmp_path)
    sample = ini_of(stage).read_text()
    ini_of(stage).write_text(sample + "# mine\n")
    make(stack, "install", f"DESTDIR={stage.root}")
    assert ini_of(stage).read_text() == sample + "# mine\n"
    make(stack, "uninstall", f"DESTDIR={stage.root}")
    assert stage.files() == {ini_of(stage)}
    ini_of(stage).write_text(sample)
    make(stack, "install", f"DESTDIR={stage.root}")
    make(stack, "uninstall", f"DESTDIR={stage.root}")
    assert stage.files() == set()


def test_installed_programs_run_by_the_sample_with_tokens_made_by_hand(stack, stage, tmp_path):
    """The way of install.md: a token file by sha256sum, a check, migrations, the service."""
    (tmp_path / "run").mkdir()
    ini = tmp_path / "weighbridge.ini"
    tokens = tmp_path / "tokens"
    text = ini_of(stage).read_text()
    for option, value in (("token_file", tokens), ("socket_group", "")):
        text, n = re.subn(rf"^{option} = .*$", f"{option} = {value}", text, flags=re.M)
        assert n == 1
    ini.write_text(text)
    env = {**stack.environ, "WB_CONFIG": str(ini), "WB_DB_URL": stack.env["WB_PGURL"], "WB_REDIS_URL": stack.env["WB_REDIS"],
           "WB_RUNTIME_DIR": str(tmp_path / "run")}

    def run(*command):
        return subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=HANG_S, check=False)
    assert "tokens" in run(stage.sbin("weighbridge-operations"), "--check").stdout
    made = run("sh", "-c", f"umask 027; printf %s secret | sha256sum | cut -d' ' -f1 | sed 's/$/ viewer alice/' >{tokens}")
    assert made.returncode == 0, made.stdout
    assert run(stage.sbin("weighbridge-operations"), "--check").stdout == "ok\n"
    migrated = run(stage.sbin("weighbridge-migrate"), "--sql", str(stage.at("datadir") / "weighbridge" / "sql"))
    assert migrated.returncode == 0 and "up to date" in migrated.stdout
    with Program(stack, args=[], program=stage.sbin("weighbridge-operations"),
                 **{k: v for k, v in env.items() if k.startswith("WB_")}) as program:
        program.ready(1)
        assert ask(program.socket, "/api/operations", token="secret") == (200, '{"operations":[]}')
        assert ask(program.socket, "/api/operations", token="wrong")[0] == 401


# --- systemd ---

ANALYZE = shutil.which("systemd-analyze")


def verify(folder, *names):
    """What systemd would warn of, which its exit status does not always tell."""
    done = subprocess.run([ANALYZE, "verify", "--man=no", *(str(folder / name) for name in names)], cwd=folder,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=HANG_S, check=False)
    # Of this machine's own units, and of a machine that does not run systemd.
    mine = [line for line in done.stdout.splitlines() if "weighbridge" in line or "secrets" in line]
    return done.returncode, mine


@pytest.mark.skipif(not ANALYZE, reason="systemd is not installed")
def test_the_units_are_without_fault(stage, tmp_path):
    """With the programs where they are staged, and with the drop-in for secrets."""
    for name, path in units(stage).items():
        text = path.read_text()
        for program in re.findall(r"^Exec\w+=(\S+)", text, re.M):
            staged = stage.sbin(Path(program).name)
            text = text.replace(program, str(staged)) if staged.exists() else text
        (tmp_path / name).write_text(text)
    assert verify(tmp_path, *units(stage)) == (0, [])
    for name in units(stage):
        if name.endswith(".service"):
            (tmp_path / f"{name}.d").mkdir()
            shutil.copy(ROOT / "nginx/systemd/secrets.conf", tmp_path / f"{name}.d")
    assert verify(tmp_path, *units(stage)) == (0, [])
    (tmp_path / "weighbridge-operations.service.d" / "secrets.conf").write_text("[Service]\nNonsense=1\n")
    assert verify(tmp_path, "weighbridge-operations.service")[1], "the check can fail"


@pytest.mark.skipif(not ANALYZE, reason="systemd is not installed")
def test_the_services_are_confined(stage):
    """systemd's own figure, from 0 (confined) to 10."""
    for name, path in units(stage).items():
        if name.endswith(".service"):
            done = subprocess.run([ANALYZE, "security", "--offline=true", "--threshold=20", "--no-pager", str(path)],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=HANG_S, check=False)
            assert done.returncode == 0, done.stdout[-2000:]


def test_the_agents_unit_may_write_its_root_and_nothing_else(stage):
    text = units(stage)["weighbridge-agent.service"].read_text()
    assert re.findall(r"^ReadWritePaths=(.*)$", text, re.M) == ["-/srv/artifacts"] and "\nProtectSystem=strict\n" in text
    assert "\nUser=weighbridge\n" in text and "/weighbridge-agent run --config " in text and "\nType=notify\n" in text


def test_a_stop_reaches_workers_through_the_supervisor_alone(stage):
    """A second TERM makes a worker drop what it has in hand, and systemd would send one to each process."""
    assert "KillMode=mixed\n" in units(stage)["weighbridge-operations.service"].read_text()


def test_the_sockets_folder_outlives_the_service(stage):
    """RuntimeDirectory= would take the socket that systemd holds with it at each stop."""
    assert "\nRuntimeDirectory=" not in units(stage)["weighbridge-operations.service"].read_text()
    # The store is its user's, and nobody else's to write.
    artifacts, jobs = (units(stage)[f"weighbridge-{n}.service"].read_text() for n in ("artifacts", "jobs"))
    assert "\nUser=www-data\n" in artifacts and "\nReadWritePaths=-/srv/artifacts\n" in artifacts
    assert "\nUser=weighbridge\n" in jobs and "/srv/artifacts" not in jobs and "@more@" not in artifacts + jobs
    assert "\nd /run/weighbridge 0775 weighbridge weighbridge" in \
        (stage.at("prefix") / "lib/tmpfiles.d/weighbridge.conf").read_text()


@pytest.mark.skipif(not shutil.which("systemd-tmpfiles"), reason="systemd is not installed")
def test_user_and_folder_are_made(stage, tmp_path):
    """By systemd-sysusers and systemd-tmpfiles, in a root of their own."""
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    for tool, folder in (("systemd-sysusers", "sysusers.d"), ("systemd-tmpfiles", "tmpfiles.d")):
        file = stage.at("prefix") / "lib" / folder / "weighbridge.conf"
        done = subprocess.run([tool, *(["--create"] if "tmp" in tool else []), f"--root={root}", str(file)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=HANG_S, check=False)
        if os.geteuid() == 0:
            assert done.returncode == 0, done.stdout
        else:
            assert "syntax" not in done.stdout.lower()
    if os.geteuid() == 0:
        assert re.search("^weighbridge:", (root / "etc" / "passwd").read_text(), re.M)
        assert stat.S_IMODE((root / "run" / "weighbridge").stat().st_mode) == 0o775


# --- a release ---

@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a release: it has no list to compare with")
def test_a_release_has_every_file(stack):
    make(stack, "distdir")
    folder = build(stack) / f"weighbridge-{re.search('^VERSION = (.*)$', (build(stack) / 'Makefile').read_text(), re.M)[1]}"
    try:
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout.decode()
        missing = {f for f in tracked.split("\0") if f and (ROOT / f).exists() and not (folder / f).exists()}
        assert missing <= {".gitignore"}
        assert not list(folder.rglob("__pycache__")) and not list(folder.glob("nginx/systemd/*.service"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
