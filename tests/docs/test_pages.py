"""Pages of the documentation work as printed: their Python runs, their settings load, their commands exist."""

from __future__ import annotations

import ast
import os
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from fairlane import testing
from fairlane.cli.main import cli
from fairlane.client.settings.load import load
from tests.docs import page_program
from tests.support.commands import COMMANDS
from tests.support.stores import Ground, ground

__all__ = ["ground"]

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
FENCED = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`(fairlane [^`\n]+)`")

TRIED_ELSEWHERE = {
    "README.md": "tests/acceptance/test_examples.py",
    "docs/quickstart.md": "tests/acceptance/test_examples.py",
    "docs/guides/django.md": "tests/contrib",
    "docs/guides/supervisors.md": "tests/supervisors",
    "docs/guides/testing.md": "tests/testing",
    "docs/guides/writing-a-store.md": "tests/testing",
}
"""Pages whose Python needs more than a directory and a database, or whose output is compared, and who runs it."""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, *languages: str) -> Iterator[str]:
    return (text for language, text in FENCED.findall(page.read_text("utf-8")) if language in languages)


PROGRAMS = [
    page
    for page in PAGES
    if page_program.BLOCK.search(page.read_text("utf-8")) and name_of(page) not in TRIED_ELSEWHERE
]


@pytest.mark.parametrize("page", PROGRAMS, ids=name_of)
def test_the_python_of_a_page_runs_as_printed(page: Path, ground: Ground, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE")}
    environment["DATABASE_URL"] = ground.address("postgres")
    program = page_program.__file__
    ran = COMMANDS.run([str(page)], cwd=tmp_path, env=environment, program=program, strict=True)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("page", [page for page in PAGES if any(blocks(page, "toml"))], ids=name_of)
def test_the_settings_of_a_page_load(page: Path, tmp_path: Path) -> None:
    for number, text in enumerate(blocks(page, "toml")):
        config = tmp_path / f"{number}.toml"
        config.write_text(text, "utf-8")
        if "project" not in tomllib.loads(text):
            load({}, config=config)


def test_the_python_reference_has_every_public_name_of_the_testing_kit() -> None:
    source = ast.parse(Path(testing.__file__).read_text("utf-8"))
    exported = {
        name.name for node in ast.walk(source) if isinstance(node, ast.ImportFrom) for name in node.names if name.asname
    }
    defined = {node.name for node in source.body if isinstance(node, ast.FunctionDef)}
    page = (
        (ROOT / "docs/reference/python.md").read_text("utf-8").partition("## fairlane.testing")[2].partition("\n## ")[0]
    )
    said = set(re.findall(r"^### (\w+)$|^\| `(\w+)`", page, re.MULTILINE))
    assert {name for pair in said for name in pair if name} == (exported | defined) - {"arun_due"}


def test_every_command_of_the_documentation_exists() -> None:
    found = [
        f"{name_of(page)}: {line}: {problem}"
        for page in PAGES
        if name_of(page) != "docs/reference/cli.md"  # printed by the commands themselves
        for text in blocks(page, "", "console", "sh", "bash")
        for line in text.splitlines()
        if (problem := problem_with(line))
    ]
    assert found == []


def test_every_command_named_in_a_sentence_exists() -> None:
    """In pages, and in the messages and docstrings of the code."""
    texts = [(page, FENCED.sub("", page.read_text("utf-8"))) for page in PAGES]
    texts += [(file, file.read_text("utf-8")) for file in sorted((ROOT / "src").rglob("*.py"))]
    found = [
        f"{name_of(file)}: {line}: {problem}"
        for file, text in texts
        for line in NAMED.findall(text)
        if (problem := problem_with(line)) and not problem.endswith("requires an argument.")
    ]
    assert found == []


def problem_with(line: str) -> str | None:
    """Why a line that calls `fairlane` could not be typed; None where it could, or calls something else."""
    line = re.split("  #|…|[{\\[]", line.removeprefix("$ "))[0].strip()
    if not line.startswith("fairlane "):
        return None
    words = shlex.split(line.split(" | ")[0].split(" > ")[0].split(" && ")[0].rstrip("\\ "))[1:]
    command: click.Command = cli
    context = click.Context(command, info_name="fairlane")
    try:
        while isinstance(command, click.Group):
            words = command.make_parser(context).parse_args(words)[1]
            if not words:
                return None
            name, found, words = command.resolve_command(context, words)
            assert found is not None
            command, context = found, click.Context(found, info_name=name, parent=context)
        command.make_parser(context).parse_args(words)
    except click.exceptions.MissingParameter:
        return None  # a line that goes on in the next
    except click.UsageError as error:
        return error.format_message()
    return None
