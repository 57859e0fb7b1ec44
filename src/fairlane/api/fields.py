"""The kinds of text a request may hold, each said once; the client's own checks stand behind them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from fairlane.core.payload.redaction import without_secrets

_NAME = r"^[a-zA-Z0-9_.:-]{1,128}$"
_PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]+$"

Name = Annotated[str, StringConstraints(pattern=_NAME)]
"""Of a task, a queue, a breaker, a schedule, a limit."""
TenantName = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=_PRINTABLE)]
Key = Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=_PRINTABLE)]
"""A correlation id, an idempotency key, a person."""
Words = Annotated[
    str, StringConstraints(min_length=1, max_length=2000, pattern=r"^[^\x00]+$"), AfterValidator(without_secrets)
]
"""What people write for people; a secret among it is kept nowhere."""


def _within_reach(at: datetime) -> datetime:
    # The first and last year cannot be moved between time zones, and not every store keeps them.
    if not 1970 <= at.year <= 9000:
        raise ValueError("expected a year from 1970 to 9000")
    return at.astimezone(UTC)


Instant = Annotated[AwareDatetime, AfterValidator(_within_reach)]
RowId = Annotated[int, Field(ge=1, le=2**63 - 1)]


class Body(BaseModel):
    """What a request may say. A field nobody knows is a slip, and refused."""

    model_config = ConfigDict(extra="forbid")


class Act(Body):
    """An act, and why."""

    notes: Words | None = Field(
        default=None, description="Why, for those who read the audit later.", examples=["fixed upstream"]
    )


class Seen(BaseModel):
    """What an answer shows, read from the values of the core."""

    model_config = ConfigDict(from_attributes=True)
