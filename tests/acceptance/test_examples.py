"""The examples a newcomer tries first run as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs import page_program
from tests.support.terminal import Terminal

ROOT = Path(__file__).parents[2]
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def example(page: str) -> str:
    """The page's Python, one block after the other."""
    return "\n".join(PYTHON_BLOCK.findall((ROOT / page).read_text(encoding="utf-8")))


def run(directory: Path, program: str) -> str:
    (directory / "first.py").write_text(program, encoding="utf-8")
    return ran(directory, "first.py")


def ran(directory: Path, *program: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE")}
    ended = subprocess.run(
        [sys.executable, "-W", "error", *program],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_first_job_of_the_readme_runs_as_printed_and_leaves_nothing_but_its_database_behind(tmp_path: Path) -> None:
    said = run(tmp_path, example("README.md")).splitlines()
    assert said == [
        "completed -> welcome, user 7",
        "True True",
        "first.charge pending_review invoice 42: card expired",
    ]
    left = {path.name for path in tmp_path.iterdir()} - {"first.py", "__pycache__"}
    assert all(name.startswith("first.db") for name in left)


def test_the_first_job_of_the_readme_takes_about_thirty_lines() -> None:
    lines = [line for line in example("README.md").splitlines() if line.strip()]
    assert len(lines) <= 30


def test_the_quickstart_prints_what_a_reader_expects(tmp_path: Path) -> None:
    said = ran(tmp_path, page_program.__file__, str(ROOT / "docs/quickstart.md")).splitlines()
    assert said[0] == "pending"
    assert said[1:-1] == ["shop.export_orders Completed"] * 101
    assert said[-1] == "{'rows': 3}"


def test_the_first_steps_of_the_readme_work_line_by_line(tmp_path: Path) -> None:
    """All but the installation, whose extra exists: the environment of this test has it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first, second = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    make, install, change, *rest = [line.partition("#")[0].strip() for line in first.splitlines()]
    assert (make, install, change) == (
        "python3 -m venv ~/shop/.venv && . ~/shop/.venv/bin/activate",
        "pip install '.[dashboard]'",
        "cd ~/shop",
    )
    assert rest == ["fairlane init", "fairlane dev"]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE")},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }

    def typed(line: str) -> str:
        ran = subprocess.run(
            ["bash", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert ran.returncode == 0, (line, ran.stderr)
        return ran.stdout

    typed("fairlane init")
    with Terminal("fairlane", "dev", cwd=tmp_path) as dev:
        dev.wrote("is ready: 1 task")
        enqueue, listing, top = [line.partition("#")[0].strip() for line in second.splitlines()]
        assert typed(enqueue) == '"welcome, user 7"\n'
        assert "jobs.send_welcome" in typed(listing)
        assert "all tenants" in typed(top)
        dev.press("\x03")
        assert dev.ended() == 0
