"""An old job still runs after its payload's shape has changed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from fairlane.core.payload.codec import Upcasters, check_version
from fairlane.errors import InvalidOption, InvalidPayload


def two_steps() -> Upcasters:
    upcasters = Upcasters()

    @upcasters.register("mail.send", 1)
    def _(payload: dict[str, Any]) -> dict[str, Any]:
        return {"recipients": [payload["to"]]}

    @upcasters.register("mail.send", 2)
    def _(payload: dict[str, Any]) -> dict[str, Any]:
        return payload | {"urgent": False}

    return upcasters


@pytest.mark.requirement("W3", "L18")
def test_an_old_payload_climbs_step_by_step_to_todays_version() -> None:
    upcast = two_steps().upcast
    assert upcast("mail.send", {"to": "ada"}, 1, 3) == {"recipients": ["ada"], "urgent": False}
    assert upcast("mail.send", {"recipients": []}, 2, 3) == {"recipients": [], "urgent": False}
    assert upcast("mail.send", {"x": 1}, 3, 3) == {"x": 1}
    assert upcast("other", {"x": 1}, 1, 1) == {"x": 1}


def test_a_missing_step_is_named_with_what_to_register() -> None:
    with pytest.raises(InvalidPayload, match=r"no upcaster from version 3 to 4, 4 to 5.*from_version=3"):
        two_steps().upcast("mail.send", {"to": "ada"}, 1, 5)


def test_steps_of_another_task_do_not_count() -> None:
    with pytest.raises(InvalidPayload):
        two_steps().upcast("mail.receive", {}, 1, 2)


def test_a_step_is_registered_once() -> None:
    with pytest.raises(InvalidOption, match="no second upcaster"):
        two_steps().register("mail.send", 1)


def test_a_step_that_returns_no_dict_is_refused() -> None:
    upcasters = Upcasters()
    upcasters.register("t", 1)(lambda payload: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(InvalidPayload, match="must return a dict"):
        upcasters.upcast("t", {}, 1, 2)


@pytest.mark.parametrize("version", [0, -1, True, "1", 1.5, 40_000])
def test_a_version_is_a_small_whole_number_from_one_on(version: object) -> None:
    with pytest.raises(InvalidOption):
        check_version(version)


@pytest.mark.requirement("W3", "L18")
@settings(max_examples=40, deadline=None)
@given(
    renames=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 99)), min_size=1, max_size=8),
    values=st.lists(st.integers(-(2**31), 2**31), min_size=5, max_size=5),
    gap=st.integers(0, 8),
)
def test_a_job_of_every_older_version_runs_with_todays_arguments_or_says_which_step_is_missing(
    renames: list[tuple[int, int]], values: list[int], gap: int
) -> None:
    """Each version renames one argument and adds to it; the model does the same to plain dicts."""
    upcasters, versions = Upcasters(), [{f"a{n}": value for n, value in enumerate(values)}]
    for version, (argument, added) in enumerate(renames, 1):
        name = sorted(versions[-1])[argument]

        def step(payload: dict[str, Any], name: str = name, added: int = added, version: int = version) -> Any:
            payload[f"{name}v{version}"] = payload.pop(name) + added
            return payload

        versions.append(step(dict(versions[-1])))
        if version != gap:
            upcasters.register("task", version)(step)
    for version, stored in enumerate(versions, 1):
        if version <= gap < len(versions):
            with pytest.raises(InvalidPayload, match=f"from version .*{gap} to {gap + 1}"):
                upcasters.upcast("task", dict(stored), version, len(versions))
        else:
            assert upcasters.upcast("task", dict(stored), version, len(versions)) == versions[-1]
