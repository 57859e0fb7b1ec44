"""Document W, sections 4.3, 4.4 and 7.3: dead letters reviewed with curl, against a real server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairlane import Fairlane, NonRetryable
from fairlane.testing import run_due
from tests.acceptance.scenes.served import Served, has_the_fields_of, printed

pytestmark = pytest.mark.requirement("W10", "W12", "W13")


def test_the_calls_of_the_page_as_printed(tmp_path: Path) -> None:
    with Fairlane(f"sqlite:///{tmp_path}/jobs.db") as app:

        @app.task(category="ingestion", name="email_ingestion_fetch")
        def fetch(connection_id: int, external_message_id: str) -> None:
            raise NonRetryable("Validation error: invalid payload")

        def die(key: str) -> int:
            fetch.using(tenant=123, idempotency_key=key, correlation_id="550e8400-e29b-41d4-a716-446655440000").enqueue(
                connection_id=456, external_message_id="msg_789"
            )
            run_due(app)
            [letter, *_] = app.dead_letters.list(status="pending_review").dead_letters
            return int(letter.id)

        letter = die("email_fetch_conn_456_msg_789")
        blocks = list(printed("operate/dead-letters.md", "Over HTTP"))
        (_, make), *calls = blocks
        with Served(app.runtime.settings.url, tmp_path, "https://api.example.com") as served:
            served.names["TOKEN"] = served.type(make)
            assert served.names["TOKEN"].startswith("fl_")
            for (_, command), (_, example) in zip(calls[::2], calls[1::2], strict=True):
                if "/discard/" in command:
                    letter = die("another")
                answer = json.loads(served.type(command.replace("/123/", f"/{letter}/")))
                if "/statistics/" in command:
                    assert answer["discarded"] == 1
                assert has_the_fields_of(answer, json.loads(example)), (command, answer)
                if "/reprocess/" in command:
                    assert answer.keys() == json.loads(example).keys(), "the document's own answer"
                    assert (answer["dlq_id"], answer["new_idempotency_key"]) == (
                        letter,
                        "email_fetch_conn_456_msg_789_retry_1",
                    )
            for role in ("--role viewer", "--role operator", "--role staff", "--role manager"):
                served.names["TOKEN"] = served.type(f"fairlane tokens create ada {role}")
                for kind, command in calls:
                    if kind == "console":
                        refused = json.loads(served.type(f"{command.replace('/123/', f'/{letter}/')} || true"))
                        assert (refused["status"], refused["code"]) == (403, "role_missing")
        records = app.audit.list(target="dead_letter:1").records
    assert [(record.action, record.notes) for record in reversed(records)] == [
        ("job_dlq_reprocess_requested", "Fixed upstream data issue, safe to retry"),
        ("job_dlq_reprocess_success", "Fixed upstream data issue, safe to retry"),
    ]
