"""The ten commonest mistakes of a first day, each made by a real process: one clear line, the right exit code, no traceback.

And what `fairlane init` writes: it runs as it stands, by `fairlane dev` in a terminal.
"""

from __future__ import annotations

import ctypes
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from tests.cli.conftest import Command, Run
from tests.faults.eventually import eventually
from tests.servers.postgres import PostgresServer, shared_server
from tests.support.terminal import Terminal

JOBS = """
from fairlane import Fairlane
app = Fairlane("sqlite:///jobs.db")

@app.task
def add(a: int, b: int) -> int:
    return a + b
"""
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1


class Mistake(NamedTuple):
    name: str
    typed: str
    code: int
    says: str


MISTAKES = [
    Mistake("a mistyped module", "worker jbos:app", 2, 'no module "jbos" from {here}. Nearest: "jobs"'),
    Mistake("a module without an application", "worker json:app", 2, "It holds no Fairlane"),
    Mistake("no tasks", "worker empty:app", 2, "has no tasks: nothing would ever run"),
    Mistake("no application", "worker", 2, "set FAIRLANE_APP or app in fairlane.toml"),
    Mistake("no application to develop", "dev", 2, "`fairlane init` writes a first one"),
    Mistake("a mistyped application to develop", "dev jbos:app", 2, 'Nearest: "jobs"'),
    Mistake("a port that is taken", "dashboard jobs:app --port {port}", 2, "choose another --port"),
    Mistake("a server that is down", "jobs list --url postgresql://me@127.0.0.1:1/app", 69, "Connection refused"),
    Mistake("a worker whose server is down", "worker down:app", 69, "Connection refused"),
    Mistake("development while the server is down", "dev down:app", 69, "Connection refused"),
    Mistake("migrations that did not run", "jobs list --url {postgres}/postgres", 1, "run `fairlane migrate up`"),
    Mistake("a wrong password", "jobs list --url {locked}/postgres", 2, "password authentication failed"),
    Mistake("a wrong database", "jobs list --url {postgres}/shpo", 2, 'database "shpo" does not exist'),
    Mistake("a wrong host", "jobs list --url redis://[fe80::1%25nosuch]/0", 2, "check host, user, password"),
    Mistake("a worker whose host is unknown", "worker lost:app", 69, "check host, user, password"),
    Mistake("a worker with a wrong database", "worker wrong:app", 2, 'database "shpo" does not exist'),
    Mistake("an unknown command", "wroker jobs:app", 2, 'did you mean "worker"?'),
    Mistake(
        "a file that may not be written",
        "enqueue jobs.add a=1 b=2 --app jobs:app --url sqlite:///{here}/kept/jobs.db",
        2,
        "may not write in {here}/kept",
    ),
    Mistake(
        "an application that raises", "worker broken:app", 2, "importing broken raised RuntimeError: no key at {here}"
    ),
    Mistake(
        "a slip in an application",
        "worker typed:app",
        2,
        "raised SyntaxError: '(' was never closed at {here}/typed.py:2",
    ),
    Mistake("a slip in what it imports", "dev imports:app", 2, "{here}/typed.py:2"),
    Mistake("a NUL in an application", "worker null:app", 2, "importing null raised "),
    Mistake("an enqueue without an application", "enqueue jobs.add a=1", 2, "there is no file {here}/fairlane.db"),
    Mistake("a schedule without an application", "schedules add x jobs.add --cron @daily", 2, "{here}/fairlane.db"),
    Mistake(
        "a slip in an address", "jobs list --url postgresql://me@127.0.0.1:1/app?poolsize=3", 2, '"poolsize" is no'
    ),
    Mistake("another schema", "worker elsewhere:app", 2, 'no Fairlane schema (schema "elsewhere")'),
    Mistake("a missing extra", "dashboard jobs:app", 2, "pip install 'fairlane[dashboard]'"),
    Mistake("two applications", "worker jobs:app --app empty:app", 2, "contradict each other"),
]


@pytest.fixture(scope="module")
def locked() -> Iterator[PostgresServer]:
    """The server, where one role needs a password."""
    server = shared_server()
    file = server.data / "pg_hba.conf"
    before = file.read_text()
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        conn.execute("drop role if exists locked_out")
        conn.execute("create role locked_out login password 'right'")
        file.write_text("host all locked_out 127.0.0.1/32 scram-sha-256\n" + before)
        conn.execute("select pg_reload_conf()")
        yield server
        file.write_text(before)
        conn.execute("select pg_reload_conf()")
        conn.execute("drop role locked_out")


@pytest.fixture
def workshop(tmp_path: Path, locked: PostgresServer) -> Iterator[Callable[[Mistake], subprocess.CompletedProcess[str]]]:
    """A directory of somebody who begins, and what makes a mistake in it."""
    place = f"postgresql://postgres@127.0.0.1:{locked.port}"
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "empty.py").write_text('from fairlane import Fairlane\napp = Fairlane("sqlite:///jobs.db")\n')
    (tmp_path / "broken.py").write_text('raise RuntimeError("no key")\n')
    (tmp_path / "typed.py").write_text("from fairlane import Fairlane\napp = Fairlane(\n")
    (tmp_path / "imports.py").write_text("import typed\n")
    (tmp_path / "null.py").write_bytes(b"app = 1\0\n")
    (tmp_path / "elsewhere.py").write_text(
        JOBS.replace('"sqlite:///jobs.db"', f'"{place}/postgres", schema="elsewhere"')
    )
    (tmp_path / "down.py").write_text(JOBS.replace("sqlite:///jobs.db", "postgresql://me@127.0.0.1:1/app"))
    (tmp_path / "lost.py").write_text(JOBS.replace("sqlite:///jobs.db", "redis://[fe80::1%25nosuch]/0"))
    (tmp_path / "wrong.py").write_text(JOBS.replace("sqlite:///jobs.db", f"{place}/shpo"))
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o500)
    hidden = tmp_path / "hidden" / "fastapi"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text('raise ModuleNotFoundError("No module named fastapi", name="fastapi")\n')
    with socket.create_server(("127.0.0.1", 0)) as taken:

        def make(mistake: Mistake) -> subprocess.CompletedProcess[str]:
            if "develop" in mistake.name and mistake.typed == "dev":
                (tmp_path / "jobs.py").unlink()
            names = {
                "here": str(tmp_path),
                "port": str(taken.getsockname()[1]),
                "postgres": place,
                "locked": place.replace("postgres@", "locked_out:wrong@"),
            }
            extra = {"PYTHONPATH": str(hidden.parent)} if "extra" in mistake.name else {}
            return subprocess.run(
                [sys.executable, "-W", "error", "-m", "fairlane", *mistake.typed.format(**names).split()],
                cwd=tmp_path,
                env={**os.environ, "FAIRLANE_WAIT_FOR_STORE": "false", **extra},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
                preexec_fn=_as_anybody if os.geteuid() == 0 else None,
            )

        yield make
    kept.chmod(0o700)


def _as_anybody() -> None:
    """Root, too, is bound by the modes of files then."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_of_the_first_day_is_one_clear_line(
    workshop: Callable[[Mistake], subprocess.CompletedProcess[str]], tmp_path: Path, mistake: Mistake
) -> None:
    ran = workshop(mistake)
    assert (ran.returncode, ran.stdout) == (mistake.code, ""), ran.stderr
    assert len(ran.stderr.splitlines()) == 1, ran.stderr
    assert ran.stderr.startswith("fairlane: ")
    assert mistake.says.format(here=tmp_path) in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_mistake_is_one_clear_line_although_another_process_is_still_starting(
    command: Command, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as thread:
        slow = f"""
import pathlib, threading
try:
    pathlib.Path("first").mkdir()
except FileExistsError:
    pathlib.Path("second").touch()
    threading.Event().wait()
{JOBS.replace("sqlite:///jobs.db", f"postgresql://me@127.0.0.1:{server.getsockname()[1]}/app")}"""
        (tmp_path / "slow.py").write_text(slow)

        def turn_away() -> None:
            with server, server.accept()[0]:
                eventually((tmp_path / "second").exists, 30)

        turned_away = thread.submit(turn_away)
        ran = command("worker", "slow:app", "--processes", "2", FAIRLANE_WAIT_FOR_STORE="false")
        turned_away.result(30)
    assert (ran.returncode, ran.stderr.count("\n")) == (69, 1), ran.stderr
    assert "the postgresql store cannot be reached" in ran.stderr
    for secret in ("wrong@", ":right"):
        assert secret not in ran.stderr


def test_what_init_writes_is_not_overwritten(run: Run, tmp_path: Path) -> None:
    result = run("init")
    assert (result.exit_code, result.stdout.split()) == (
        0,
        ["wrote", "jobs.py", "wrote", "test_jobs.py", "wrote", "fairlane.toml"],
    )
    (tmp_path / "jobs.py").write_text("mine")
    (tmp_path / "test_jobs.py").unlink()
    again = run("init")
    assert (again.exit_code, again.stdout) == (2, "")
    assert again.stderr.startswith("fairlane: jobs.py, fairlane.toml in ")
    assert (tmp_path / "jobs.py").read_text() == "mine"
    assert not (tmp_path / "test_jobs.py").exists()
    assert "  cd shop/jobs" in run("init", "shop/jobs").stderr


def test_what_init_writes_passes_its_own_test(run: Run, tmp_path: Path) -> None:
    run("init")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    assert "2 passed" in ran.stdout
    of_types = [["mypy", "--strict", "jobs.py"]] if os.environ.get("FAIRLANE_LONG") else []  # else tests/typing
    for checker in (["ruff", "check", "--isolated", "--select", "F,I,B"], *of_types):
        checked = subprocess.run(
            [sys.executable, "-m", *checker], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stdout


def test_dev_runs_reloads_and_ends_with_one_ctrl_c(run: Run, command: Command, tmp_path: Path) -> None:
    said = run("init").stderr
    [enqueue] = re.findall(r"fairlane (enqueue .*--wait)", said)
    with Terminal("fairlane", "dev", "--port", "0", cwd=tmp_path, FAIRLANE_BY="olga") as terminal:
        terminal.wrote("/login?link=")
        terminal.wrote("is ready: 1 task")
        assert command(*enqueue.split()).stdout == '"welcome, user 7"\n'
        file = tmp_path / "jobs.py"
        file.write_text(file.read_text().replace("welcome, user", "hello, user"))
        terminal.wrote("jobs.py has changed")
        eventually(lambda: command(*enqueue.split()).stdout == '"hello, user 7"\n')
        eventually(lambda: terminal.reads_within(0.2, "/login?link=", times=2))
        terminal.press("\x03")
        assert terminal.ended() == 0
        assert "Traceback" not in terminal.text
    assert {path.name for path in tmp_path.iterdir() if not path.name.startswith((".", "__"))} >= {"fairlane.db"}


def test_dev_goes_on_with_broken_code_until_it_is_mended(run: Run, command: Command, tmp_path: Path) -> None:
    run("init")
    file = tmp_path / "jobs.py"
    good = file.read_text()
    with Terminal("fairlane", "dev", "--no-dashboard", cwd=tmp_path) as terminal:
        terminal.wrote("is ready: 1 task")
        file.write_text(good + "\nraise RuntimeError('not yet')\n")
        terminal.wrote("not yet")
        file.write_text(good)
        eventually(lambda: terminal.reads_within(0.2, "is ready: 1 task", times=2))
        terminal.press("\x03")
        assert terminal.ended() == 0
