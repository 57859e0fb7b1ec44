"""A team's database with the document's Go worker in it: its own queue, one process, and its worker by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.supervisors.conftest import Database
from tests.support.stores import Ground

SCRIPT = Path(__file__).with_name("go_team.sql")


class GoTeam(Database):
    """The database, and what the Go worker does with it."""

    def kickoff(self, *addresses: str | None) -> None:
        for address in addresses:
            message = self.one(
                "insert into comms.email_message (to_address, subject, body) values (%s, 'Welcome', 'Hello') "
                "returning email_message_id", address,
            )  # fmt: skip
            assert self.one("select comms.kickoff_send_email(%s)", message) is None

    def lease(self) -> tuple[int, str, Any] | None:
        [task] = self.ask("select task_id, task_type, payload from queues.dequeue_next_available_task()")
        return None if task[0] is None else task

    def run(self, function: str, payload: Any) -> Any:
        return self.one("select internal.run_function(%s, %s)", function, json.dumps(payload))

    def process(self, task: tuple[int, str, Any]) -> str | None:
        """Do one task to its end; returns the address that a mail went to."""
        number, kind, payload = task
        address = None
        if kind == "db_function":
            self.run(payload["db_function"], payload)
        else:
            address = self.run(payload["before_handler"], payload)["payload"]["to_address"]
            self.run(payload["success_handler"], {"original_payload": payload, "worker_payload": {"id": "<1@go>"}})
        self.do("select queues.complete_task(%s)", number)
        return address


@pytest.fixture
def go_team(ground: Ground) -> Iterator[GoTeam]:
    found = GoTeam(ground.server.new_database("go_team"))
    found.do(SCRIPT.read_text())
    yield found
    found.owner.close()
