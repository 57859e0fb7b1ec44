"""Claiming in the oracle: one row after the other, by the words of `Want`."""

from __future__ import annotations

from typing import Any

from fairlane.core import job as values, ops
from tests.model_facts import Record, Try, span


class Claiming:
    jobs: list[Record]
    last_claimed: int
    held_back: bool

    def _claim(self, op, want, now, marks, cursors, hints):
        """The leases of one Want, and the survey it asked for."""
        force, leases, looks, last = self._in_force(op), [], {}, {}
        discovered: list[Any] = []

        def have_room(keys):
            full = [key for key in keys if not self._has_room(force, key, now)]
            hints.extend(filter(None, (self._free_at(force, key, now) for key in full)))
            is_limited = any(force.running(key) is not None or force.rate(key) is not None for key in keys)
            return not full and not (is_limited and want.slots is not None and len(leases) >= want.slots)

        def line_has_room(queue, tenant):
            return have_room(force.keys_of(queue, tenant, "")[:3])

        def type_has_room(r):
            has_room = have_room(force.keys_of(r.spec.queue, r.spec.tenant, r.spec.type)[3:])
            self.held_back = self.held_back or not has_room
            return has_room

        def next_claimable(line, after=None):
            for r in sorted((r for r in self.jobs if r.place == "ready" and r.line == line), key=lambda r: r.key):
                if any(start is not None and r.key <= start for start in (after, last.get(line))):
                    continue
                if looks.get(line, 0) >= want.look:
                    return None
                looks[line], last[line] = looks.get(line, 0) + 1, r.key
                marks[line] = r.key
                wanted = want.types is None or r.spec.type in want.types
                wanted = wanted and not (r.put_off and r.spec.type in want.leaves)
                if wanted and not self._is_paused("type", r.spec.type) and type_has_room(r):
                    return r
            return None

        def lease(r):
            started = len(leases) < want.start
            timeout_s = want.timeout_s if r.spec.timeout_s is None else r.spec.timeout_s
            deadline_at = now + span(2 * timeout_s if started else want.start_by_s)
            r.place, r.attempt, r.put_off = "leased", r.attempt + 1, False
            self.last_claimed += 1
            begun = now if started else None
            r.lease = Try(r.attempt, op.worker, now, deadline_at, op.claim_no, self.last_claimed, want.lane, begun)
            self._count_claim(force, r, now)
            if r.is_rated:
                whose_key = "key", r.spec.tenant, r.spec.key.value
                self.claims.append({"key": whose_key, "at": now, "job": r.spec.id, "attempt": r.attempt})
            leases.append(self._lease_of(r))

        for take in want.takes:
            if self._is_paused("queue", take.queue) or self._is_paused("tenant", take.tenant):
                continue
            after = take.after and (take.after.rank, take.after.due_at, take.after.seq)
            for _ in range(take.limit):
                if len(leases) >= want.limit or not line_has_room(take.queue, take.tenant):
                    break
                r = next_claimable((take.queue, take.band, take.tenant), after)
                if r is None:
                    break
                lease(r)
        open_queues = [queue for queue in want.queues if not self._is_paused("queue", queue)]
        for queue in open_queues if want.discover else ():
            for band in sorted({r.band for r in self.jobs if r.place == "ready" and r.spec.queue == queue}):
                turns = self._tenants_behind(want.cursor, queue, band)
                while turns and len(leases) < want.limit:
                    tenant = turns.pop(0)
                    r = next_claimable((queue, band, tenant)) if line_has_room(queue, tenant) else None
                    if r is not None:
                        turns.append(tenant)
                        lease(r)
                        cursors[want.lane] = tenant
                        discovered.append((queue, band, tenant))
        return leases, [self._survey(want, *discovered[-1])] if discovered and want.survey > 0 else []

    def _tenants_behind(self, cursor, queue, band):
        here = sorted({r.spec.tenant for r in self.jobs if r.place == "ready" and r.line[:2] == (queue, band)})
        here = [name for name in here if not self._is_paused("tenant", name)]
        return [name for name in here if name > cursor] + [name for name in here if name <= cursor]

    def _survey(self, want, queue, band, served):
        tenants = self._tenants_behind(served, queue, band)[: want.survey]
        return ops.Survey(lane=want.lane, queue=queue, band=band, tenants=tuple(tenants))

    def _lease_of(self, r):
        same = set(values.Lease.__struct_fields__) & set(values.JobSpec.__struct_fields__) - {"payload", "key"}
        kept = ("seq", "attempt", "attempts", "crashes", "suspect", "enqueued_at", "band", "rank")
        return values.Lease(
            **{name: getattr(r.spec, name) for name in same},
            **{name: getattr(r, name) for name in kept},
            **{name: getattr(r.lease, name) for name in ("claim_no", "lane", "leased_at", "deadline_at")},
            started=r.lease.started_at is not None,
            due_at=r.due,
            payload=bytes(r.spec.payload).decode(),
        )
