"""A house for every test, and nothing of the machine that runs them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.house import ShopHouse, shop
from tests.support.stores import Ground, ground

__all__ = ["ground"]


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in list(os.environ):
        if variable.startswith(("FAIRLANE_", "REDIS_", "USE_REDIS")):
            monkeypatch.delenv(variable)


@pytest.fixture(scope="session")
def built() -> Iterator[ShopHouse]:
    """Building an API takes longer than most tests."""
    house = ShopHouse()
    yield house
    house.close()


@pytest.fixture(scope="session")
def built_on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShopHouse]:
    house = ShopHouse(shop(f"sqlite:///{tmp_path_factory.mktemp('house')}/jobs.db"))
    yield house
    house.close()


@pytest.fixture(scope="session")
def built_on_postgres(ground: Ground) -> Iterator[ShopHouse]:
    house = ShopHouse(shop(ground.address("postgres")))
    yield house
    house.close()


@pytest.fixture(
    params=[pytest.param("built", marks=pytest.mark.long), "built_on_sqlite", "built_on_postgres"],
    ids=["memory", "sqlite", "postgres"],
)
def on_each_store(request: pytest.FixtureRequest) -> ShopHouse:
    """In memory, which all other tests use, is the store of SQLite: the quick run has it once."""
    built: ShopHouse = request.getfixturevalue(request.param)
    return built.furnish()


@pytest.fixture
def house(built: ShopHouse) -> ShopHouse:
    return built.furnish()
