from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from fairlane.core.ops import Purge
from fairlane.testing.conformance.scene import Scene
from tests.isolation.house import House, Separated
from tests.support.stores import SCHEMA_TEMPLATE, Ground, ground

__all__ = ["ground"]

_numbers = itertools.count(1)


def new_house(ground: Ground) -> House:
    name = f"isolated{next(_numbers)}"
    ground.server.create_database(name, template=SCHEMA_TEMPLATE)
    return House(ground.server, name)


@pytest.fixture(scope="session")
def house(ground: Ground) -> House:
    """An isolated store for everybody who empties it first, or only reads its catalog."""
    return new_house(ground)


@pytest.fixture
def own_house(ground: Ground) -> House:
    """One for a test that alters it."""
    return new_house(ground)


@pytest.fixture(scope="session")
def separated(house: House) -> Iterator[Separated]:
    store = Separated(house)
    yield store
    store.close()


@pytest.fixture
def scene(separated: Separated) -> Scene:
    """An empty isolated store at noon, reached by its separated roles."""
    separated.run(Purge())
    return Scene(separated)
