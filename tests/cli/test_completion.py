"""Completion in a shell: commands without importing them, and names that workers serve."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairlane import Fairlane
from tests.cli.conftest import Command, Run
from tests.faults.eventually import eventually

FAIRLANE = Path(sys.executable).with_name("fairlane")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(run: Run, shell: str) -> None:
    result = run("completion", shell)
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"_FAIRLANE_COMPLETE={shell}_complete" in result.stdout


def completed(directory: Path, *words: str, **env: str) -> list[str]:
    """What a real Bash offers, through the script that it was given."""
    typed = " ".join(words)
    program = f"""
    source <({FAIRLANE} completion bash)
    COMP_WORDS=({typed} {'""' if words[-1] == "''" else ""})
    COMP_CWORD=$(({len(words)} - 1))
    _fairlane_completion fairlane
    printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    path = f"{FAIRLANE.parent}:{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "--norc", "-c", program],
        cwd=directory,
        env={**os.environ, "PATH": path, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return ran.stdout.split()


def test_bash_completes_commands_options_and_names_that_workers_serve(tmp_path: Path, url: str) -> None:
    assert completed(tmp_path, "fairlane", "da") == ["dashboard"]
    assert completed(tmp_path, "fairlane", "jobs", "re") == ["retry", "reset"]
    assert "--status" in completed(tmp_path, "fairlane", "jobs", "list", "--s")
    with Fairlane(url) as app:

        @app.task(name="mail.send", queue="mail")
        def send(to: int) -> None: ...

        app.tenants.set("acme", weight=2.0, by="olga")
        with app.running():
            # On a busy machine the store may not answer within the patience of a shell.
            eventually(lambda: completed(tmp_path, "fairlane", "enqueue", "mail", FAIRLANE_URL=url) == ["mail.send"])
            eventually(lambda: completed(tmp_path, "fairlane", "queues", "pause", "ma", FAIRLANE_URL=url) == ["mail"])
            eventually(
                lambda: completed(tmp_path, "fairlane", "jobs", "list", "--url", url, "--tenant", "a") == ["acme"]
            )


def test_a_store_that_is_away_completes_nothing_and_says_nothing(command: Command, tmp_path: Path) -> None:
    for url in ("postgresql://someone@127.0.0.1:1/nothing", "sqlite:///missing.db", "nonsense"):
        variables = {
            "_FAIRLANE_COMPLETE": "bash_complete",
            "COMP_WORDS": "fairlane jobs list --queue ",
            "COMP_CWORD": "4",
        }
        ran = command(**variables, FAIRLANE_URL=url)
        assert (ran.returncode, ran.stdout.strip(), ran.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []
