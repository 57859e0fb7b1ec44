"""The HTTP API, the dashboard and the command line call the verbs of the client: they send no operation, and reach into no store."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import fairlane
from fairlane.core import ops

SOURCE = Path(fairlane.__file__).parent
FILES = [path for face in ("api", "cli", "web") for path in sorted((SOURCE / face).rglob("*.py"))]
OPERATIONS = {
    name
    for name, value in vars(ops).items()
    if isinstance(value, type) and issubclass(value, ops.Op) and value is not ops.Op
}
ABOUT_THE_STORE = {"cli/commands/healthcheck.py", "cli/commands/doctor.py", "cli/commands/snapshot.py"}
"""Health checks ask its migrator whether the schema fits, a snapshot names the store that is away."""


def reached(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fairlane.core.ops"):
            yield from (alias.name for alias in node.names if alias.name in OPERATIONS)
        if isinstance(node, ast.Attribute) and node.attr in {"access", "store"}:
            yield f".{node.attr}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_a_face_asks_the_client(path: Path) -> None:
    if path.relative_to(SOURCE).as_posix() not in ABOUT_THE_STORE:
        assert list(reached(path)) == []
