"""Priorities by name and by number."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.core.job import DEFAULT_PRIORITY, Priorities
from fairlane.errors import InvalidOption, UnknownPriority


@pytest.mark.requirement("Q1")
def test_the_usual_labels_have_their_numbers_and_normal_is_the_default() -> None:
    resolve = Priorities().resolve
    assert [resolve(label) for label in ("high", "normal", "low")] == [0, 5, 10]
    assert resolve("normal") == DEFAULT_PRIORITY


@pytest.mark.requirement("Q1")
@pytest.mark.parametrize("number", [0, 1, 100, 32_767])
def test_a_plain_number_means_what_it_says(number: int) -> None:
    assert Priorities().resolve(number) == number


@pytest.mark.requirement("Q1")
def test_an_application_names_its_own_labels() -> None:
    priorities = Priorities({"now": 0, "whenever": 1000})
    assert priorities.resolve("whenever") == 1000
    with pytest.raises(UnknownPriority):
        priorities.resolve("high")


@pytest.mark.requirement("Q1")
@pytest.mark.parametrize("label", ["hihg", "", "HIGH", "5"])
def test_an_unknown_label_is_an_error_that_names_the_known_ones(label: str) -> None:
    with pytest.raises(UnknownPriority, match="high, normal, low"):
        Priorities().resolve(label)


@pytest.mark.parametrize("number", [-1, 32_768, True, 1.5, None, b"high", float("nan")])
def test_a_number_out_of_range_or_of_another_kind_is_refused(number: Any) -> None:
    with pytest.raises(InvalidOption):
        Priorities().resolve(number)


@pytest.mark.parametrize("labels", [{"bad": -1}, {"bad": "0"}, {"": 1}, {"5": 1}, {7: 1}])
def test_labels_that_make_no_sense_are_refused_when_configured(labels: Any) -> None:
    with pytest.raises(InvalidOption):
        Priorities(labels)
