"""Dead letters: one, a page, groups of those that failed alike, and what people do about them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Generator
from typing import Any, cast
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlane.core.ids import JobId, Seq
from fairlane.core.job import DEAD_LETTER_STATUSES, DeadLetter, DeadLetterStatus, JobSpec
from fairlane.core.ops import (
    MAX_PAGE,
    Acknowledge,
    DeadLetterAct,
    DeadLetterDetail,
    DeadLetterFilter,
    DeadLetterGroup,
    DeadLetterGroups,
    DeadLetterPage,
    Discard,
    GetDeadLetter,
    GroupDeadLetters,
    PageDeadLetters,
    Reprocess,
    Resolve,
    Scope,
)
from fairlane.stores.instants import from_us, maybe_from_us
from fairlane.stores.redis.jobs.acts import own_fingerprint
from fairlane.stores.redis.jobs.pages import given_or_own_id, newest, shortest
from fairlane.stores.redis.jobs.records import KeptJob, attempts_of, find_job, job_of, read_jobs
from fairlane.stores.redis.states import KeptLetter, joined, new_job, read_letter, text_of
from fairlane.stores.redis.steps import Script, Steps, Work, handles
from fairlane.stores.redis.workflows.nodes import FoundNode, find_node, replace_job

GROUPED = 10_000
"""Dead letters looked at, newest first."""
AT_ONCE = 500


@handles
def get_dead_letter(work: Work, op: GetDeadLetter) -> Steps[DeadLetterDetail | None]:
    found = yield from _find(work, op.id, op.scope)
    if found is None:
        return None
    return DeadLetterDetail(dead_letter=_letter(found), attempts=attempts_of(found))


@handles
def page_dead_letters(work: Work, op: PageDeadLetters) -> Steps[DeadLetterPage]:
    limit = max(1, min(op.limit, MAX_PAGE))
    seqs = yield from _matching(work, op.scope, op.where, limit + 1, op.before)
    kept = yield from read_jobs(work, seqs[:limit], watch=False)
    letters = tuple(_letter(one) for one in kept if one is not None and b"letter" in one.facts)
    is_all = op.before is None and len(seqs) <= limit
    counted = seqs if is_all else (yield from _matching(work, op.scope, op.where, op.cap))
    return DeadLetterPage(
        dead_letters=letters,
        next=seqs[limit - 1] if len(seqs) > limit else None,
        total=min(len(counted), op.cap),
    )


@handles
def group_dead_letters(work: Work, op: GroupDeadLetters) -> Steps[DeadLetterGroups]:
    seqs = yield from _matching(work, op.scope, op.where, GROUPED)
    alike: dict[str, list[KeptJob]] = defaultdict(list)
    for first in range(0, len(seqs), AT_ONCE):
        kept = yield from read_jobs(work, seqs[first : first + AT_ONCE], watch=False)
        for one in kept:
            if one is not None and b"letter" in one.facts:
                alike[_fingerprint(one, read_letter(one.facts[b"letter"]))].append(one)
    groups = [_group(fingerprint, members) for fingerprint, members in alike.items()]
    groups.sort(key=lambda group: (-group.count, group.fingerprint))
    return DeadLetterGroups(groups=tuple(groups[: max(op.limit, 0)]))


def _group(fingerprint: str, members: list[KeptJob]) -> DeadLetterGroup:
    last = max(members, key=lambda one: one.seq)
    letter, died = _letter(last), [read_letter(one.facts[b"letter"]).died for one in members]
    return DeadLetterGroup(
        fingerprint=fingerprint,
        type=last.body.type,
        error_type=letter.error_type,
        reason=letter.reason,
        count=len(members),
        tenants=len(Counter(one.body.tenant for one in members)),
        first_at=from_us(min(died)),
        last_at=from_us(max(died)),
        newest=last.seq,
    )


def _matching(
    work: Work, scope: Scope, where: DeadLetterFilter, most: int, before: Seq | None = None
) -> Generator[Script, Any, list[Seq]]:
    """The numbers of dead letters that are asked for, newest first, up to `most`, behind `before`."""
    statuses = DEAD_LETTER_STATUSES if where.status is None else (where.status,)
    keys = [f"letters:{status}" for status in statuses]
    rest = [getattr(where, name) for name in where.__struct_fields__ if name != "status"]
    is_plain = scope.tenant is None and all(value is None for value in rest)
    if not is_plain:
        keys = yield from shortest(work, scope, where, keys)
    found: list[Seq] = []
    while len(found) < most:
        seqs = yield from newest(work, keys, before, AT_ONCE)
        if is_plain:
            found += seqs
        else:
            kept = yield from read_jobs(work, seqs, watch=False)
            found += [one.seq for one in kept if one is not None and _matches(one, scope, where)]
        if len(seqs) < AT_ONCE:
            break
        before = seqs[-1]
    return found[:most]


def _matches(kept: KeptJob, scope: Scope, where: DeadLetterFilter) -> bool:
    if b"letter" not in kept.facts or not scope.admits(kept.body.tenant):
        return False
    body, letter = kept.body, read_letter(kept.facts[b"letter"])
    if where.acknowledged is not None and where.acknowledged != (letter.acknowledged_by is not None):
        return False
    wanted = (
        (where.status, letter.status),
        (where.error_class, letter.error_class),
        (where.error_type, letter.error_type),
        (where.fingerprint, _fingerprint(kept, letter)),
        (where.queue, body.queue),
        (where.type, body.type),
        (where.category, body.category),
        (where.correlation_id, given_or_own_id(kept, body.correlation_id)),
    )
    return all(asked is None or asked == found for asked, found in wanted)


@handles
def discard(work: Work, op: Discard) -> Steps[DeadLetterAct]:
    return (yield from _close(work, op, "discarded", "job_dlq_discard"))


@handles
def resolve(work: Work, op: Resolve) -> Steps[DeadLetterAct]:
    return (yield from _close(work, op, "resolved", "job_dlq_resolve"))


@handles
def acknowledge(work: Work, op: Acknowledge) -> Steps[DeadLetterAct]:
    found = yield from _find(work, op.id, op.scope)
    if found is None:
        return DeadLetterAct(refused="not_found")
    letter = _kept_letter(found)
    if letter.acknowledged_by is not None:
        return DeadLetterAct(dead_letter=_letter(found))
    written = _write(work, found, replace(letter, acknowledged_by=op.by, acknowledged=work.now))
    _audit(work, op, "job_dlq_acknowledge", found, written)
    yield from work.commit()
    return DeadLetterAct(dead_letter=_letter(written))


@handles
def reprocess(work: Work, op: Reprocess) -> Steps[DeadLetterAct]:
    found = yield from _find(work, op.id, op.scope)
    if found is None:
        return DeadLetterAct(refused="not_found")
    letter = _kept_letter(found)
    if letter.reprocessed_as is not None and letter.status == "retried":
        made = yield from find_job(work, JobId(UUID(hex=letter.reprocessed_as)), None)
        if made is not None:
            job = job_of(made)
            if job.id == op.new_job_id or job.status not in ("dead", "cancelled"):
                return DeadLetterAct(dead_letter=_letter(found), new_job=job, repeated=True)
    tenant, target, before = found.body.tenant, f"dead_letter:{op.id}", _facts(letter)
    is_open = letter.status in ("pending_review", "retried")
    known = yield from find_job(work, op.new_job_id, None)
    node = yield from find_node(work, found)
    if not is_open or known is not None or (node is not None and not node.may_be_replaced):
        work.audit(op, "job_dlq_reprocess_requested", tenant, target, before, None)
        yield from work.commit()
        return DeadLetterAct(refused="not_allowed", dead_letter=_letter(found))
    payload = None if op.payload is None else text_of(op.payload, "the payload of job", op.new_job_id)
    yield from _copy(work, op, found, letter, payload, node)
    closed = replace(
        letter,
        status="retried",
        closed_by=op.by,
        closed=work.now,
        notes=op.notes,
        reprocess_count=letter.reprocess_count + 1,
        reprocessed_as=op.new_job_id.hex,
    )
    written = _write(work, found, closed)
    facts = {**_facts(closed), "new_job_id": str(op.new_job_id)}
    if payload is not None and payload != found.body.payload:
        facts["payload_edited"] = True
    work.audit(op, "job_dlq_reprocess_requested", tenant, target, before, None)
    work.audit(op, "job_dlq_reprocess_success", tenant, target, before, facts)
    work.act("wake_for_ready")
    seq, *_ = yield from work.commit()
    [new] = yield from read_jobs(work, [seq], watch=False)
    return DeadLetterAct(dead_letter=_letter(written), new_job=None if new is None else job_of(new))


def _copy(
    work: Work, op: Reprocess, found: KeptJob, letter: KeptLetter, payload: str | None, node: FoundNode | None
) -> Generator[Script, Any, None]:
    """A new job like the dead one, under the next key that is free."""
    dead, body = job_of(found), found.body
    number = letter.reprocess_count + 1
    while True:
        key = f"{dead.idempotency_key}_retry_{number}"
        [taken] = yield from work.read(("HGET", "idempotency", joined(dead.tenant, key)))
        if taken is None:
            break
        number += 1
    spec = JobSpec(
        id=op.new_job_id,
        type=body.type,
        payload=msgspec.Raw((body.payload if payload is None else payload).encode()),
        payload_version=body.payload_version,
        tenant=body.tenant,
        queue=body.queue,
        priority=body.priority,
        priority_scope="tenant" if body.rank else "queue",
        category=body.category,
        idempotency_key=key,
        correlation_id=dead.correlation_id,
        parent_id=dead.parent_id,
        created_by=op.by,
        refs=dead.refs,
        headers=dead.headers,
        max_attempts=body.max_attempts,
        timeout_s=body.timeout_s,
        retry=None if body.retry is None else msgspec.Raw(body.retry.encode()),
        delay_s=op.delay_s or None,
        key=None if body.key is None else body.key.as_given(),
    )
    order = 0 if body.key is None else body.key.order or found.seq
    given, rest = new_job(spec, node=None if node is None else node.field, order=order)
    if any(name.startswith(b"step:") for name in found.facts):
        given["steps_of"] = found.seq
    if node is not None and node.is_waiting:
        given["waits"] = True
    work.create(given, rest)
    if node is not None:
        replace_job(work, node)


def _close(work: Work, op: Discard | Resolve, status: DeadLetterStatus, action: str) -> Steps[DeadLetterAct]:
    found = yield from _find(work, op.id, op.scope)
    if found is None:
        return DeadLetterAct(refused="not_found")
    letter = _kept_letter(found)
    if letter.status not in ("pending_review", "retried"):
        return DeadLetterAct(refused="not_allowed", dead_letter=_letter(found))
    closed = replace(letter, status=status, closed_by=op.by, closed=work.now, notes=op.notes)
    written = _write(work, found, closed)
    _audit(work, op, action, found, written)
    node = yield from find_node(work, found)
    if node is not None and node.is_current:
        work.act("settle_letter", node.workflow, node.n, "completed" if status == "resolved" else "cancelled")
    yield from work.commit()
    return DeadLetterAct(dead_letter=_letter(written))


def _find(work: Work, seq: Seq, scope: Scope) -> Generator[Script, Any, KeptJob | None]:
    [found] = yield from read_jobs(work, [seq])
    is_there = found is not None and b"letter" in found.facts and scope.admits(found.body.tenant)
    return found if is_there else None


def _write(work: Work, found: KeptJob, letter: KeptLetter) -> KeptJob:
    """Keep a changed letter, and every way to it; the job as it is then."""
    was = _kept_letter(found)
    work.act("keep_letter", found.seq, msgspec.structs.asdict(letter))
    if was.status != letter.status:
        work.do("ZREM", f"letters:{was.status}", found.seq)
        work.do("ZADD", f"letters:{letter.status}", found.seq, found.seq)
    if letter.closed is not None:
        work.do("ZADD", "closed", letter.closed, f"{found.seq:016d}")
    return found._replace(facts={**found.facts, b"letter": msgspec.msgpack.encode(letter)})


def _audit(work: Work, op: Acknowledge | Discard | Resolve, action: str, before: KeptJob, after: KeptJob) -> None:
    facts = [_facts(_kept_letter(one)) for one in (before, after)]
    work.audit(op, action, before.body.tenant, f"dead_letter:{op.id}", *facts)


def _facts(letter: KeptLetter) -> dict[str, object]:
    return {"status": letter.status, "acknowledged_by": letter.acknowledged_by}


def _kept_letter(found: KeptJob) -> KeptLetter:
    return read_letter(found.facts[b"letter"])


def _fingerprint(found: KeptJob, letter: KeptLetter) -> str:
    return letter.fingerprint or own_fingerprint(found.body.type, letter.error_type)


def _letter(found: KeptJob) -> DeadLetter:
    kept = _kept_letter(found)
    return DeadLetter(
        id=found.seq,
        job=job_of(found),
        status=cast("DeadLetterStatus", kept.status),
        reason=kept.reason,
        error_class=kept.error_class,
        error_type=kept.error_type,
        fingerprint=_fingerprint(found, kept),
        died_at=from_us(kept.died),
        acknowledged_by=kept.acknowledged_by,
        acknowledged_at=maybe_from_us(kept.acknowledged),
        closed_by=kept.closed_by,
        closed_at=maybe_from_us(kept.closed),
        resolution_notes=kept.notes,
        reprocess_count=kept.reprocess_count,
        reprocessed_as=None if kept.reprocessed_as is None else JobId(UUID(hex=kept.reprocessed_as)),
    )
