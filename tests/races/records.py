"""What racers do to things that are kept beside jobs: each tells what it was granted."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from msgspec.structs import replace

from fairlane.core.audit_chain import seal
from fairlane.core.ids import JobId
from fairlane.core.ops import (
    ALL_TENANTS,
    AddEvents,
    Alert,
    Cancel,
    EventDraft,
    ReadAlerts,
    ReadEvents,
    ReadUnsealed,
    RedeemLink,
    RollUpEnqueued,
    SaveAlerts,
    SealAudit,
    TakeDuty,
)
from fairlane.stores.base import Store


def take_duties(store: Store, number: int, *, duties: int) -> Any:
    """Try to take each of many duties; tells which were granted."""
    names = [f"duty {nth}" for nth in range(duties)]
    return [name for name in names if store.run(TakeDuty(name=name, every_s=3600)).taken]


def redeem_links(store: Store, number: int, *, hashes: list[str]) -> Any:
    """Redeem the same links as everyone else; tells which worked."""
    return [one for one in hashes if store.run(RedeemLink(hash=one)).credential is not None]


def act_and_seal(store: Store, number: int, *, jobs: list[list[str]]) -> Any:
    """Cancel jobs of one's own and seal whatever is there in between; tells how many records were sealed here."""
    sealed = 0
    for job in jobs[number]:
        store.run(Cancel(scope=ALL_TENANTS, id=JobId(UUID(job)), by=f"racer {number}"))
        there = store.run(ReadUnsealed(limit=5))
        links = seal(there.last, there.records)
        if links and store.run(SealAudit(links=links)).sealed:
            sealed += len(links)
    return sealed


def tell_and_watch(store: Store, number: int, *, rounds: int, after: int) -> Any:
    """Tell events, and read behind the last one seen; tells what was seen, in its order."""
    seen: list[list[int]] = []
    for nth in range(rounds):
        drafts = tuple(EventDraft(kind="tick", data={"who": number, "nth": nth, "part": part}) for part in range(2))
        store.run(AddEvents(events=drafts))
        while events := store.run(ReadEvents(scope=ALL_TENANTS, after=after, limit=3)).events:
            seen += [[event.data["who"], event.data["nth"], event.data["part"]] for event in events]
            after = events[-1].id
    return seen


def raise_an_alert(store: Store, number: int, *, rounds: int) -> Any:
    """Add one to the value of an alert that is there; tells how often that was granted."""
    saved = 0
    for _ in range(rounds):
        [alert] = store.run(ReadAlerts()).alerts
        raised: Alert = replace(alert, value=alert.value + 1, version=alert.version + 1)
        saved += len(store.run(SaveAlerts(alerts=(raised,))).saved)
    return saved


def roll_up(store: Store, number: int, *, limit: int) -> Any:
    """Roll up until nothing is left; tells how many jobs were counted here."""
    counted = 0
    while some := store.run(RollUpEnqueued(settled_s=0.0, limit=limit)).jobs:
        counted += some
    return counted


KEEPING = {
    story.__name__: story
    for story in (take_duties, redeem_links, act_and_seal, tell_and_watch, raise_an_alert, roll_up)
}
