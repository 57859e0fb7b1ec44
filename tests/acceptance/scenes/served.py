"""A real `fairlane dashboard`, and a shell in which the commands of a page are typed against it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[3]
FENCED = re.compile(r"^```(console|json|sql)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Served:
    """The dashboard of one store on a free port; `names` are variables of the shell."""

    def __init__(self, url: str, directory: Path, *printed: str) -> None:
        self._printed = printed
        """Addresses in pages, which mean this server."""
        self._directory = directory
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
        self.names = {**kept, "PATH": path, "FAIRLANE_URL": url, "LOGNAME": "mira"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fairlane", "dashboard", "--port", "0"],
            cwd=directory,
            env=self.names,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        said = self._process.stderr.readline() + self._process.stderr.readline()
        self.address = re.findall(r"http://[\d.:]+", said)[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.communicate(timeout=30)

    def type(self, command: str) -> str:
        """What one command prints."""
        for address in self._printed:
            command = command.replace(address, self.address)
        command = re.sub(r"^curl ", "curl --silent --show-error --fail-with-body ", command)
        ran = subprocess.run(
            ["bash", "-c", command],
            check=False,
            cwd=self._directory,
            env=self.names,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
        return ran.stdout.strip()


def printed(page: str, section: str) -> Iterator[tuple[str, str]]:
    """The commands, answers and SQL of a page's section, one after the other: each with its language."""
    text = (ROOT / "docs" / page).read_text("utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    for language, block in FENCED.findall(text):
        if language == "console":
            for command in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                yield "console", command.replace("\\\n", " ").split("\nfl_…")[0].strip()
        elif language == "sql":
            yield from (("sql", statement.strip()) for statement in block.split(";\n") if statement.strip())
        else:
            yield language, block


def has_the_fields_of(answer: Any, example: Any) -> bool:
    """Whether an answer has the fields of a page's example, at any depth, and its words. It may have more fields."""
    if isinstance(example, dict):
        return (
            isinstance(answer, dict)
            and answer.keys() >= example.keys()
            and all(has_the_fields_of(answer[name], example[name]) for name in example)
        )
    if isinstance(example, list):
        return isinstance(answer, list) and all(has_the_fields_of(answer[0], one) for one in example)
    is_word = isinstance(example, str) and not re.search(r"\d", example)
    return bool(answer == example) if is_word else isinstance(answer, type(example))


def answer_of(text: str) -> Any:
    return json.loads(text)
