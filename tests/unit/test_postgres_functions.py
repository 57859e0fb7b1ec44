"""Functions of the PostgreSQL schema stay short enough to be reviewed."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

LONGEST = 120
BODY = re.compile(r"^(?:as \$\$|begin atomic)$.*?^(?:\$\$;|end;)$", re.MULTILINE | re.DOTALL)
FOLDER = files("fairlane.stores.postgres") / "functions"
TEXTS = {f"{noun.name}/{file.name}": file.read_text("utf-8") for noun in FOLDER.iterdir() for file in noun.iterdir()}


def lengths(text: str) -> dict[str, int]:
    """Lines of each function, by its name: from `create` to the end of its body."""
    found: dict[str, int] = {}
    for name, start in [
        (m[1], m.start()) for m in re.finditer(r"^create or replace function (\w+)", text, re.MULTILINE)
    ]:
        body = BODY.search(text, start)
        head = text.index(";\n", start)
        end = body.end() if body is not None and body.start() < head else head + 1
        found[name] = text.count("\n", start, end) + 1
    return found


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_no_function_is_longer_than_a_reader_keeps_in_mind(name: str) -> None:
    assert {found: lines for found, lines in lengths(TEXTS[name]).items() if lines > LONGEST} == {}


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_no_line_is_wider_than_those_of_python(name: str) -> None:
    assert [line for line in TEXTS[name].splitlines() if len(line) > 120] == []


def test_lengths_are_counted_to_the_end_of_the_body() -> None:
    text = "create or replace function a() returns integer\nlanguage plpgsql\nas $$\nbegin\n  return 1;\nend\n$$;\n"
    assert lengths(text + "\ncreate or replace function b() returns integer language sql return 1;\n") == {
        "a": 7,
        "b": 1,
    }
