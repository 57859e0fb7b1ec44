"""What a worker refuses before it begins, each in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fairlane import Fairlane
from fairlane.core.profiles import Lane
from fairlane.errors import ConfigError, SchemaOutOfDate, StoreUnavailable, UnknownTask
from fairlane.worker.config import WorkerConfig
from fairlane.worker.foreman.main import check_application, check_store
from tests.client.test_store_access import hide
from tests.support.stores import Ground

Shop = Callable[..., Fairlane]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    def make(url: str = "", **settings: Any) -> Fairlane:
        app = Fairlane(url or f"sqlite:///{tmp_path}/jobs.db", **settings)

        @app.task(name="mail.send", queue="letters")
        def send() -> None: ...

        return app

    return make


CONFIG = WorkerConfig(app="shop")


def test_an_application_with_tasks_and_a_store_that_answers_may_run(shop: Shop) -> None:
    with shop() as app:
        check_application(app, replace(CONFIG, lanes=(Lane("post", 1, ("letters",)),), types=("mail.send",)))
        check_store(app)


def test_an_application_without_tasks_would_never_run_anything(tmp_path: Path) -> None:
    with Fairlane(f"sqlite:///{tmp_path}/jobs.db") as app, pytest.raises(ConfigError, match='"shop" has no tasks'):
        check_application(app, CONFIG)


def test_a_queue_nobody_names_is_a_slip(shop: Shop) -> None:
    with shop() as app, pytest.raises(ConfigError, match='Nearest: "letters"'):
        check_application(app, replace(CONFIG, lanes=(Lane("post", 1, ("leters",)),)))


def test_a_task_that_does_not_exist_is_a_slip(shop: Shop) -> None:
    with shop() as app, pytest.raises(UnknownTask, match=r'Nearest: "mail\.send"'):
        check_application(app, replace(CONFIG, types=("mail.sent",)))


def test_memory_cannot_be_shared_between_processes(shop: Shop) -> None:
    with shop("memory://") as app, pytest.raises(ConfigError, match="lives in one process"):
        check_application(app, CONFIG)


@pytest.mark.parametrize("fallback", ["refuse", "memory"])
def test_a_store_that_does_not_answer_is_never_replaced_by_memory(shop: Shop, fallback: str) -> None:
    with shop("postgresql://nobody@127.0.0.1:9/none", fallback=fallback) as app:
        check_application(app, CONFIG)
        with pytest.raises(StoreUnavailable):
            check_store(app)


def test_memory_does_not_stand_in_for_a_store_whose_package_is_missing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, "redis", "fairlane.stores.redis")
    with shop("redis://:hunter2@localhost", fallback="memory") as app, pytest.raises(ConfigError) as raised:
        check_application(app, CONFIG)
    assert "a worker does not fall back to memory" in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_a_database_without_the_schema_is_to_be_migrated_first(shop: Shop, ground: Ground) -> None:
    url = ground.server.create_database("unmigrated")
    with shop(url) as app, pytest.raises(SchemaOutOfDate, match="fairlane migrate up"):
        check_store(app)


def test_slots_of_a_lane_that_the_profile_does_not_have_are_a_slip(shop: Shop) -> None:
    with (
        shop(profile="isolation") as app,
        pytest.raises(ConfigError, match="no lane fast, but critical, default, bulk"),
    ):
        check_application(app, replace(CONFIG, fast_slots=2))
