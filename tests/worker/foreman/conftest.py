from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane.core.ops import Purge
from tests.support.stores import Ground, ground
from tests.worker.foreman.crew import Crew

__all__ = ["ground"]

LONG = pytest.mark.long


def crew_on(kind: str, ground: Ground, directory: Path) -> Iterator[Crew]:
    address = ground.address(kind)
    urls = {"postgres": address, "redis": address.split()[0], "sqlite-apsw": f"sqlite:///{address}"}
    crew = Crew(urls[kind], directory)
    if kind == "redis":
        crew.app.runtime.store.run(Purge())  # all of them have the usual prefix
    yield crew
    crew.close()


@pytest.fixture(params=["sqlite-apsw", pytest.param("postgres", marks=LONG)])
def crew(request: pytest.FixtureRequest, ground: Ground, tmp_path: Path) -> Iterator[Crew]:
    """On SQLite in the quick run, on PostgreSQL too in the long one."""
    yield from crew_on(request.param, ground, tmp_path)


@pytest.fixture(params=["sqlite-apsw", "postgres", "redis"])
def every_crew(request: pytest.FixtureRequest, ground: Ground, tmp_path: Path) -> Iterator[Crew]:
    """On every store that processes share."""
    yield from crew_on(request.param, ground, tmp_path)


@pytest.fixture(params=["postgres", pytest.param("sqlite-apsw", marks=LONG)])
def postgres_crew(request: pytest.FixtureRequest, ground: Ground, tmp_path: Path) -> Iterator[Crew]:
    """The other way round."""
    yield from crew_on(request.param, ground, tmp_path)
