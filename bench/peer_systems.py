"""Fairlane and its peers behind one face: install, fill, work. Each as its maintainers advise; run in a process of its own.

    python -m bench.peer_systems SYSTEM install|fill|work [COUNT|SLOTS]

Every job is given its number, and appends one byte to the file that PEERS_DIARY names: counting them from outside costs every system the same.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

DSN = os.environ.get("PEERS_DSN", "")
_diary = -1


def tick() -> None:
    global _diary  # noqa: PLW0603 - one descriptor for the whole process
    if _diary < 0:
        _diary = os.open(os.environ["PEERS_DIARY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(_diary, b".")


class Fair:
    """Our engine with one lane of so many slots, as `fairlane worker` runs it."""

    def __init__(self) -> None:
        from fairlane import Fairlane

        self.app = Fairlane(DSN, profile="development")

        @self.app.task(name="peers.tick")
        async def run(n: int) -> None:
            tick()

        self.run = run

    async def install(self) -> None:
        self.app.runtime.store.migrator().up()  # type: ignore[union-attr]

    async def fill(self, count: int) -> None:
        for first in range(0, count, 1000):
            await self.app.aenqueue_many([self.run.bind(n) for n in range(first, first + 1000)])
        await self.app.aclose()

    async def work(self, slots: int) -> None:
        async with self.app.running(slots=slots):
            await asyncio.Event().wait()


class PgQueuer:
    """asyncpg; a batch as large as the slots, its best."""

    async def _queries(self) -> Any:
        import asyncpg
        from pgqueuer.db import AsyncpgDriver
        from pgqueuer.queries import Queries

        return Queries(AsyncpgDriver(await asyncpg.connect(DSN)))

    async def install(self) -> None:
        await (await self._queries()).install()

    async def fill(self, count: int) -> None:
        queries = await self._queries()
        for first in range(0, count, 1000):
            numbers = [str(n).encode() for n in range(first, first + 1000)]
            await queries.enqueue(["tick"] * 1000, numbers, [0] * 1000)

    async def work(self, slots: int) -> None:
        from pgqueuer.qm import QueueManager

        manager = QueueManager(await self._queries())

        @manager.entrypoint("tick")
        async def run(job: Any) -> None:
            int(job.payload)
            tick()

        await manager.run(batch_size=slots)


class Procrastinate:
    def _app(self) -> Any:
        import procrastinate

        app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=DSN))

        @app.task(name="tick")
        async def run(n: int) -> None:
            tick()

        return app

    async def install(self) -> None:
        async with (app := self._app()).open_async():
            await app.schema_manager.apply_schema_async()

    async def fill(self, count: int) -> None:
        async with (app := self._app()).open_async():
            for first in range(0, count, 1000):
                await app.tasks["tick"].batch_defer_async(*({"n": n} for n in range(first, first + 1000)))

    async def work(self, slots: int) -> None:
        async with (app := self._app()).open_async():
            await app.run_worker_async(concurrency=slots, install_signal_handlers=False)


class Chancy:
    """Coroutines, and eager polling: its switch for throughput."""

    def __init__(self) -> None:
        import logging

        import chancy

        quiet = logging.getLogger("peers.chancy")
        quiet.setLevel(logging.ERROR)
        self.chancy, self.app = chancy, chancy.Chancy(DSN, log=quiet)

    def _queue(self, slots: int) -> Any:
        return self.chancy.Queue(
            "peers", concurrency=slots, executor=self.chancy.Chancy.Executor.Async, eager_polling=True
        )

    async def install(self) -> None:
        async with self.app as app:
            await app.migrate()

    async def fill(self, count: int) -> None:
        async with self.app as app:
            jobs = [
                self.chancy.Job(func="bench.peer_systems.chancy_tick", queue="peers", kwargs={"n": n})
                for n in range(count)
            ]
            async for _ in app.push_many(jobs, batch_size=1000):
                pass

    async def work(self, slots: int) -> None:
        async with self.app as app:
            await app.declare(self._queue(slots), upsert=True)
            async with self.chancy.Worker(app, tags={"*"}) as worker:
                await worker.wait_for_shutdown()


async def chancy_tick(*, n: int) -> None:
    tick()


class FairSqlite(Fair):
    """The same engine on a SQLite file, at full durability."""


class Huey:
    """SQLite in WAL with its default synchronous = FULL, results off, threads. It has no way to enqueue many at once."""

    def __init__(self) -> None:
        import logging

        from huey import SqliteHuey

        logging.getLogger("huey").setLevel(logging.ERROR)
        self.huey = SqliteHuey("peers", filename=DSN.removeprefix("sqlite:///"), results=False)

        self.run = self.huey.task(name="tick")(count_job)

    async def install(self) -> None: ...

    async def fill(self, count: int) -> None:
        for n in range(count):
            self.run(n)

    async def work(self, slots: int) -> None:
        consumer = self.huey.create_consumer(workers=min(slots, 10), worker_type="thread", periodic=False)
        consumer.start()
        await asyncio.Event().wait()


class FairRedis(Fair):
    """The same engine on Redis."""

    async def install(self) -> None: ...


class HueyRedis(Huey):
    """Redis, results off, threads."""

    def __init__(self) -> None:
        import logging

        from huey import RedisHuey

        logging.getLogger("huey").setLevel(logging.ERROR)
        self.huey = RedisHuey("peers", url=DSN, results=False)
        self.run = self.huey.task(name="tick")(count_job)


class Dramatiq:
    """Its Redis broker with its default middleware, threads. It has no way to enqueue many at once."""

    def __init__(self) -> None:
        import dramatiq
        from dramatiq.brokers.redis import RedisBroker

        self.broker = RedisBroker(url=DSN)
        dramatiq.set_broker(self.broker)
        self.run = dramatiq.actor(count_job, actor_name="tick")
        self.dramatiq = dramatiq

    async def install(self) -> None: ...

    async def fill(self, count: int) -> None:
        for n in range(count):
            self.run.send(n)

    async def work(self, slots: int) -> None:
        self.dramatiq.Worker(self.broker, worker_threads=min(slots, 8)).start()
        await asyncio.Event().wait()


class Taskiq:
    """A stream with acknowledgements, its durable broker on Redis; coroutines."""

    def __init__(self) -> None:
        from taskiq_redis import RedisStreamBroker

        self.broker = RedisStreamBroker(url=DSN)

        @self.broker.task(task_name="tick")
        async def run(n: int) -> None:
            tick()

        self.run = run

    async def install(self) -> None: ...

    async def fill(self, count: int) -> None:
        await self.broker.startup()
        for n in range(count):
            await self.run.kiq(n)
        await self.broker.shutdown()

    async def work(self, slots: int) -> None:
        from taskiq.api import run_receiver_task

        await run_receiver_task(self.broker, max_async_tasks=slots, run_startup=True)


def count_job(n: int) -> None:
    tick()


SYSTEMS: dict[str, type[Any]] = {
    "fairlane": Fair,
    "pgqueuer": PgQueuer,
    "procrastinate": Procrastinate,
    "chancy": Chancy,
    "fairlane_sqlite": FairSqlite,
    "huey": Huey,
    "fairlane_redis": FairRedis,
    "huey_redis": HueyRedis,
    "dramatiq": Dramatiq,
    "taskiq": Taskiq,
}


def main() -> None:
    import uvloop

    system, act, *number = sys.argv[1:]
    uvloop.run(getattr(SYSTEMS[system](), act)(*map(int, number)))


if __name__ == "__main__":
    main()
