"""Opening the store a URL names, or falling back."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from fairlane import ConfigError, Fairlane
from fairlane.errors import FairlaneError, StoreUnavailable
from fairlane.metrics import families
from fairlane.stores import open_store
from tests.support.stores import Ground, ground, open_at

__all__ = ["ground"]


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port nobody listens on, kept from others."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def hide(monkeypatch: pytest.MonkeyPatch, package: str, *stores: str) -> None:
    """Make a package look as if it were not installed."""
    for name in [name for name in sys.modules if name == package or name.startswith((f"{package}.", *stores))]:
        monkeypatch.delitem(sys.modules, name)

    class Hider:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name.partition(".")[0] == package:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [Hider(), *sys.meta_path])


@pytest.mark.requirement("Q4")
def test_the_url_chooses_the_store(tmp_path: Path) -> None:
    for url, name in (("memory://", "memory"), (f"sqlite:///{tmp_path}/a.db", "sqlite")):
        store = open_store(url)
        assert store.name == name
        store.close()
    assert (tmp_path / "a.db").exists()


def test_a_relative_sqlite_file_lies_in_the_working_directory(tmp_path: Path) -> None:
    open_store("sqlite:///jobs%20here.db").close()
    assert (tmp_path / "jobs here.db").exists()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite://host/file.db", "sqlite:///:memory:"])
def test_a_sqlite_address_without_a_file_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        open_store(url)


@pytest.mark.requirement("Q4")
def test_a_missing_package_is_named_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "psycopg", "fairlane.stores.postgres")
    with pytest.raises(ConfigError, match=r"needs psycopg, .*pip install 'fairlane\[postgres\]'") as raised:
        open_store("postgresql://user:hunter2@localhost/db")
    assert "hunter2" not in str(raised.value)


@pytest.mark.requirement("Q4")
def test_a_missing_redis_package_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "redis", "fairlane.stores.redis")
    with pytest.raises(ConfigError, match=r"needs redis, .*pip install 'fairlane\[redis\]'") as raised:
        open_store("redis://:hunter2@localhost")
    assert "hunter2" not in str(raised.value)


@pytest.mark.requirement("Q4")
def test_a_missing_package_leads_to_memory_with_a_warning_where_so_configured(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hide(monkeypatch, "redis", "fairlane.stores.redis")
    monkeypatch.setenv("USE_REDIS_QUEUE", "true")
    monkeypatch.setenv("REDIS_URL", "redis://:hunter2@localhost:1/0")
    with Fairlane() as app, caplog.at_level(logging.WARNING, "fairlane.client"):
        app.task(name="t")(lambda: None).enqueue()
        snapshot = app.snapshot()
    assert (snapshot["store"], snapshot["redis_active"], snapshot["depth"]) == ("memory", False, 1)
    [record] = caplog.records
    assert "continuing in memory" in record.message
    assert "hunter2" not in record.message


@pytest.mark.requirement("Q4", "Q11", "Q14", "Q16")
def test_the_documents_variables_open_redis_under_the_key_prefix(
    monkeypatch: pytest.MonkeyPatch, ground: Ground
) -> None:
    monkeypatch.setenv("USE_REDIS_QUEUE", "true")
    monkeypatch.setenv("REDIS_URL", ground.valkey.url)
    monkeypatch.setenv("FAIRLANE_KEY_PREFIX", "document")
    with Fairlane() as app:
        handle = app.task(name="t")(lambda: None).enqueue()
        snapshot = app.snapshot()
        assert (snapshot["store"], snapshot["redis_active"], snapshot["depth"]) == ("redis", True, 1)
        memory = next(family for family in families.store(app.statistics.health(), "redis") if "memory" in family.name)
        assert (memory.name, memory.samples[0].labels) == ("redis_memory_bytes", {"kind": "used"})
        assert memory.samples[0].value > 0
    with redis.Redis.from_url(ground.valkey.url) as client:
        assert client.hexists("{document}:id", handle.id.hex)


@pytest.mark.requirement("Q4")
def test_an_unreachable_server_is_refused_or_spooled_for_as_configured(
    dead_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"postgresql://user:hunter2@127.0.0.1:{dead_port}/db?connect_timeout=2"
    with Fairlane(url) as app:
        task = app.task(name="t")(lambda: None)
        with pytest.raises(StoreUnavailable) as raised:
            task.enqueue()
    assert "hunter2" not in str(raised.value)
    with Fairlane(url, fallback="memory") as app, caplog.at_level(logging.WARNING, "fairlane.client"):
        app.task(name="t")(lambda: None).enqueue()
        seen = app.snapshot()
        assert (seen["store"], seen["reachable"], seen["spooled"]) == ("postgresql", False, 1)
    assert "enqueues are spooled until it is back, in memory, where they are lost when this process ends" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_file_that_cannot_be_opened_is_one_clear_error(tmp_path: Path) -> None:
    with Fairlane(f"sqlite:///{tmp_path}/missing/jobs.db") as app, pytest.raises(FairlaneError, match="missing"):
        app.task(name="t")(lambda: None).enqueue()


def test_nothing_is_opened_before_the_first_operation(tmp_path: Path) -> None:
    with Fairlane(f"sqlite:///{tmp_path}/later.db") as app:
        task = app.task(name="t")(lambda: None)
        assert app.runtime.access.name == "sqlite"
        assert not (tmp_path / "later.db").exists()
        asyncio.run(task.aenqueue())
        assert (tmp_path / "later.db").exists()


def test_many_threads_open_one_store() -> None:
    with Fairlane("memory://") as app:
        task = app.task(name="t")(lambda: None)
        start = threading.Barrier(8)

        def enqueue() -> None:
            start.wait()
            task.enqueue()

        threads = [threading.Thread(target=enqueue) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert app.snapshot()["depth"] == 8


@pytest.mark.parametrize("kind", ["memory", "sqlite-apsw", "postgres", "redis"])
def test_a_call_that_blocks_an_event_loop_on_a_server_is_warned_of_once_and_made(
    ground: Ground, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    address = ground.address(kind)
    store = open_at(kind, address)
    app = Fairlane("memory://", store=store)
    task = app.task(name="t")(lambda: None)

    async def story() -> None:
        await task.aenqueue()
        await app.aenqueue_many([task.bind()])
        await asyncio.to_thread(task.enqueue)
        assert caplog.messages == []
        task.enqueue()
        line = sys._getframe().f_lineno - 1
        app.enqueue_many([task.bind()])
        app.tasks.enqueue("t", {})
        app.jobs.list()
        if kind in ("memory", "sqlite-apsw"):  # microseconds, and what tests run on
            assert caplog.messages == []
            return
        [said] = caplog.messages
        assert said.startswith(f"a call at {__file__}:{line} blocks the event loop that runs in its thread until the ")
        assert "`await task.aenqueue(…)`" in said

    task.enqueue()
    asyncio.run(story())
    assert app.snapshot()["ready"] == 7
    store.close()


def test_inline_jobs_may_be_enqueued_by_an_async_test(caplog: pytest.LogCaptureFixture) -> None:
    app = Fairlane("postgresql://nobody@127.0.0.1:1/none")
    ran: list[int] = []

    @app.task(name="t")
    def task(number: int) -> None:
        ran.append(number)

    async def story() -> None:
        with app.testing("inline"):
            task.enqueue(1)

    asyncio.run(story())
    assert ran == [1]
    assert caplog.messages == []
