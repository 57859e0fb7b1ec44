from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stores import Ground, ground
from tests.worker.foreman.crew import Crew

__all__ = ["ground"]


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    """On a SQLite file."""
    crew = Crew(f"sqlite:///{tmp_path}/jobs.db", tmp_path)
    yield crew
    crew.close()


@pytest.fixture(params=["sqlite-apsw", "postgres"])
def shared_crew(request: pytest.FixtureRequest, ground: Ground, tmp_path: Path) -> Iterator[Crew]:
    """On every kind of store that survives its processes."""
    address = ground.address(request.param)
    crew = Crew(address if request.param == "postgres" else f"sqlite:///{address}", tmp_path)
    yield crew
    crew.close()
