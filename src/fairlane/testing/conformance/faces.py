"""The fixtures of the suite: a store in both colours, empty or new, made by the fixture `open_store` of its author."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from fairlane.core.ids import WorkerId
from fairlane.core.ops import Op, Purge, Renew
from fairlane.stores.base import Capability, Listener, Store
from fairlane.testing.conformance.scene import Scene

T = TypeVar("T")

COLOURS = ("sync", "async")

NEVER_S = 20.0
"""As long as a test waits for a wake-up that has to come."""


class Face:
    """A store in one colour: the async one runs on an event loop of its own."""

    def __init__(self, store: Store, colour: str) -> None:
        self.store, self.colour = store, colour
        self._loop = asyncio.new_event_loop() if colour == "async" else None

    @property
    def capabilities(self) -> frozenset[Capability]:
        return self.store.capabilities

    def run(self, op: Op[T], *, on: object | None = None) -> T:
        if self._loop is None:
            return self.store.run(op, on=on)
        return self._loop.run_until_complete(self.store.arun(op, on=on))

    def close_store(self) -> None:
        if self._loop is None:
            self.store.close()
        else:
            self._loop.run_until_complete(self.store.aclose())

    def close(self) -> None:
        self.close_store()
        if self._loop is not None:
            self._loop.close()


class WaitingWorker:
    """A worker that waits for anything to do."""

    def __init__(self, face: Face) -> None:
        self.scene, self.store = Scene(face), face.store
        self.worker: WorkerId = self.scene.making.worker_id()
        self.listener: Listener = face.store.listener(self.worker)

    def wait_for(self, act: Callable[[], object], within_s: float = NEVER_S) -> bool:
        address = self.listener.address
        self.scene.run(Renew(worker=self.worker, lease_s=6000, name="waits", wake_address=address))
        self.scene.turn(self.worker, waiting=True)
        while self.listener.wait(0.0):
            pass
        act()
        return self.listener.wait(within_s)


@pytest.fixture(scope="session", params=COLOURS)
def face(request: pytest.FixtureRequest, open_store: Callable[[], Store]) -> Iterator[Face]:
    """The store that most tests share; each empties it first."""
    face = Face(open_store(), request.param)
    yield face
    face.close()


@pytest.fixture
def scene(face: Face) -> Scene:
    """An empty store at noon."""
    face.run(Purge())
    return Scene(face)


@pytest.fixture(params=COLOURS)
def new_face(request: pytest.FixtureRequest, open_store: Callable[[], Store]) -> Iterator[Face]:
    """A store nobody else uses: for tests that close it or look at it from outside."""
    face = Face(open_store(), request.param)
    yield face
    face.close()


@pytest.fixture
def waiting(open_store: Callable[[], Store]) -> Iterator[WaitingWorker]:
    """A worker that waits at a store of its own."""
    face = Face(open_store(), "sync")
    waiting = WaitingWorker(face)
    yield waiting
    waiting.listener.close()
    face.close()
