"""The ledger is complete, and no test can claim a row that is not in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.requirements import LEDGER, read_rows

pytest_plugins = ["pytester"]


def test_the_ledger_holds_every_row_of_every_section_without_gaps() -> None:
    rows = read_rows()
    last = {"W": 16, "Q": 17, "I": 14, "L": 22, "S": 11, "D": 21}
    assert list(rows) == [f"{letter}{n}" for letter, count in last.items() for n in range(1, count + 1)]
    assert all(len(row.text) > 20 for row in rows.values())


def test_two_rows_with_one_id_are_refused(tmp_path: Path) -> None:
    page = tmp_path / "requirements.md"
    page.write_text("| W1 | one thing |\n| W1 | another thing |\n")
    with pytest.raises(ValueError, match="two rows W1"):
        read_rows(page)


@pytest.mark.parametrize(
    ("mark", "complaint"),
    [
        ('requirement("W99")', "has no row 'W99'"),
        ('requirement("W5", "w5")', "has no row 'w5'"),
        ("requirement()", "names no row"),
    ],
)
def test_a_test_that_names_an_unknown_row_fails(pytester: pytest.Pytester, mark: str, complaint: str) -> None:
    result = run_with_our_conftest(pytester, f"import pytest\n@pytest.mark.{mark}\ndef test_it(): pass\n")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{complaint}*"])


def test_a_test_that_names_a_known_row_runs(pytester: pytest.Pytester) -> None:
    result = run_with_our_conftest(
        pytester, 'import pytest\n@pytest.mark.requirement("W5", "D6")\ndef test_it(): pass\n'
    )
    result.assert_outcomes(passed=1)


def run_with_our_conftest(pytester: pytest.Pytester, test: str) -> pytest.RunResult:
    root = LEDGER.parents[1]
    pytester.makeini(f"[pytest]\nmarkers = requirement(*ids): rows\npythonpath = {root}\n")
    pytester.makeconftest((root / "tests" / "conftest.py").read_text())
    pytester.makepyfile(test)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "--strict-markers")
