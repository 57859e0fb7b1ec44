"""For every test: the stores to run it on, requirement marks that must name rows of the ledger, Hypothesis looks as
long as it was asked to, and the figures that a test records are printed at the end."""

from __future__ import annotations

import difflib
import gc
import os

import hypothesis
import pytest

from fairlane.stores.sqlite import borrowed
from fairlane.testing.conformance.faces import scene, waiting
from tests.support.stores import choose_faces, face, ground, mark_long, new_face, open_store
from tools.requirements import read_rows

__all__ = ["face", "ground", "new_face", "open_store", "scene", "waiting"]

ROWS = read_rows()

# Tests that are collected stay to the end: looking through them for garbage takes longer than collecting them.
gc.disable()

# The short run is the same every time: what it proves of a change does not hang on chance.
hypothesis.settings.register_profile("quick", deadline=None, derandomize=True)
hypothesis.settings.register_profile("long", deadline=None, print_blob=True, max_examples=2_000)
hypothesis.settings.load_profile("long" if os.environ.get("FAIRLANE_LONG") else "quick")


@pytest.fixture(autouse=True)
def no_library_chosen_by_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a test before this one has loaded SQLAlchemy does not choose the SQLite library of this one."""
    monkeypatch.setattr(borrowed, "USERS_OF_STDLIB", ())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test that claims to prove a row that does not exist."""
    for marker in item.iter_markers("requirement"):
        if not marker.args:
            pytest.fail('requirement() names no row; write for instance @pytest.mark.requirement("W5")', pytrace=False)
        for row in marker.args:
            if row not in ROWS:
                close = difflib.get_close_matches(str(row), ROWS, n=1, cutoff=0.3)
                nearest = f" Nearest: {close[0]}." if close else ""
                pytest.fail(f"docs/requirements.md has no row {row!r}.{nearest}", pytrace=False)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    choose_faces(metafunc)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_long(items)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]:
        for name, value in report.user_properties:
            if name == "figures":
                terminalreporter.write_line(f"{report.nodeid}\n  {value}")
