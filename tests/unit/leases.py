"""A lease for rules that ask about nothing but the lease."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fairlane.core.ids import JobId, Seq
from fairlane.core.job import Lease
from fairlane.testing.conformance.samples import NOON


def a_lease(**facts: Any) -> Lease:
    given: dict[str, Any] = {
        "seq": Seq(41),
        "id": JobId(UUID(int=41)),
        "attempt": 3,
        "claim_no": 7,
        "attempts": 0,
        "crashes": 0,
        "suspect": False,
        "started": True,
        "lane": "general",
        "type": "mail.send",
        "tenant": "acme",
        "queue": "default",
        "band": 5,
        "rank": 0,
        "due_at": NOON,
        "leased_at": NOON,
        "deadline_at": NOON,
        "enqueued_at": NOON,
        "max_attempts": 5,
    }
    return Lease(**(given | facts))
