"""The queue contract in SQL: its files, and how they are installed beside a store's schema on PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from psycopg import sql as quoting

from fairlane.stores.postgres.schema import SchemaFiles

RELEASE = 1
"""Raised with the first change in functions/ after a release of Fairlane."""

QUEUE = "supervisors"
"""The queue in which every task of the contract is a job."""

WORKER_ROLE = "worker_service_user"


def _text(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")


def _rights(schema: str) -> str:
    return _text("rights.sql").replace(
        "{schema}", quoting.Literal(quoting.Identifier(schema).as_string(None)).as_string(None)
    )


CONTRACT = SchemaFiles(Path(__file__).parent, RELEASE, home="queues", guard=_text("guard.sql"), rights=_rights)
