"""Fairlane and its peers behind one face, each as its maintainers advise; run in a process of its own.

    python -m bench.peer_systems SYSTEM install|work|claim|fill|one|many|at_once|single [SLOTS|COUNT]

Every job is given a number, and appends eight bytes to the file that PEERS_DIARY names: counting them from outside costs every system the same.
Where the number is the time of the call, they are the seconds until the job started.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
import time
from collections.abc import Sequence
from typing import Any

DSN = os.environ.get("PEERS_DSN", "")
_diary = -1


def tick(n: int) -> None:
    write(struct.pack("<d", time.monotonic() - n / 1e6))


def write(entries: bytes) -> None:
    global _diary  # noqa: PLW0603 - one descriptor for the whole process
    if _diary < 0:
        _diary = os.open(os.environ["PEERS_DIARY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(_diary, entries)


class System:
    """What is measured of each. `put_many` is there where a system has a call for it."""

    put_many: Any = None
    callers = 0
    """How many may enqueue at once; 0: one after another."""

    @classmethod
    def works(cls) -> list[str]:
        drains = ["one", "start", "drain_1x10", "drain_1x100", "drain_2x100"]
        return drains + ["many"] * (cls.put_many is not None) + ["at_once"] * (cls.callers > 0)

    async def install(self) -> None: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def put(self, n: int) -> None:
        raise NotImplementedError

    async def work(self, slots: int) -> None:
        raise NotImplementedError

    async def fill(self, count: int) -> None:
        await self.open()
        await (self._one_by_one(count) if self.put_many is None else self._by_thousand(count))
        await self.close()

    async def one(self, count: int) -> None:
        await self._timed(self._one_by_one, count)

    async def many(self, count: int) -> None:
        await self._timed(self._by_thousand, count)

    async def at_once(self, count: int) -> None:
        await self._timed(self._at_once, count)

    async def single(self, count: int) -> None:
        """One job every 20 ms, each with the time of its call."""
        await self.open()
        for _ in range(count):
            await self.put(int(time.monotonic() * 1e6))
            await asyncio.sleep(0.02)
        await self.close()

    async def _one_by_one(self, count: int) -> None:
        for n in range(count):
            await self.put(n)

    async def _by_thousand(self, count: int) -> None:
        for first in range(0, count, 1000):
            await self.put_many(range(first, min(first + 1000, count)))

    async def _at_once(self, count: int) -> None:
        await asyncio.gather(*(self._one_by_one(count // self.callers) for _ in range(self.callers)))

    async def _timed(self, act: Any, count: int) -> None:
        await self.open()
        await act(count // 10)
        wall_s, cpu_s = time.monotonic(), time.process_time()
        await act(count)
        print(json.dumps({"wall_s": time.monotonic() - wall_s, "cpu_s": time.process_time() - cpu_s}))
        await self.close()


class Fair(System):
    """Our engine with one lane of so many slots, as `fairlane worker` runs it."""

    callers = 50

    def __init__(self) -> None:
        from fairlane import Fairlane

        self.app = Fairlane(DSN, profile="production")

        @self.app.task(name="peers.tick")
        async def run(n: int) -> None:
            tick(n)

        self.run = run

    async def install(self) -> None:
        self.app.runtime.store.migrator().up()  # type: ignore[union-attr]

    async def put(self, n: int) -> None:
        await self.run.aenqueue(n)

    async def put_many(self, numbers: Sequence[int]) -> None:
        await self.run.aenqueue_map([(n,) for n in numbers])

    async def close(self) -> None:
        await self.app.aclose()

    async def work(self, slots: int) -> None:
        async with self.app.running(slots=slots):
            await asyncio.Event().wait()


class PgQueuer(System):
    """asyncpg; a batch as large as the slots, its best."""

    async def _queries(self) -> Any:
        import asyncpg
        from pgqueuer.db import AsyncpgDriver
        from pgqueuer.queries import Queries

        return Queries(AsyncpgDriver(await asyncpg.connect(DSN)))

    async def install(self) -> None:
        await (await self._queries()).install()

    async def open(self) -> None:
        self.queries = await self._queries()

    async def put(self, n: int) -> None:
        await self.queries.enqueue("tick", str(n).encode())

    async def put_many(self, numbers: Sequence[int]) -> None:
        count = len(numbers)
        await self.queries.enqueue(["tick"] * count, [str(n).encode() for n in numbers], [0] * count)

    async def work(self, slots: int) -> None:
        from pgqueuer.qm import QueueManager

        manager = QueueManager(await self._queries())

        @manager.entrypoint("tick")
        async def run(job: Any) -> None:
            tick(int(job.payload))

        await manager.run(batch_size=slots)

    async def claim(self, batch: int) -> None:
        """Its two statements alone, one after the other: claim a batch, end it."""
        from datetime import timedelta
        from uuid import uuid4

        from pgqueuer.queries import EntrypointExecutionParameter

        queries, me, wanted = await self._queries(), uuid4(), {"tick": EntrypointExecutionParameter(0)}
        while True:
            jobs = await queries.dequeue(batch, wanted, me, None, timedelta(seconds=30))
            await queries.log_jobs([(job, "successful", None) for job in jobs])
            write(bytes(8 * len(jobs)))


class Procrastinate(System):
    def __init__(self) -> None:
        self.app = self._app()

    def _app(self) -> Any:
        import logging

        import procrastinate

        logging.getLogger("procrastinate").setLevel(logging.ERROR)

        app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=DSN))

        @app.task(name="tick")
        async def run(n: int) -> None:
            tick(n)

        return app

    async def install(self) -> None:
        async with self.app.open_async():
            await self.app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        await self.app.open_async()

    async def close(self) -> None:
        await self.app.close_async()

    async def put(self, n: int) -> None:
        await self.app.tasks["tick"].defer_async(n=n)

    async def put_many(self, numbers: Sequence[int]) -> None:
        await self.app.tasks["tick"].batch_defer_async(*({"n": n} for n in numbers))

    async def work(self, slots: int) -> None:
        async with self.app.open_async():
            await self.app.run_worker_async(concurrency=slots, install_signal_handlers=False)


class Chancy(System):
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

    def _job(self, n: int) -> Any:
        return self.chancy.Job(func="bench.peer_systems.chancy_tick", queue="peers", kwargs={"n": n})

    async def open(self) -> None:
        await self.app.__aenter__()

    async def close(self) -> None:
        await self.app.__aexit__(None, None, None)

    async def put(self, n: int) -> None:
        await self.app.push(self._job(n))

    async def put_many(self, numbers: Sequence[int]) -> None:
        async for _ in self.app.push_many([self._job(n) for n in numbers], batch_size=1000):
            pass

    async def work(self, slots: int) -> None:
        async with self.app as app:
            await app.declare(self._queue(slots), upsert=True)
            async with self.chancy.Worker(app, tags={"*"}) as worker:
                await worker.wait_for_shutdown()


async def chancy_tick(*, n: int) -> None:
    tick(n)


class Floor(System):
    """One table with one index, one statement: the least that keeps a job."""

    @classmethod
    def works(cls) -> list[str]:
        return ["one", "many"]

    async def open(self) -> None:
        import asyncpg

        conn = await asyncpg.connect(DSN)
        await conn.execute(
            "create table if not exists job (id bigserial primary key, payload jsonb not null, attempts int not null"
            " default 0, lease timestamptz not null default '-infinity');"
            "create index if not exists line on job (lease, id)"
        )
        self.single_put = await conn.prepare(
            "with n as (insert into job (payload) values ($1) returning id) select id, pg_notify('job', '') from n"
        )
        self.many_puts = await conn.prepare(
            "with n as (insert into job (payload) select * from unnest($1::jsonb[]) returning id) "
            "select array_agg(id), pg_notify('job', '') from n"
        )

    async def put(self, n: int) -> None:
        await self.single_put.fetch(json.dumps({"n": n}))

    async def put_many(self, numbers: Sequence[int]) -> None:
        await self.many_puts.fetch([json.dumps({"n": n}) for n in numbers])


class FairSqlite(Fair):
    """The same engine on a SQLite file, at full durability. One job is enqueued by a call that blocks, as huey's does."""

    async def put(self, n: int) -> None:
        self.run.enqueue(n)


class Huey(System):
    """SQLite in WAL with its default synchronous = FULL, results off, threads. It has no way to enqueue many at once."""

    def __init__(self) -> None:
        import logging

        from huey import SqliteHuey

        logging.getLogger("huey").setLevel(logging.ERROR)
        self.huey = SqliteHuey("peers", filename=DSN.removeprefix("sqlite:///"), results=False)

        self.run = self.huey.task(name="tick")(count_job)

    async def put(self, n: int) -> None:
        self.run(n)

    async def work(self, slots: int) -> None:
        consumer = self.huey.create_consumer(workers=min(slots, 10), worker_type="thread", periodic=False)
        consumer.start()
        await asyncio.Event().wait()


class FairRedis(FairSqlite):
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


class Dramatiq(System):
    """Its Redis broker with its default middleware, threads. It has no way to enqueue many at once."""

    def __init__(self) -> None:
        import dramatiq
        from dramatiq.brokers.redis import RedisBroker

        self.broker = RedisBroker(url=DSN)
        dramatiq.set_broker(self.broker)
        self.run = dramatiq.actor(count_job, actor_name="tick")
        self.dramatiq = dramatiq

    async def put(self, n: int) -> None:
        self.run.send(n)

    async def work(self, slots: int) -> None:
        self.dramatiq.Worker(self.broker, worker_threads=min(slots, 8)).start()
        await asyncio.Event().wait()


class Taskiq(System):
    """A stream with acknowledgements, its durable broker on Redis; coroutines."""

    def __init__(self) -> None:
        from taskiq_redis import RedisStreamBroker

        self.broker = RedisStreamBroker(url=DSN)

        @self.broker.task(task_name="tick")
        async def run(n: int) -> None:
            tick(n)

        self.run = run

    async def open(self) -> None:
        await self.broker.startup()

    async def close(self) -> None:
        await self.broker.shutdown()

    async def put(self, n: int) -> None:
        await self.run.kiq(n)

    async def work(self, slots: int) -> None:
        from taskiq.api import run_receiver_task

        await run_receiver_task(self.broker, max_async_tasks=slots, run_startup=True)


class Saq(System):
    """A list that workers block on; coroutines. Its results are not kept."""

    def __init__(self) -> None:
        from saq import Queue

        self.queue = Queue.from_url(DSN, name="peers", max_concurrent_ops=100)

    async def open(self) -> None:
        await self.queue.connect()

    async def put(self, n: int) -> None:
        await self.queue.enqueue("saq_tick", n=n, ttl=-1)

    async def close(self) -> None:
        await self.queue.disconnect()

    async def work(self, slots: int) -> None:
        from saq import Worker

        await self.queue.connect()
        await Worker(self.queue, [("saq_tick", saq_tick)], concurrency=slots).start()


async def saq_tick(_: Any, *, n: int) -> None:
    tick(n)


class Streaq(System):
    """Streams; coroutines; many at once by a pipeline. Results are not kept."""

    def __init__(self, slots: int = 10) -> None:
        from streaq import Worker

        self.worker = Worker(redis_url=DSN, concurrency=slots, queue_name="peers")

        @self.worker.task(name="tick", ttl=0, silent=True)
        async def run(n: int) -> None:
            tick(n)

        self.run = run

    async def open(self) -> None:
        await self.worker.__aenter__()

    async def put(self, n: int) -> None:
        await self.run.enqueue(n)

    async def put_many(self, numbers: Sequence[int]) -> None:
        await self.worker.enqueue_many([self.run.enqueue(n) for n in numbers])

    async def close(self) -> None:
        await self.worker.__aexit__(None, None, None)

    async def work(self, slots: int) -> None:
        await type(self)(slots).worker.run_async()


class Arq(System):
    """Polls every half second for up to five jobs a slot; results are not kept."""

    def __init__(self) -> None:
        from arq.connections import RedisSettings

        self.settings = RedisSettings.from_dsn(DSN)

    async def open(self) -> None:
        from arq import create_pool

        self.pool = await create_pool(self.settings)

    async def put(self, n: int) -> None:
        await self.pool.enqueue_job("arq_tick", n)

    async def work(self, slots: int) -> None:
        from arq.worker import Worker

        await Worker(
            [arq_tick], redis_settings=self.settings, max_jobs=slots, keep_result=0, log_results=False
        ).async_run()


async def arq_tick(_: Any, n: int) -> None:
    tick(n)


class Rq(System):
    """One job at a time without a fork for each, its quickest; results are not kept."""

    def __init__(self) -> None:
        from redis import Redis
        from rq import Queue

        self.redis = Redis.from_url(DSN)
        self.queue = Queue("peers", connection=self.redis)

    async def put(self, n: int) -> None:
        self.queue.enqueue(count_job, n, result_ttl=0)

    async def put_many(self, numbers: Sequence[int]) -> None:
        from rq import Queue

        self.queue.enqueue_many([Queue.prepare_data(named_job, (n,), result_ttl=0) for n in numbers])

    async def work(self, slots: int) -> None:
        from rq import SimpleWorker

        SimpleWorker([self.queue], connection=self.redis).work(logging_level="ERROR")


class Celery(System):
    """Threads, a prefetch for short tasks, no results: what its guide advises. It has no way to enqueue many at once."""

    def __init__(self) -> None:
        from celery import Celery

        self.app = Celery("peers", broker=DSN)
        self.app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=100, worker_hijack_root_logger=False)
        self.run = self.app.task(name="tick")(count_job)

    async def put(self, n: int) -> None:
        self.run.delay(n)

    async def work(self, slots: int) -> None:
        options = ["--pool=prefork", "--concurrency=1", "--loglevel=ERROR"]
        self.app.worker_main(["worker", *options, "--without-gossip", "--without-mingle", "--without-heartbeat"])


def count_job(n: int) -> None:
    tick(n)


named_job = "bench.peer_systems.count_job"


SYSTEMS: dict[str, type[System]] = {
    "fairlane": Fair,
    "pgqueuer": PgQueuer,
    "procrastinate": Procrastinate,
    "chancy": Chancy,
    "floor": Floor,
    "fairlane_sqlite": FairSqlite,
    "huey": Huey,
    "fairlane_redis": FairRedis,
    "huey_redis": HueyRedis,
    "dramatiq": Dramatiq,
    "taskiq": Taskiq,
    "saq": Saq,
    "streaq": Streaq,
    "arq": Arq,
    "rq": Rq,
    "celery": Celery,
}


def main() -> None:
    import uvloop

    name, act, *number = sys.argv[1:]
    system = SYSTEMS[name]()
    if name in ("rq", "celery") and act == "work":  # they handle signals, and want no loop around them
        system.work(0).send(None)  # type: ignore[attr-defined]
    else:
        uvloop.run(getattr(system, act)(*map(int, number)))


if __name__ == "__main__":
    main()
