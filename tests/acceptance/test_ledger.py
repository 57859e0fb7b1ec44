"""The ledger is complete, and no test can claim a row that is not in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import documents
from tools.requirements import LEDGER, Row, read_marks, read_rows, unplayed, untried

pytest_plugins = ["pytester"]


def test_the_ledger_holds_every_row_of_every_section_without_gaps() -> None:
    rows = read_rows()
    last = {"W": 16, "Q": 17, "I": 14, "L": 22, "S": 11, "D": 28}
    assert list(rows) == [f"{letter}{n}" for letter, count in last.items() for n in range(1, count + 1)]
    assert all(len(row.text) > 20 for row in rows.values())


def test_two_rows_with_one_id_are_refused(tmp_path: Path) -> None:
    page = tmp_path / "requirements.md"
    page.write_text("Proven: W1.\n\n| W1 | one thing |\n| W1 | another thing |\n")
    with pytest.raises(ValueError, match="two rows W1"):
        read_rows(page)


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("Proven: W1.\n", "W2 is proven, partial or open"),
        ("Proven: W1, W2, W3.\n", "W3, which are no rows"),
        ("Proven: W1, W2, W2.\n", "two states"),
        ("Proven: W1, W2.\n| open | W2 | all of it | Gates |\n", "two states"),
        ("Proven: W1.\n| partial | W2 | half of it | somebody |\n", "comes with 'somebody'; expected one of What"),
    ],
)
def test_a_row_has_one_state_and_what_is_missing_comes_with_a_known_part(
    tmp_path: Path, page: str, complaint: str
) -> None:
    ledger = tmp_path / "requirements.md"
    ledger.write_text(f"{page}\n| W1 | one thing |\n| W2 | another thing |\n")
    with pytest.raises(ValueError, match=complaint):
        read_rows(ledger)


def test_every_row_that_is_said_to_be_proven_is_named_by_a_test() -> None:
    assert untried(read_rows(), read_marks()) == []


def test_every_row_that_is_said_to_be_proven_is_played_by_a_scene() -> None:
    assert unplayed(read_rows(), read_marks()) == []


def test_a_test_that_names_a_row_is_no_scene_that_plays_it() -> None:
    rows = {
        name: Row(name, "text", "", state) for name, state in (("W1", "proven"), ("W2", "proven"), ("L22", "partial"))
    }  # type: ignore[arg-type]
    marks = {"W1": ["tests/acceptance/scenes/test_w.py::test_it"], "W2": ["tests/client/test_w.py::test_it"]}
    assert unplayed(rows, marks) == ["W2 is proven and no scene plays it"]


def test_a_row_that_is_proven_or_partial_without_a_test_is_reported() -> None:
    rows = {name: Row(name, "text", "", state) for name, state in (("W1", "proven"), ("W2", "partial"), ("W3", "open"))}  # type: ignore[arg-type]
    assert untried(rows, {"W1", "W2", "W3"}) == []
    assert untried(rows, {"W3"}) == [
        "W1 is proven and no test is marked with it",
        "W2 is partial and no test is marked with it",
    ]


def test_a_test_that_names_an_unknown_row_fails_and_one_that_names_a_known_row_runs(pytester: pytest.Pytester) -> None:
    marks = ['"W99"', '"W5", "w5"', "", '"W5", "D6"']
    tests = [f"@pytest.mark.requirement({rows})\ndef test_{n}(): pass\n" for n, rows in enumerate(marks)]
    root = LEDGER.parents[1]
    pytester.makeini(f"[pytest]\nmarkers = requirement(*ids): rows\npythonpath = {root}\n")
    pytester.makeconftest((root / "conftest.py").read_text())
    pytester.makepyfile("import pytest\n" + "".join(tests))
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:schemathesis", "--strict-markers")
    result.assert_outcomes(errors=3, passed=1)
    for complaint in ("has no row 'W99'", "has no row 'w5'", "names no row"):
        result.stdout.fnmatch_lines([f"*{complaint}*"])


@pytest.mark.parametrize(
    "name",
    [
        "retain_for_ever",
        "fairlane jobs revive",
        "fairlane jobs reset --now",
        "app.jobs.revive",
        "fairlane.Revived",
        "GET /api/jobs/admin/dlq/{id}/reprocess/",
        "@app.task(colour=…)",
        "task.using(cron=…).enqueue(…)",
        "jobs_revived_total",
    ],
)
def test_the_page_of_the_documents_names_nothing_that_is_not_there(name: str) -> None:
    page = "| `theirs` | `{}` | [more](more.md) |\n"
    assert list(documents.unknown_names(page.format(name))) == [name]
    assert list(documents.unknown_names(page.format("app.jobs.reset"))) == []
