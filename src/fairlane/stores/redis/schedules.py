"""Schedules: declared, fired by whoever comes first, paused and run by hand."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlane.core.ids import JobId
from fairlane.core.job import JobSpec
from fairlane.core.ops import (
    Declared,
    DeclareSchedules,
    Fire,
    Fired,
    ListSchedules,
    PauseSchedule,
    RemoveSchedule,
    RunSchedule,
    ScheduleAct,
    Schedules,
)
from fairlane.core.schedules import Schedule
from fairlane.stores.instants import LATEST_US, from_us, to_us
from fairlane.stores.redis.job_keys import Unfinished, meet_at_key
from fairlane.stores.redis.jobs.records import find_job, read_jobs
from fairlane.stores.redis.states import FINISHED, new_job
from fairlane.stores.redis.steps import DoneBy, Script, Steps, Work, document, handles

_read_schedule = msgspec.json.Decoder(Schedule).decode


@handles
def declare(work: Work, op: DeclareSchedules) -> Steps[Declared]:
    [documents] = yield from work.read(("HVALS", "schedule"))
    kept = {schedule.spec.name: schedule for schedule in map(_read_schedule, documents)}
    added, changed, removed = [], [], []
    for planned in op.schedules:
        spec, known = planned.spec, kept.get(planned.spec.name)
        if known is None:
            schedule = Schedule(spec=spec, source=op.source, next_at=planned.next_at, declared_at=from_us(work.now))
            added.append(spec.name)
        elif known.source != op.source or known.spec == spec:
            continue
        else:
            schedule = replace(known, spec=spec, next_at=planned.next_at, declared_at=from_us(work.now))
            changed.append(spec.name)
        kept[spec.name] = schedule
        _keep(work, schedule)
        if op.by is not None:
            was: dict[str, object] | None = None if known is None else {"cron": known.spec.cron}
            _audit(work, op, "schedule_add" if known is None else "schedule_change", schedule, was, {"cron": spec.cron})
    if op.prune:
        named = {planned.spec.name for planned in op.schedules}
        for name in sorted(kept.keys() - named):
            if kept[name].source == op.source:
                removed.append(name)
                _drop(work, name)
                if op.by is not None:
                    _audit(work, op, "schedule_remove", kept[name], {"cron": kept[name].spec.cron}, None)
    yield from work.commit()
    return Declared(added=tuple(added), changed=tuple(changed), removed=tuple(removed))


@handles
def list_schedules(work: Work, op: ListSchedules) -> Steps[Schedules]:
    limit = max(op.limit, 0)
    if not op.due:
        [documents] = yield from work.read(("HVALS", "schedule"), watch=False)
        found = sorted(map(_read_schedule, documents), key=lambda schedule: schedule.spec.name)
        return Schedules(schedules=tuple(found[:limit]))
    yield from work.read(watch=False)
    due = ("ZRANGEBYSCORE", "schedule:due", "-inf", work.now, "LIMIT", 0, limit)
    later = ("ZRANGEBYSCORE", "schedule:due", f"({work.now}", "+inf", "WITHSCORES", "LIMIT", 0, 1)
    [names, following] = yield from work.read(due, later, watch=False)
    next_s = (float(following[1]) - work.now) / 1e6 if following else None
    documents = yield from work.read(*(("HGET", "schedule", name.decode()) for name in names), watch=False)
    return Schedules(schedules=tuple(_read_schedule(one) for one in documents if one is not None), next_s=next_s)


@handles
def fire(work: Work, op: Fire) -> Steps[Fired]:
    schedule = yield from _find(work, op.name)
    if schedule is None or schedule.paused_at is not None or schedule.next_at != op.expected_at:
        return Fired(outcome="lost")
    overlap = schedule.spec.overlap
    if op.jobs and overlap != "allow" and (yield from _is_unfinished(work, schedule.last_job_id)):
        if overlap == "queue":
            return Fired(outcome="waiting")
        _keep(work, replace(schedule, next_at=op.next_at, last_at=op.fired_at or schedule.last_at))
        yield from work.commit()
        return Fired(outcome="skipped")
    ids = yield from _put(work, op.jobs)
    last_job_id = ids[-1] if ids else schedule.last_job_id
    _keep(work, replace(schedule, next_at=op.next_at, last_at=op.fired_at or schedule.last_at, last_job_id=last_job_id))
    yield from work.commit()
    return Fired(outcome="fired", job_ids=tuple(ids))


@handles
def pause(work: Work, op: PauseSchedule) -> Steps[ScheduleAct]:
    schedule = yield from _find(work, op.name)
    if schedule is None:
        return ScheduleAct(refused="not_found")
    was = schedule.paused_at is not None
    if was == op.paused:
        return ScheduleAct(schedule=schedule)
    if op.paused:
        after = replace(schedule, paused_at=from_us(work.now))
    else:
        after = replace(schedule, paused_at=None, next_at=op.next_at)
    _keep(work, after)
    action = "schedule_pause" if op.paused else "schedule_resume"
    _audit(work, op, action, after, {"paused": was}, {"paused": op.paused})
    yield from work.commit()
    return ScheduleAct(schedule=after)


@handles
def run(work: Work, op: RunSchedule) -> Steps[ScheduleAct]:
    schedule = yield from _find(work, op.name)
    if schedule is None:
        return ScheduleAct(refused="not_found")
    [job_id] = yield from _put(work, [op.job])
    after = replace(schedule, last_job_id=job_id)
    _keep(work, after)
    _audit(work, op, "schedule_run", after, None, {"job_id": str(job_id)})
    yield from work.commit()
    return ScheduleAct(schedule=after, job_id=job_id)


@handles
def remove(work: Work, op: RemoveSchedule) -> Steps[ScheduleAct]:
    schedule = yield from _find(work, op.name)
    if schedule is None:
        return ScheduleAct(refused="not_found")
    _drop(work, op.name)
    _audit(work, op, "schedule_remove", schedule, {"cron": schedule.spec.cron}, None)
    yield from work.commit()
    return ScheduleAct(schedule=schedule)


def _find(work: Work, name: str) -> Generator[Script, Any, Schedule | None]:
    [kept] = yield from work.read(("HGET", "schedule", name))
    return None if kept is None else _read_schedule(kept)


def _keep(work: Work, schedule: Schedule) -> None:
    name = schedule.spec.name
    work.do("HSET", "schedule", name, document(schedule))
    if schedule.paused_at is None and schedule.next_at is not None:
        work.do("ZADD", "schedule:due", to_us(schedule.next_at), name)
    else:
        work.do("ZREM", "schedule:due", name)


def _drop(work: Work, name: str) -> None:
    work.do("HDEL", "schedule", name)
    work.do("ZREM", "schedule:due", name)


def _is_unfinished(work: Work, job_id: JobId | None) -> Generator[Script, Any, bool]:
    if job_id is None:
        return False
    found = yield from find_job(work, JobId(UUID(str(job_id))), None)
    return found is not None and found.state.place not in FINISHED


def _put(work: Work, jobs: Sequence[JobSpec]) -> Generator[Script, Any, list[JobId]]:
    """Create these, or find the ones that hold their id or a key; no limit is asked. The ids, in order."""
    ids: list[JobId] = []
    own: dict[tuple[str, str], JobId] = {}
    at_keys: Unfinished = {}
    meets = any(spec.key is not None and spec.key.on_conflict != "wait" for spec in jobs)
    queues: set[str] = set()
    for spec in jobs:
        given, body = new_job(spec)
        keys = [(kind, given[kind]) for kind in ("id", "idempotency", "dedup") if kind in given]
        holder = yield from _holder(work, keys)
        holder = holder or next((own[key] for key in keys if key in own), None)
        if holder is None and meets:
            holder = yield from meet_at_key(work, spec, at_keys)
        if holder is not None:
            ids.append(holder)
            continue
        if "delay" in given:
            given["due"] = min(work.now + given.pop("delay"), LATEST_US)
        work.create(given, body)
        own.update(dict.fromkeys(keys, spec.id))
        queues.add(spec.queue)
        ids.append(spec.id)
    if queues:
        work.act("wake", sorted(queues))
    return ids


def _holder(work: Work, keys: Sequence[tuple[str, str]]) -> Generator[Script, Any, JobId | None]:
    """The job that holds one of these; one that is gone, or that nobody can read, holds nothing."""
    seqs = yield from work.read(*(("HGET", kind, name) for kind, name in keys))
    known = [(kind, int(seq)) for (kind, _), seq in zip(keys, seqs, strict=True) if seq is not None]
    jobs = yield from read_jobs(work, [seq for _, seq in known])
    for (kind, _), job in zip(known, jobs, strict=True):
        if job is not None and not (kind == "dedup" and job.state.place in FINISHED):
            return JobId(job.body.id)
    return None


def _audit(
    work: Work,
    op: DeclareSchedules | PauseSchedule | RunSchedule | RemoveSchedule,
    action: str,
    schedule: Schedule,
    before: dict[str, object] | None,
    after: dict[str, object] | None,
) -> None:
    signed = DoneBy(op.by or "", op.notes)
    work.audit(signed, action, schedule.spec.tenant, f"schedule:{schedule.spec.name}", before, after)
