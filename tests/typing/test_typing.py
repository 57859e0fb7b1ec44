"""Type checkers accept right code and refuse wrong code, line by line."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FILES = (HERE / "good.py", HERE / "mistakes.py")


def mypy() -> set[tuple[str, int]]:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", *map(str, FILES)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    found = re.findall(r"^(.+?):(\d+): error", run.stdout, re.MULTILINE)
    return {(Path(file).name, int(line)) for file, line in found}


def pyright() -> set[tuple[str, int]]:
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, *map(str, FILES)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = json.loads(run.stdout)["generalDiagnostics"]
    return {(Path(each["file"]).name, each["range"]["start"]["line"] + 1) for each in found}


def expected() -> set[tuple[str, int]]:
    lines = {file.name: file.read_text().splitlines() for file in FILES}
    return {(name, at) for name, text in lines.items() for at, line in enumerate(text, 1) if "# E:" in line}


CHECKERS: list[Callable[[], set[tuple[str, int]]]] = [mypy]
if shutil.which("node"):
    # Without a Node of the machine's own, pyright would fetch one from the network.
    CHECKERS.append(pyright)


@pytest.mark.parametrize("check", CHECKERS, ids=lambda check: check.__name__)
def test_exactly_the_marked_lines_are_errors(check: Callable[[], set[tuple[str, int]]]) -> None:
    assert len(expected()) >= 8
    assert check() == expected()
