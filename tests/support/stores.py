"""Every store the suites run on, in both colours, each on ground of its own."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from fairlane.core.clock import Clock
from fairlane.core.ops import Op
from fairlane.stores.base import Capability, Store
from fairlane.testing.conformance.faces import COLOURS, Face
from tests.model import Model
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.servers.valkey import ValkeyCluster, ValkeyServer

T = TypeVar("T")

KINDS = ("memory", "sqlite-apsw", "sqlite-stdlib", "postgres", "postgres-pgbouncer", "redis")
SHARED_KINDS = tuple(kind for kind in KINDS if kind != "memory")
SCHEMA_TEMPLATE = "fairlane_template"


class Ground:
    """Where stores under test live: one directory, and servers started when first needed."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="fairlane-stores-"))
        self._numbers = itertools.count(1)

    @cached_property
    def server(self) -> PostgresServer:
        from fairlane.stores.postgres import PostgresStore

        server = PostgresServer()
        server.start()
        store = PostgresStore(server.create_database(SCHEMA_TEMPLATE))
        migrator = store.migrator()
        assert migrator is not None
        migrator.up()
        store.close()
        return server

    @cached_property
    def pooler(self) -> PgBouncer:
        pooler = PgBouncer(self.server)
        pooler.start()
        return pooler

    @cached_property
    def valkey(self) -> ValkeyServer | ValkeyCluster:
        """One server, or with REDIS_CLUSTER three that are one cluster."""
        kind = ValkeyCluster if os.environ.get("REDIS_CLUSTER") else ValkeyServer
        valkey = kind(appendfsync="everysec")
        valkey.start()
        return valkey

    def address(self, kind: str) -> str:
        """A new, empty place for a store of this kind: a file, a migrated database, or a prefix of keys."""
        number = next(self._numbers)
        if kind == "redis":
            return f"{self.valkey.url} jobs{number}"
        if kind == "memory":
            return ""
        if kind.startswith("sqlite"):
            return str(self.directory / f"jobs{number}.db")
        database = f"jobs{number}"
        dsn = self.server.create_database(database, template=SCHEMA_TEMPLATE)
        return self.pooler.dsn(database) if kind == "postgres-pgbouncer" else dsn

    def close(self) -> None:
        for server in ("pooler", "server", "valkey"):
            if server in self.__dict__:
                self.__dict__[server].close()
        shutil.rmtree(self.directory, ignore_errors=True)


def open_at(kind: str, address: str) -> Store:
    """Open the store of one kind at an address of its ground; any process may."""
    if kind == "memory":
        from fairlane.stores.sqlite import MemoryStore

        return MemoryStore()
    if kind.startswith("sqlite"):
        from fairlane.stores.sqlite import SqliteStore

        return SqliteStore(address, library=kind.removeprefix("sqlite-"))
    if kind == "redis":
        from fairlane.stores.redis import RedisStore

        url, prefix = address.split()
        return RedisStore(url, key_prefix=prefix)
    from fairlane.stores.postgres import PostgresStore

    return PostgresStore(address)


class Timed:
    """A store whose time is that of a clock, whatever its own says."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self.name, self.capabilities = store.name, store.capabilities
        self.migrator, self.listener = store.migrator, store.listener
        self.close, self.aclose = store.close, store.aclose

    def run(self, op: Op[Any], *, on: object | None = None) -> Any:
        return self._store.run(replace(op, now=self._clock.now()), on=on)

    async def arun(self, op: Op[Any], *, on: object | None = None) -> Any:
        return await self._store.arun(replace(op, now=self._clock.now()), on=on)


class Oracle:
    """The model as a face: what it answers has to pass the same tests."""

    capabilities: frozenset[Capability] = frozenset()

    def __init__(self) -> None:
        self._model = Model()

    def run(self, op: Op[T]) -> T:
        answer: T = self._model.run(op)
        return answer


_GROUND = pytest.StashKey[Ground]()


@pytest.fixture(scope="session")
def ground(pytestconfig: pytest.Config) -> Ground:
    """One for the whole run, whichever suites ask for it."""
    if _GROUND not in pytestconfig.stash:
        pytestconfig.stash[_GROUND] = ground = Ground()
        pytestconfig.add_cleanup(ground.close)
    return pytestconfig.stash[_GROUND]


EVERY_FACE = [(kind, colour) for kind in KINDS for colour in COLOURS]


# In memory the asynchronous call is the synchronous one: only tests with a store of their own try both.
SHARED_FACES = [face for face in EVERY_FACE if face != ("memory", "async")]
VARIANTS = (("memory", "sync"), ("sqlite-stdlib", "async"), ("postgres-pgbouncer", "sync"))
"""Stores that differ from another below both colours: in the connection, in the library, in what passes statements on."""


_TURNS = pytest.StashKey["itertools.count[int]"]()


def choose_faces(metafunc: pytest.Metafunc) -> None:
    """Give each test on `face` the model and the stores it runs on.

    With `-m "not long"` these are SQLite, PostgreSQL and Redis, in one colour by turns, and one variant by turns; else every
    store in both colours. Choosing here and not among collected tests halves what is collected.
    """
    if "face" not in metafunc.fixturenames or "face" in vars(metafunc.module):
        return
    faces = SHARED_FACES
    if metafunc.config.option.markexpr == "not long":
        turn = next(metafunc.config.stash.setdefault(_TURNS, itertools.count()))
        kinds = ("sqlite-apsw", "postgres", "redis")
        faces = [(kind, COLOURS[(turn + n) % 2]) for n, kind in enumerate(kinds)] + [VARIANTS[turn % len(VARIANTS)]]
    metafunc.parametrize("face", [("model", "sync"), *faces], ids="-".join, indirect=True, scope="session")


def mark_long(items: Sequence[pytest.Item]) -> None:
    """Leave to the long run what the short one need not do again: it runs a test on `url` on a file or in memory by turns,
    which is the same store.
    """
    turns: dict[str, int] = {}
    for item in items:
        params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if params.get("url") in (urls := ("memory", "sqlite")):
            turn = turns.setdefault(item.nodeid.replace(params["url"], ""), len(turns))
            if params["url"] != urls[turn % 2]:
                item.add_marker("long")


@pytest.fixture(scope="session")
def face(request: pytest.FixtureRequest, ground: Ground) -> Iterator[Face | Oracle]:
    """Every store, sync and async, and the model that judges them elsewhere."""
    kind, colour = request.param
    if kind == "model":
        yield Oracle()
        return
    face = Face(open_at(kind, ground.address(kind)), colour)
    yield face
    face.close()


@pytest.fixture(params=EVERY_FACE, ids="-".join)
def new_face(request: pytest.FixtureRequest, ground: Ground) -> Iterator[Face]:
    """A store nobody else uses: for tests that close it or look at it from outside."""
    kind, colour = request.param
    face = Face(open_at(kind, ground.address(kind)), colour)
    yield face
    face.close()


@pytest.fixture(params=[kind for kind in KINDS if kind != "postgres-pgbouncer"])
def open_store(request: pytest.FixtureRequest, ground: Ground) -> Callable[[], Store]:
    """Opens new stores that can wake workers: through a transaction pooler nobody hears a wake-up."""
    return lambda: open_at(request.param, ground.address(request.param))
