"""`fairlane init`: writes a first module of jobs, its test and a settings file."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from fairlane.cli.output import USAGE, Failed, Printer
from fairlane.cli.processes import executable

JOBS = '''\
"""Background jobs: `fairlane dev` runs them while you work, `fairlane worker` in production."""

from fairlane import Fairlane, Retry

app = Fairlane()  # settings come from fairlane.toml, or from variables such as FAIRLANE_URL


@app.task(retry=Retry(max_attempts=5))
def send_welcome(user_id: int) -> str:
    return f"welcome, user {user_id}"
'''
TEST = """\
from fairlane.testing import Sandbox, assert_enqueued

from jobs import send_welcome


def test_a_task_is_still_a_function():
    assert send_welcome(7) == "welcome, user 7"


def test_a_welcome_is_enqueued_and_runs(fairlane_jobs: Sandbox):  # jobs are kept in memory, and no worker runs
    handle = send_welcome.using(tenant="acme").enqueue(user_id=7)
    assert_enqueued(send_welcome, user_id=7, tenant="acme")
    fairlane_jobs.run_due()
    assert handle.result(timeout=0) == "welcome, user 7"
"""
SETTINGS = """\
# `fairlane config` shows every setting and where it comes from. Variables such as FAIRLANE_URL come before this file.
app = "jobs:app"
url = "sqlite:///fairlane.db"  # or postgresql://user@host/database, after `fairlane migrate up`, or redis://host:6379/0
profile = "development"
"""
FILES = {"jobs.py": JOBS, "test_jobs.py": TEST, "fairlane.toml": SETTINGS}
NEXT = (
    ("dev", "a worker and the dashboard, until Ctrl-C"),
    ("enqueue jobs.send_welcome user_id=7 --wait", "in another terminal"),
    ("jobs list", ""),
)


@click.command()
@click.argument("directory", required=False, default=".", type=click.Path(file_okay=False, path_type=Path))
def init(directory: Path) -> None:
    """Write a first module of jobs, its test and a settings file.

    They are jobs.py, test_jobs.py and fairlane.toml. None is overwritten: where one exists, nothing is written.
    """
    taken = [name for name in FILES if (directory / name).exists()]
    if taken:
        raise Failed(f"{', '.join(taken)} in {directory.resolve()}: there already, so nothing was written", USAGE)
    directory.mkdir(parents=True, exist_ok=True)
    out = Printer()
    for name, text in FILES.items():
        (directory / name).write_text(text, "utf-8")
        out.line(f"wrote {directory / name}")
    out.note("\nNext:")
    if directory.resolve() != Path.cwd():
        out.note(f"  cd {directory}")
    command = executable() if directory.resolve() == Path.cwd() else executable(absolute=True)
    for words, purpose in NEXT:
        line = f"  {command} {words}"
        out.note(f"{line:60}  # {purpose}" if purpose else line)
    install = "" if find_spec("pytest") else "python -m pip install pytest && "
    out.note(f"  {install}python -m pytest")
