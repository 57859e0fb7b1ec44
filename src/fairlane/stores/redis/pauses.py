"""Pauses: what no claim takes until it is lifted, and what enqueues are refused."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import msgspec

from fairlane.core.ops import ListPauses, Pause, PauseClaims, Pauses, ResumeClaims
from fairlane.stores.instants import from_us
from fairlane.stores.redis.steps import Script, Steps, Work, document, handles

_Kept = dict[tuple[str, str], Pause]

read_pause = msgspec.json.Decoder(Pause).decode


@handles
def pause(work: Work, op: PauseClaims) -> Steps[Pauses]:
    kept = yield from _read(work)
    known = kept.get((op.kind, op.name))
    if known is not None and (known.refuse or not op.refuse):
        return _pauses(kept, changed=False)
    new = Pause(kind=op.kind, name=op.name, by=op.by, at=from_us(work.now), notes=op.notes, refuse=op.refuse)
    kept[op.kind, op.name] = new
    work.do("HSET", "pause", _field(op), document(new))
    _keep_refusals(work, op, kept)
    _audit(work, op, "pause", known, new)
    yield from work.commit()
    return _pauses(kept, changed=True)


@handles
def resume(work: Work, op: ResumeClaims) -> Steps[Pauses]:
    kept = yield from _read(work)
    known = kept.pop((op.kind, op.name), None)
    if known is None:
        return _pauses(kept, changed=False)
    work.do("HDEL", "pause", _field(op))
    _keep_refusals(work, op, kept)
    _audit(work, op, "resume", known, None)
    work.act("wake_for_ready")
    yield from work.commit()
    return _pauses(kept, changed=True)


@handles
def list_pauses(work: Work, op: ListPauses) -> Steps[Pauses]:
    kept = yield from _read(work)
    return _pauses(kept, changed=False)


def _read(work: Work) -> Generator[Script, Any, _Kept]:
    [documents] = yield from work.read(("HVALS", "pause"))
    return {(pause.kind, pause.name): pause for pause in map(read_pause, documents)}


def _field(op: PauseClaims | ResumeClaims) -> str:
    return f"{op.kind}:{op.name}"


def _keep_refusals(work: Work, op: PauseClaims | ResumeClaims, kept: _Kept) -> None:
    """Enqueueing looks for refusals only where their number says that there are some."""
    now = kept.get((op.kind, op.name))
    work.do("SADD" if now is not None and now.refuse else "SREM", "refusals", _field(op))
    work.do("HSET", "meta", "refusals", sum(pause.refuse for pause in kept.values()))


def _pauses(kept: _Kept, *, changed: bool) -> Pauses:
    return Pauses(pauses=tuple(kept[place] for place in sorted(kept)), changed=changed)


def _audit(work: Work, op: PauseClaims | ResumeClaims, action: str, before: Pause | None, after: Pause | None) -> None:
    tenant = op.name if op.kind == "tenant" else None
    work.audit(op, action, tenant, f"{op.kind}:{op.name}", _audited(before), _audited(after))


def _audited(pause: Pause | None) -> dict[str, object]:
    if pause is not None and pause.refuse:
        return {"paused": True, "refuse": True}
    return {"paused": pause is not None}
