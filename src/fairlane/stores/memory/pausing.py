"""Pauses: names whose jobs no claim may take."""

from __future__ import annotations

from datetime import datetime

from fairlane.core.ops import ListPauses, Pause, PauseClaims, Pauses, ResumeClaims
from fairlane.stores.memory.acting import record_act
from fairlane.stores.memory.facts import Facts


def pause_claims(facts: Facts, op: PauseClaims, now: datetime) -> Pauses:
    paused = facts.paused[op.kind]
    if op.name in paused:
        return _pauses(facts, changed=False)
    paused[op.name] = Pause(kind=op.kind, name=op.name, by=op.by, at=now, notes=op.notes)
    return _changed(facts, op, now, paused=True)


def resume_claims(facts: Facts, op: ResumeClaims, now: datetime) -> Pauses:
    if facts.paused[op.kind].pop(op.name, None) is None:
        return _pauses(facts, changed=False)
    facts.wakes = True
    return _changed(facts, op, now, paused=False)


def list_pauses(facts: Facts, op: ListPauses, now: datetime) -> Pauses:
    return _pauses(facts, changed=False)


def _changed(facts: Facts, op: PauseClaims | ResumeClaims, now: datetime, *, paused: bool) -> Pauses:
    record_act(
        facts,
        "pause" if paused else "resume",
        f"{op.kind}:{op.name}",
        op.name if op.kind == "tenant" else None,
        by=op.by,
        notes=op.notes,
        before={"paused": not paused},
        after={"paused": paused},
        now=now,
    )
    return _pauses(facts, changed=True)


def _pauses(facts: Facts, *, changed: bool) -> Pauses:
    found = [facts.paused[kind][name] for kind in sorted(facts.paused) for name in sorted(facts.paused[kind])]
    return Pauses(pauses=tuple(found), changed=changed)
