"""The guide as printed, in one psql session: every statement runs, and where the guide shows an answer, it is that one."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.supervisors.conftest import Database
from tests.support.stores import Ground

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "supervisors.md"
_BLOCK = re.compile(r"```sql\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)
MARK = "--- next block ---"


def cells(text: str) -> list[list[str]]:
    """The rows of psql's tables, without their frames."""
    return [
        [cell.strip() for cell in line.split("|")]
        for line in text.splitlines()
        if line.strip() and not re.fullmatch(r"[-+]+", line.strip())
    ]


@pytest.mark.requirement("S11", "S2", "S7")
def test_a_reader_with_psql_alone_can_walk_through_the_guide(db: Database, ground: Ground) -> None:
    blocks = _BLOCK.findall(GUIDE.read_text("utf-8"))
    script = "\n".join(f"{sql}\\echo '{MARK}'" for sql, _ in blocks)
    ran = subprocess.run(
        [ground.server.programs / "psql", "-Xq", "-v", "ON_ERROR_STOP=1", "-P", "footer=off", db.dsn],
        input=script, text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert [line.partition("ERROR:  ")[2].partition(":")[0] for line in ran.stderr.splitlines() if "ERROR" in line] == [
        "permission denied for view task",
        "the worker may not run function 'comms.send_email_supervisor; drop table comms.email_message'",
    ], ran.stderr
    answers = ran.stdout.split(f"{MARK}\n")[:-1]
    assert len(answers) == len(blocks)
    shown = [
        (cells(answer), cells(expected)) for answer, (_, expected) in zip(answers, blocks, strict=True) if expected
    ]
    assert len(shown) >= 5
    for answer, expected in shown:
        assert answer == expected
    assert db.one("select comms.has_send_email_succeeded_attempt(1)") is True
    assert db.ask("select error_message from queues.error") == [("connection refused",)]
