"""Breakers and pauses as calls: what stops work before it is begun."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlane.core.breaker import Admission, Breaker
from fairlane.core.ops import (
    Admit,
    BreakerAct,
    Breakers,
    ForceBreaker,
    ListBreakers,
    ListPauses,
    PauseClaims,
    Pauses,
    Report,
    ResetBreaker,
    ResumeClaims,
)
from fairlane.stores.postgres.call import Call, answering, instant

_admission = answering(Admission)
_breaker = answering(Breaker)
_breakers = answering(Breakers)
_breaker_act = answering(BreakerAct)
_pauses = answering(Pauses)


def _admit(op: Admit) -> Call[Admission]:
    return Call(
        "select {schema}.admit_v1(%s, %s, %s, %s::timestamptz)::text",
        (op.name, op.policy.cooldown_s, op.policy.probes, instant(op.now)),
        _admission,
    )


def _report(op: Report) -> Call[Breaker]:
    policy = op.policy
    return Call(
        "select {schema}.report_v1(%s, %s, %s, %s, %s, %s, %s::timestamptz)::text",
        (op.name, policy.threshold, policy.cooldown_s, policy.probes, op.failures, op.successes, instant(op.now)),
        _breaker,
    )


def _list_breakers(_: ListBreakers) -> Call[Breakers]:
    return Call("select {schema}.list_breakers_v1()::text", (), _breakers)


def _setting(act: str) -> Callable[[Any], Call[BreakerAct]]:
    def setting(op: ResetBreaker | ForceBreaker) -> Call[BreakerAct]:
        return Call(
            "select {schema}.set_breaker_v1(%s, %s, %s, %s, %s::timestamptz)::text",
            (act, op.name, op.by, op.notes, instant(op.now)),
            _breaker_act,
        )

    return setting


def _pausing(*, paused: bool) -> Callable[[Any], Call[Pauses]]:
    def pausing(op: PauseClaims | ResumeClaims) -> Call[Pauses]:
        return Call(
            "select {schema}.pause_v1(%s, %s, %s, %s, %s, %s::timestamptz)::text",
            (paused, op.kind, op.name, op.by, op.notes, instant(op.now)),
            _pauses,
        )

    return pausing


def _list_pauses(_: ListPauses) -> Call[Pauses]:
    return Call("select {schema}.pauses(false)::text", (), _pauses)


CALLS: dict[type, Callable[[Any], Call[Any]]] = {
    Admit: _admit,
    Report: _report,
    ListBreakers: _list_breakers,
    ResetBreaker: _setting("reset"),
    ForceBreaker: _setting("force_open"),
    PauseClaims: _pausing(paused=True),
    ResumeClaims: _pausing(paused=False),
    ListPauses: _list_pauses,
}
