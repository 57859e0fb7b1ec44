"""Supervisors on PostgreSQL: e-mail processes from kickoff to success through a local SMTP server, and what it costs to
dequeue by SQL beside a growing number of completed tasks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

import psycopg

from fairlane.stores.postgres import PostgresStore
from fairlane.supervisors.contract import CONTRACT
from tests.servers.ports import free_port
from tests.servers.postgres import PostgresServer

EXAMPLES = Path(__file__).parents[1] / "examples" / "supervisors"
PROCESSES, PER_SECOND = 1_000, 200
COMPLETED, SAMPLES, FLAT = (1_000, 1_000_000), 300, 1.5

SINK = """
import asyncio, sys
class Session(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.data, self.body = transport, b"", False
        transport.write(b"220 sink\\r\\n")
    def data_received(self, data):
        self.data += data
        while b"\\r\\n" in self.data:
            line, _, self.data = self.data.partition(b"\\r\\n")
            if self.body:
                if line == b".":
                    self.body = False
                    self.transport.write(b"250 taken\\r\\n")
                continue
            word = line[:4].upper()
            self.body = word == b"DATA"
            self.transport.write(b"354 go\\r\\n" if self.body else b"221 bye\\r\\n" if word == b"QUIT" else b"250 sink\\r\\n")
async def main():
    server = await asyncio.get_running_loop().create_server(Session, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()
asyncio.run(main())
"""
"""A mail server that only takes: aiosmtpd alone needs more than a core for 200 messages a second."""


def emails(dsn: str, port: int) -> float:
    """Processes a second, from the first kickoff to the last success."""
    slots = '{"supervisors": {"slots": "20/process"}}'
    environment = {**os.environ, "FAIRLANE_URL": dsn, "SMTP_PORT": str(port), "FAIRLANE_QUEUES": slots}
    command = [sys.executable, "-m", "fairlane", "worker", "examples.supervisors.channels:app"]
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute((EXAMPLES / "email.sql").read_text().encode())
        conn.execute(
            "insert into comms.email_message (to_address, subject, body) select n || '@example.com', 'Hi', 'Hello' "
            "from generate_series(0, %s) n",
            (PROCESSES,),
        )
        worker = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            conn.execute("select comms.kickoff_send_email(1)")  # the worker is up
            succeeded(conn, 1)
            began_s = perf_counter()
            for first in range(0, PROCESSES, 100):
                conn.execute(
                    "select comms.kickoff_send_email(n) from generate_series(%s::bigint, %s) n",
                    (first + 2, first + 101),
                )
            succeeded(conn, PROCESSES + 1)
            return PROCESSES / (perf_counter() - began_s)
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(60)


def succeeded(conn: psycopg.Connection[tuple[int]], count: int, within_s: float = 120.0) -> None:
    ends_s = perf_counter() + within_s
    while conn.execute("select count(*) from comms.send_email_attempt_succeeded").fetchone() != (count,):
        if perf_counter() > ends_s:
            raise TimeoutError
        sleep(0.02)


def dequeue_ms(conn: psycopg.Connection[tuple[int]], completed: int) -> float:
    """The median of dequeue and complete, with this many completed tasks."""
    [(there,)] = conn.execute("select count(*) from queues.task_completed").fetchall()
    conn.execute(
        "with made as (insert into fairlane.job (id, type, tenant, queue, band, rank, payload, payload_version, max_attempts, "
        "timeout_s, enqueued_at, due_at) select gen_random_uuid(), 'email', 'system', 'supervisors', 5, 0, '{}', 1, 5, 300, "
        "now(), now() from generate_series(1, %s) returning seq, due_at) "
        "insert into fairlane.done (seq, status, finished_at, due_at, attempt, attempts, crashes) "
        "select seq, 'completed', now(), due_at, 1, 0, 0 from made",
        (completed - there,),
    )
    conn.execute("vacuum analyze fairlane.ready, fairlane.job, fairlane.done, fairlane.lease, fairlane.worker")
    conn.execute("select queues.enqueue('email', '{}') from generate_series(1, %s)", (SAMPLES,))
    took = []
    for _ in range(SAMPLES):
        began_s = perf_counter()
        [(task,)] = conn.execute("select task_id from queues.dequeue_next_available_task()").fetchall()
        conn.execute("select queues.complete_task(%s)", (task,))
        took.append(perf_counter() - began_s)
    return median(took) * 1000


def main() -> None:
    port = free_port()
    sink = subprocess.Popen([sys.executable, "-c", SINK, str(port)])
    try:
        with PostgresServer() as server:
            dsn = server.create_database("supervisors")
            store = PostgresStore(dsn)
            for migrator in (store.migrator(), store.migrator(CONTRACT)):
                migrator.up()
            store.close()
            rate = emails(dsn, port)
            print(
                f"  {PROCESSES:,} e-mail processes: {rate:.0f} a second, from kickoff to success (asked for: {PER_SECOND})"
            )
            with psycopg.connect(dsn, autocommit=True) as conn:
                conn.execute("select fairlane.purge_v1('{}')")
                few, many = (dequeue_ms(conn, completed) for completed in COMPLETED)
            print(
                f"  dequeue and complete by SQL: {few:.2f} ms beside {COMPLETED[0]:,} completed tasks, {many:.2f} ms beside "
                f"{COMPLETED[1]:,} (asked for: flat, here up to {FLAT} times)"
            )
    finally:
        sink.kill()
        sink.wait()
    if rate < PER_SECOND or many > FLAT * few:
        raise SystemExit("missed")


if __name__ == "__main__":
    main()
