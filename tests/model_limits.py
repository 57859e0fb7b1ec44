"""Limits in the oracle: what people set, what is counted, who is held back."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from fairlane.core import ops
from fairlane.core.ids import EVERY_TENANT
from fairlane.core.limits import Limit, LimitKey, LimitsInForce, StoredLimit
from tests.model_facts import Record, span

WAITING = ("ready", "scheduled", "held", "leased")


class Limits:
    jobs: list[Record]
    limits: dict[LimitKey, StoredLimit]
    claims: list[dict[str, Any]]
    tokens: list[tuple[str, datetime]]

    # What people set.

    def listlimits(self, op, now, changed=False):
        kept = sorted(self.limits)
        return ops.Limits(limits=tuple(self.limits[key] for key in kept), changed=changed)

    def _note_limit(self, op, action, key, before, after, now):
        target = f"limit:{key.kind}:{key.name}" + (f"@{key.queue}" if key.queue else "")
        tenant = key.name if key.kind == "tenant" and key.name != EVERY_TENANT else None
        told = [limit and msgspec.json.decode(msgspec.json.encode(limit)) for limit in (before, after)]
        self._note(op, action, tenant, target, *told, now)

    def _set_before(self, key):
        """What somebody set: a record that says nothing but a pause is none."""
        there = self.limits.get(key)
        is_set = there and there.limit != Limit(kind=key.kind, name=key.name, queue=key.queue)
        return there.limit if is_set else None

    def setlimit(self, op, now):
        key, there = op.limit.key, self.limits.get(op.limit.key)
        if there and there.limit == op.limit:
            return self.listlimits(op, now)
        self._note_limit(op, "limit_set", key, self._set_before(key), op.limit, now)
        pause = there and there.paused_until
        self.limits[key] = StoredLimit(limit=op.limit, by=op.by, at=now, paused_until=pause)
        self._hold_again(key)
        return self.listlimits(op, now, changed=True)

    def clearlimit(self, op, now):
        key = LimitKey(op.kind, op.name, op.queue)
        if key not in self.limits:
            return self.listlimits(op, now)
        before = self._set_before(key)
        if before:
            self._note_limit(op, "limit_clear", key, before, None, now)
        del self.limits[key]
        self._hold_again(key)
        return self.listlimits(op, now, changed=True)

    def pauselimit(self, op, now):
        key, until = LimitKey(op.kind, op.name, op.queue), now + span(op.for_s)
        nothing = Limit(kind=op.kind, name=op.name, queue=op.queue)
        there = self.limits.get(key) or StoredLimit(limit=nothing, by=op.by, at=now)
        until = max(until, there.paused_until or until)
        self.limits[key] = msgspec.structs.replace(there, paused_until=until)
        self._hold_again(key)
        return ops.LimitPaused(until=until)

    # What is counted.

    def _in_force(self, op):
        return LimitsInForce(op.limits, self.limits.values())

    def _is_limited(self, op, now):
        force = self._in_force(op)
        for key in {*(limit.key for limit in op.limits), *self.limits}:
            if key.kind == "key":
                continue  # claims know nothing of it
            pause = force.paused_until(key)
            if force.running(key) is not None or force.rate(key) is not None or (pause and pause > now):
                return True
        return False

    def _leases_under(self, force, key):
        return [r for r in self.jobs if r.lease and key in force.keys_of(r.spec.queue, r.spec.tenant, r.spec.type)]

    def _claims_under(self, key, rate, now):
        """Instants of the claims that count against a rate now, oldest first."""
        return sorted(c["at"] for c in self.claims if c["key"] == key and c["at"] + span(rate.period_s) > now)

    def _has_room(self, force, key, now):
        running, rate, pause = force.running(key), force.rate(key), force.paused_until(key)
        if running is not None and len(self._leases_under(force, key)) >= running:
            return False
        if rate is not None and len(self._claims_under(key, rate, now)) >= rate.count:
            return False
        return not (pause and pause > now)

    def _free_at(self, force, key, now):
        """When its rate and its pause let the next one through; None: now, as far as they are concerned."""
        rate, pause = force.rate(key), force.paused_until(key)
        free = [pause] if pause and pause > now else []
        starts = [] if rate is None else self._claims_under(key, rate, now)
        if rate is not None and 0 < rate.count <= len(starts):
            free.append(starts[-rate.count] + span(rate.period_s))
        return max(free, default=None)

    def _count_claim(self, force, r, now):
        for key in force.keys_of(r.spec.queue, r.spec.tenant, r.spec.type):
            if force.rate(key) is not None:
                self.claims.append({"key": key, "at": now, "job": r.spec.id, "attempt": r.attempt})

    def _give_back(self, r):
        mine = r.spec.id, r.lease.attempt
        self.claims = [claim for claim in self.claims if (claim["job"], claim["attempt"]) != mine]

    def taketokens(self, op, now):
        force = self._in_force(op)
        rated = [tenant for tenant in sorted(op.counts) if force.enqueue_rate(tenant) is not None]
        for tenant in rated:
            rate, count = force.enqueue_rate(tenant), op.counts[tenant]
            taken = sorted(at for whose, at in self.tokens if whose == tenant and at + span(rate.period_s) > now)
            missing = len(taken) + count - rate.count
            if missing > 0:
                retry_at = None if count > rate.count else taken[missing - 1] + span(rate.period_s)
                return ops.TokensTaken(granted=False, tenant=tenant, rate=rate, retry_at=retry_at)
        self.tokens += [(tenant, now) for tenant in rated for _ in range(op.counts[tenant])]
        return ops.TokensTaken(granted=True)

    # Who is held back.

    def _places(self, tenant, queue, places=WAITING):
        return [r for r in self.jobs if (r.spec.tenant, r.spec.queue) == (tenant, queue) and r.place in places]

    def _limit_hits(self, op, new):
        """What the jobs a call would create run into: the first refusal, other hits, and the ids of those to be held."""
        force, hits, over = self._in_force(op), [], set()
        for spec in op.jobs:
            size, most = len(bytes(spec.payload)), force.terms(spec.tenant, spec.queue).payload_bytes
            if most is not None and size > most:
                return self._hit(spec.tenant, spec.queue, "payload_bytes", most, size, "reject"), [], set()
        for tenant, queue in sorted({(spec.tenant, spec.queue) for spec in new}):
            terms = force.terms(tenant, queue)
            if terms.waiting is None or (terms.when_full == "warn" and not op.warns):
                continue
            found = min(len(self._places(tenant, queue)), terms.waiting)
            beyond = [spec for spec in new if (spec.tenant, spec.queue) == (tenant, queue)][terms.waiting - found :]
            if beyond:
                hits.append(self._hit(tenant, queue, "waiting", terms.waiting, found, terms.when_full))
                over |= {spec.id for spec in beyond}
        rejecting = {(hit.tenant, hit.queue): hit for hit in hits if hit.policy == "reject"}
        for spec in new:
            if spec.id in over and (spec.tenant, spec.queue) in rejecting:
                return rejecting[spec.tenant, spec.queue], [], set()
        holding = {(hit.tenant, hit.queue) for hit in hits if hit.policy == "hold"}
        return None, hits, {spec.id for spec in new if spec.id in over and (spec.tenant, spec.queue) in holding}

    def _hit(self, tenant, queue, cause, limit, found, policy):
        return ops.LimitHit(tenant=tenant, queue=queue, cause=cause, limit=limit, found=found, policy=policy)

    def unhold(self, op, now):
        force, freed = self._in_force(op), []
        held = [r for r in self.jobs if r.place == "held" and not r.at_key]
        for queue, tenant in sorted({(r.spec.queue, r.spec.tenant) for r in held}):
            here = sorted((r for r in self._places(tenant, queue, ("held",)) if not r.at_key), key=lambda r: r.seq)
            most = force.terms(tenant, queue).waiting
            used = len(self._places(tenant, queue)) - len(here)
            freed += here if most is None else here[: max(most - used, 0)]
        freed = freed[: max(op.limit, 0)]
        for r in freed:
            if r.is_due(now):
                r.make_ready()
                r.due = min(r.due, now)
            else:
                r.place = "scheduled"
            r.since = None
        return ops.Unheld(count=len(freed))

    def age(self, op, now):
        ready = [r for r in self.jobs if r.place == "ready" and r.spec.queue == op.queue]
        moved = []
        for r in sorted(ready, key=lambda r: (r.band, r.spec.tenant, *r.key)):
            reached = max(r.spec.priority - (now - r.due) // span(op.every_s), 0)
            if reached < (r.band if r.spec.priority_scope == "queue" else r.rank):
                moved.append((r, reached))
        for r, reached in moved[: max(op.limit, 0)]:
            if r.spec.priority_scope == "queue":
                r.band = reached
            else:
                r.rank = reached
        return ops.Aged(count=len(moved[: max(op.limit, 0)]))
