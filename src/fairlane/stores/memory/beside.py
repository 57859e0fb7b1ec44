"""What a memory store keeps beside jobs: credentials, events, duties, alerts, the audit's seal, the mark of the roll-up."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from fairlane.core.ops import Alert, AuditLink, Credential, Silence


class Told(Struct, frozen=True):
    """An event; its data as JSON, so that nobody who holds a part of it can change it."""

    id: int
    at: datetime
    kind: str
    tenant: str | None
    data: bytes


class Beside:
    def __init__(self) -> None:
        self.last_event_id = 0
        self.clear(0)

    def clear(self, last_seq: int) -> None:
        """Forget everything but the numbers already given; `last_seq` is the last job's that is forgotten too."""
        self.credentials: dict[UUID, Credential] = {}
        self.hashes: dict[UUID, str] = {}
        self.by_hash: dict[str, UUID] = {}
        self.events: list[Told] = []
        """By id."""
        self.watched_until: datetime | None = None
        self.duties: dict[str, datetime] = {}
        """When each was taken last."""
        self.alerts: dict[tuple[str, str], Alert] = {}
        """By rule and what about."""
        self.silences: dict[str, Silence] = {}
        self.links: list[AuditLink] = []
        """Link n is at n - 1."""
        self.sealed: set[int] = set()
        """Ids of audit records."""
        self.sealed_before = 0
        """All records in the audit's list up to this place, not included, are sealed."""
        self.counted_seq = last_seq
        """The last job that is in the figures as enqueued."""
