"""What watches over the rest: duties done once, alerts, the chain that seals the audit, figures rolled up."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal

from msgspec import Struct

from fairlane.core.ops.base import Act, Op, Scope
from fairlane.core.ops.read import AuditRecord, DeadLetterFilter


class DutyTaken(Struct, frozen=True, kw_only=True):
    taken: bool
    """True for one caller in each `every_s`; everybody else has nothing to do."""
    now: datetime


class TakeDuty(Op[DutyTaken], frozen=True, kw_only=True):
    """Take a duty that is done once in a while however many processes there are: granted where it was last taken `every_s` ago or longer, or never."""

    answer: ClassVar[object] = DutyTaken
    repeatable: ClassVar[bool] = False

    name: str
    every_s: float


AlertState = Literal["pending", "firing", "resolved"]
"""pending   the condition holds, but not for long enough
firing    it has held for as long as the rule asks
resolved  it held, and does not any more
"""


RESOLVED_KEPT_S = 86_400.0
"""So long an alert is kept after it was resolved."""


class Alert(Struct, frozen=True, kw_only=True):
    rule: str
    about: str
    """What of: a queue, a task, a tenant, a breaker; empty where there is only one."""
    state: AlertState
    since: datetime
    """When the condition began to hold."""
    fired_at: datetime | None
    resolved_at: datetime | None
    value: float
    severity: str
    told_at: datetime | None = None
    """When people were told that it fires; None: nobody was, as while its rule is silenced."""
    version: int
    """Grows with every change."""


class Silence(Struct, frozen=True, kw_only=True):
    rule: str
    until: datetime
    by: str
    notes: str | None


class Alerts(Struct, frozen=True, kw_only=True):
    alerts: tuple[Alert, ...]
    """By rule, then what about."""
    silences: tuple[Silence, ...]
    """Those not over yet, by rule."""


class ReadAlerts(Op[Alerts], frozen=True, kw_only=True):
    """What is kept of every rule; alerts that were resolved `RESOLVED_KEPT_S` ago or longer are forgotten, as if they had never been."""

    answer: ClassVar[object] = Alerts


class AlertsSaved(Struct, frozen=True, kw_only=True):
    saved: tuple[tuple[str, str], ...]
    """(rule, about) of those that were written, in the order given."""


class SaveAlerts(Op[AlertsSaved], frozen=True, kw_only=True):
    """Write alerts whose `version` is one above the kept one (1: there is none); the others lost a race and are passed over.

    What `ReadAlerts` tells no more counts as not kept, and is removed.
    """

    answer: ClassVar[object] = AlertsSaved
    repeatable: ClassVar[bool] = False

    alerts: tuple[Alert, ...]


class SilenceAlerts(Act[Alerts], frozen=True, kw_only=True):
    """Tell nobody what one rule finds until then; `for_s` 0 ends a silence. Ending none, or one that is over, writes nothing.

    Audit: `alert_silence`, target `alert:<rule>`, no tenant, before None, after {"until"}: an instant as in `AuditRecord`, None once ended.
    """

    answer: ClassVar[object] = Alerts

    rule: str
    for_s: float


class AuditLink(Struct, frozen=True, kw_only=True):
    """One link of the chain: the record it seals, and the hash over that record and the link before."""

    n: int
    """1, 2, 3, … in the order of sealing; records of acts that committed late come late."""
    audit_id: int
    hash: str


class AuditToSeal(Struct, frozen=True, kw_only=True):
    last: AuditLink | None
    records: tuple[AuditRecord, ...]
    """Committed and not sealed, by id."""


class ReadUnsealed(Op[AuditToSeal], frozen=True, kw_only=True):
    answer: ClassVar[object] = AuditToSeal

    limit: int = 500


class AuditSealed(Struct, frozen=True, kw_only=True):
    sealed: bool
    """False: somebody else was faster; nothing was written."""


class SealAudit(Op[AuditSealed], frozen=True, kw_only=True):
    """Add links behind the last one; refused where the first does not follow it, the others do not follow each other, or a record is sealed already. Acts never wait for this."""

    answer: ClassVar[object] = AuditSealed

    links: tuple[AuditLink, ...]


class SealedRecord(Struct, frozen=True, kw_only=True):
    link: AuditLink
    record: AuditRecord | None
    """None: it is gone."""


class AuditChain(Struct, frozen=True, kw_only=True):
    sealed: tuple[SealedRecord, ...]
    """By `n`."""
    unsealed: int
    """Records not sealed yet, counted up to 1,000."""


class ReadAuditChain(Op[AuditChain], frozen=True, kw_only=True):
    """Links with n above `after`, at most `limit` (1 to 1,000), each with its record as it is now."""

    answer: ClassVar[object] = AuditChain

    after: int = 0
    limit: int = 500


class DeadLetterGroup(Struct, frozen=True, kw_only=True):
    """Dead letters that failed alike."""

    fingerprint: str
    type: str
    error_type: str
    reason: str
    """Of the newest, like `type` and `error_type`."""
    count: int
    tenants: int
    first_at: datetime
    last_at: datetime
    """When the first and the last of them died."""
    newest: int
    """Id of the newest dead letter."""


class DeadLetterGroups(Struct, frozen=True, kw_only=True):
    groups: tuple[DeadLetterGroup, ...]
    """By count, highest first, then by fingerprint."""


class GroupDeadLetters(Op[DeadLetterGroups], frozen=True, kw_only=True):
    """Dead letters that match, newest 10,000 at most, put together by fingerprint."""

    answer: ClassVar[object] = DeadLetterGroups

    scope: Scope
    where: DeadLetterFilter = DeadLetterFilter(status="pending_review")
    limit: int = 50


class RolledUp(Struct, frozen=True, kw_only=True):
    jobs: int
    """How many jobs were counted now; as many as `limit`: there are more."""


class RollUpEnqueued(Op[RolledUp], frozen=True, kw_only=True):
    """Add jobs enqueued since the last time to the figures of their minutes (`StatRow.enqueued`), each exactly once, by seq, at most `limit`.

    Only jobs enqueued at least `settled_s` ago, and none behind one that is younger: a lower number may still be on its way to its commit.
    """

    answer: ClassVar[object] = RolledUp

    settled_s: float = 30.0
    limit: int = 5000
