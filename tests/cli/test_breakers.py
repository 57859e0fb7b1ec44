"""`fairlane breakers`: list, reset, open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlane import Breaker, Fairlane
from tests.cli.conftest import Run


@pytest.fixture
def store(url: str) -> str:
    """One breaker that opened by itself, one that never failed."""
    with Fairlane(url) as app:
        with pytest.raises(ConnectionError), app.breakers.guard(Breaker("smtp", threshold=1)):
            raise ConnectionError
        with app.breakers.guard("crm"):
            pass
    return url


@pytest.mark.requirement("L8")
def test_breakers_are_listed_with_what_matters(store: str, run: Run, answer: Callable[..., Any]) -> None:
    listed = run("breakers", "list", "--url", store)
    title, crm, smtp = listed.stdout.splitlines()
    assert title.split()[:3] == ["NAME", "STATE", "FAILURES"]
    assert crm.split()[:3] == ["crm", "closed", "0"]
    assert smtp.split()[:3] == ["smtp", "open", "1"]
    assert "in 1m" in smtp or "in 59s" in smtp
    assert [each["state"] for each in answer("breakers", "list", "--url", store)["breakers"]] == ["closed", "open"]


@pytest.mark.requirement("L8")
def test_breakers_are_opened_and_reset_under_a_name(store: str, run: Run, answer: Callable[..., Any]) -> None:
    assert run("breakers", "open", "crm", "--notes", "upgrade", "--url", store).stdout == "crm  open\n"
    assert "when reset" in run("breakers", "list", "--url", store).stdout
    assert answer("breakers", "reset", "crm", "--url", store)["state"] == "closed"
    records = answer("audit", "list", "--url", store)["records"]
    assert [(each["by"], each["action"], each["notes"]) for each in records] == [
        ("olga", "breaker_reset", None),
        ("olga", "breaker_force_open", "upgrade"),
    ]


def test_a_mistyped_breaker_is_answered_with_the_nearest(store: str, run: Run) -> None:
    reset = run("breakers", "reset", "smpt", "--url", store)
    assert (reset.exit_code, reset.stdout) == (3, "")
    assert 'no breaker named "smpt" has been used, so it is closed. Nearest: "smtp"' in reset.stderr
    opened = run("breakers", "open", "smpt", "--url", store)
    assert (opened.exit_code, opened.stdout) == (0, "smpt  open\n")
    assert 'Nearest: "smtp"' in opened.stderr
    assert run("breakers", "open", "no spaces", "--url", store).exit_code == 2


def test_without_breakers_a_hint_is_given(url: str, run: Run) -> None:
    run("migrate", "up", "--url", url)
    listed = run("breakers", "list", "--url", url)
    assert (listed.exit_code, listed.stdout) == (0, "")
    assert "no breaker has been used yet" in listed.stderr
