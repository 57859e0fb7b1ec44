"""Chaos: nothing acknowledged is lost, nothing overlaps, no limit is exceeded, and progress goes on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.chaos.chaos import Chaos
from tests.faults.conftest import own_place, own_server
from tests.faults.places import Place, ValkeyPlace
from tests.servers.valkey import ValkeyServer

__all__ = ["own_place", "own_server"]

LONG_S = float(os.environ.get("FAIRLANE_CHAOS_S", "120"))
SEED = int(os.environ.get("FAIRLANE_CHAOS_SEED", "1"))
SPANS = [
    pytest.param((6.0, 1), marks=pytest.mark.timeout(300)),
    pytest.param((LONG_S, 2), marks=[pytest.mark.long, pytest.mark.timeout(LONG_S + 600)]),
]
"""Seconds, and worker processes of each of the two hosts."""


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place | ValkeyPlace | Path]:
    if request.param == "postgres":
        yield request.getfixturevalue("own_place")
    elif request.param == "redis":
        with ValkeyServer() as server:
            yield ValkeyPlace(server)
    else:
        yield tmp_path / "jobs.db"


@pytest.mark.requirement("Q17", "I5")
@pytest.mark.parametrize("span", SPANS, ids=["quick", "long"])
def test_whatever_fails_nothing_is_lost_nothing_overlaps_and_progress_goes_on(
    store: Place | ValkeyPlace | Path,
    tmp_path: Path,
    span: tuple[float, int],
    record_property: Callable[[str, object], None],
) -> None:
    seconds, processes = span
    with closing(Chaos(store, tmp_path, SEED, processes)) as chaos:
        figures = chaos.run(seconds)
        record_property("figures", str(figures))
        assert not figures.wrong, "\n".join([*figures.wrong[:20], chaos.timeline])
