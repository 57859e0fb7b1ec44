from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from fairlane.stores.postgres import PostgresStore
from tests.faults.places import Place
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy
from tests.support.stores import SCHEMA_TEMPLATE, Ground, ground

__all__ = ["ground"]


@pytest.fixture
def place(ground: Ground) -> Place:
    """A migrated, empty database on the server all tests share."""
    dsn = ground.address("postgres")
    return Place(ground.server, dsn.rpartition("/")[2])


class Stores:
    """Opens stores that are closed with the test."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def open(self, dsn: str, **settings: Any) -> PostgresStore:
        store = PostgresStore(dsn, **settings)
        self._stack.callback(store.close)
        return store


@pytest.fixture
def stores() -> Iterator[Stores]:
    with ExitStack() as stack:
        yield Stores(stack)


@pytest.fixture
def store(stores: Stores, place: Place) -> PostgresStore:
    return stores.open(place.dsn)


@pytest.fixture
def proxy(place: Place) -> Iterator[Proxy]:
    with Proxy(place.server.port) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def own_server() -> Iterator[PostgresServer]:
    """A server that may be killed, restarted and set up as a test likes."""
    with PostgresServer({"max_prepared_transactions": "4"}) as server:
        store = PostgresStore(server.create_database(SCHEMA_TEMPLATE))
        store.migrator().up()
        store.close()
        yield server


_numbers = iter(range(1, 1000))


@pytest.fixture
def own_place(own_server: PostgresServer) -> Place:
    name = f"own{next(_numbers)}"
    own_server.create_database(name, template=SCHEMA_TEMPLATE)
    return Place(own_server, name)
