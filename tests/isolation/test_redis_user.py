"""The user of a Redis server as docs/reference/redis-keys.md has it: it does all that Fairlane does, and no more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from fairlane import Fairlane
from fairlane.testing import run_due
from tests.servers.valkey import ValkeyServer

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "redis-keys.md"
FOREIGN = "{shop}:orders"


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        [line] = re.findall(r"^user (fairlane .*)$", PAGE.read_text("utf-8"), re.MULTILINE)
        server.call("ACL", "SETUSER", *line.split())
        yield server


def url_of(server: ValkeyServer) -> str:
    return server.url.replace("redis://", "redis://fairlane:password@")


def test_it_does_all_that_fairlane_does(server: ValkeyServer) -> None:
    with Fairlane(url_of(server), profile="development") as app:
        add = app.task(name="add")(lambda a, b: a + b)
        with app.running(slots=2):
            assert add.enqueue(1, 2).result(timeout=10) == 3
        app.queues.pause("slow", by="ada")
        add.using(delay=60, tenant="acme").enqueue(3, 4)
        run_due(app)
        assert (len(app.jobs.list().jobs), len(app.audit.list().records)) == (2, 1)
        app.jobs.purge()
        assert not app.jobs.list().jobs


@pytest.mark.parametrize(
    "command",
    [
        ("GET", FOREIGN),
        ("EVAL", "return redis.call('get', KEYS[1])", "1", FOREIGN),
        ("EVAL", "return redis.call('get', ARGV[1])", "0", FOREIGN),
        ("PUBLISH", FOREIGN, "x"),
        ("SCRIPT", "FLUSH"),
        ("FUNCTION", "FLUSH"),
        ("FUNCTION", "DELETE", "shop"),
        ("KEYS", "*"),
        ("FLUSHDB",),
        ("FLUSHALL",),
        ("CONFIG", "GET", "requirepass"),
        ("ACL", "LIST"),
        ("CLIENT", "LIST"),
        ("SHUTDOWN",),
        ("MONITOR",),
        ("REPLICAOF", "NO", "ONE"),
        ("MIGRATE", "127.0.0.1", "1", "k", "0", "1"),
    ],
    ids=" ".join,
)
def test_it_does_no_more(server: ValkeyServer, command: tuple[str, ...]) -> None:
    server.call("SET", FOREIGN, "theirs")
    with redis.Redis.from_url(url_of(server)) as ours, pytest.raises(redis.ResponseError, match=r"(?i)permission"):
        ours.execute_command(*command)
