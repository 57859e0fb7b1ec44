"""A process that sends e-mail, and a worker by hand that drives it, whatever the time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.supervisors.conftest import Database

CHANNEL = """
create schema comms;
create table comms.email_message (email_message_id bigint primary key, to_address text);
insert into comms.email_message select n, n || '@example.com' from generate_series(1, 9) n;
select queues.create_process('comms.send_email', 'comms.email_message.email_message_id', 'email', 'email', 3, 10, 60);
create or replace function comms.build_email_payload(_send_email_task_id bigint) returns jsonb
language sql security definer set search_path = comms, pg_temp as $$
  select jsonb_build_object('to_address', m.to_address)
  from send_email_task t join email_message m using (email_message_id)
  where t.send_email_task_id = _send_email_task_id and m.to_address is not null
$$;
create table comms.over (send_email_task_id bigint, error_message text);
create or replace function comms.after_send_email(_send_email_task_id bigint, _error_message text) returns void
language sql security definer set search_path = comms, pg_temp as $$ insert into over values ($1, $2) $$;
"""


class Process:
    """A worker by hand: takes tasks one by one, whatever their time, and does what a channel would."""

    def __init__(self, db: Database) -> None:
        self.db, self.worker = db, db.worker()
        self.error: str | None = None
        """What deliveries fail with."""
        self.delivered: list[Any] = []

    def run(self, function: str, payload: Any) -> Any:
        [(answer,)] = self.worker.execute(
            "select internal.run_function(%s, %s)", (function, json.dumps(payload))
        ).fetchall()
        return answer

    def step(self) -> Any:
        """Process the next task, as if its time had come; None: there is none."""
        self.db.do("update fairlane.scheduled set due_at = now() where queue = 'supervisors'")
        [(task, kind, payload)] = self.worker.execute(
            "select task_id, task_type, payload from queues.dequeue_next_available_task()"
        ).fetchall()
        if task is None:
            return None
        if kind == "db_function":
            answer = self.run(payload["db_function"], payload)
        else:
            answer = self.deliver(payload)
        self.worker.execute("select queues.complete_task(%s)", (task,))
        return answer["status"]

    def deliver(self, payload: Any) -> Any:
        prepared = self.run(payload["before_handler"], payload)
        if prepared["status"] != "succeeded" or self.error is not None:
            about = {"original_payload": payload, "error": self.error or prepared["status"]}
            about |= {name: prepared[name] for name in ("validation_failure_message",) if name in prepared}
            return self.run(payload["error_handler"], about)
        self.delivered.append(prepared["payload"])
        return self.run(payload["success_handler"], {"original_payload": payload, "worker_payload": {"id": 1}})

    def finish(self) -> list[str]:
        return list(iter(self.step, None))


@pytest.fixture
def process(db: Database) -> Iterator[Process]:
    db.do(CHANNEL)
    found = Process(db)
    yield found
    found.worker.close()
