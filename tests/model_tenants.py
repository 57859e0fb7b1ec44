"""Tenants in the oracle, and why a job waits."""

from __future__ import annotations

from typing import Any

from fairlane.core import ops
from fairlane.core.limits import LimitKey, StoredLimit
from tests.model_facts import Record
from tests.model_pages import job_of
from tests.model_signals import wait_of

CAP = ops.TENANT_COUNT_CAP


class Tenants:
    jobs: list[Record]
    workers: list[dict[str, Any]]
    pauses: list[ops.Pause]
    limits: dict[LimitKey, StoredLimit]
    tenants: dict[str, dict[str, Any]]

    def _tenant(self, name):
        mine = [r.place for r in self.jobs if r.spec.tenant == name]
        return ops.TenantRecord(
            name=name,
            **self.tenants.get(name, {"weight": 1.0, "tier": None, "seen_at": None}),
            paused=self._is_paused("tenant", name),
            limits=tuple(self.limits[key] for key in sorted(self.limits) if key[:2] == ("tenant", name)),
            **{place: min(mine.count(place), CAP) for place in ("ready", "scheduled", "held", "leased")},
        )

    def settenant(self, op, now):
        there = self.tenants.setdefault(op.name, {"weight": 1.0, "tier": None, "seen_at": now})
        before = {name: there[name] for name in ("weight", "tier")}
        said = {"weight": op.weight, "tier": op.tier}
        after = {name: before[name] if said[name] is None else said[name] for name in before}
        if after != before:
            there |= after
            self._note(op, "tenant_set", op.name, f"tenant:{op.name}", before, after, now)
        return self._tenant(op.name)

    def gettenant(self, op, now):
        return self._tenant(op.name) if op.scope.admits(op.name) else None

    def pagetenants(self, op, now):
        names = [name for name in sorted(self.tenants) if op.scope.admits(name) and name > op.after]
        names = [name for name in names if op.tier in (None, self.tenants[name]["tier"])]
        limit = max(1, min(op.limit, ops.MAX_PAGE))
        following = names[limit - 1] if len(names) > limit else None
        return ops.TenantPage(tenants=tuple(self._tenant(name) for name in names[:limit]), next=following)

    def hastenants(self, op, now):
        return any(name != "system" for name in (*self.tenants, *(r.spec.tenant for r in self.jobs)))

    def addtenants(self, op, now):
        names = [name for name in sorted({r.spec.tenant for r in self.jobs}) if name > op.after]
        new = [name for name in names[: op.limit] if name not in self.tenants]
        self.tenants |= {name: {"weight": 1.0, "tier": None, "seen_at": now} for name in new}
        following = names[op.limit - 1] if len(names) > op.limit else None
        return ops.TenantsAdded(added=len(new), next=following)

    def readweights(self, op, now):
        return ops.Weights(weights={name: t["weight"] for name, t in self.tenants.items() if t["weight"] != 1})

    def why(self, op, now):
        r = next((r for r in self.jobs if r.spec.id == op.id and op.scope.admits(r.spec.tenant)), None)
        if r is None:
            return None
        spec, force = r.spec, self._in_force(op)
        keys = [] if r.is_finished else force.keys_of(spec.queue, spec.tenant, spec.type)
        live = [w for w in self.workers if w["expires_at"] > now and (not w["queues"] or spec.queue in w["queues"])]
        concerning = {("queue", spec.queue), ("type", spec.type), ("tenant", spec.tenant)}
        pauses = [pause for pause in self.pauses if (pause.kind, pause.name) in concerning]
        limits = [self._state(force, key, now) for key in keys]
        return ops.Waiting(
            now=now,
            job=job_of(r),
            place="held" if r.place == "waiting" else r.place,
            **(self._place_in_line(r) if r.place == "ready" else {}),
            pauses=tuple(sorted(pauses, key=lambda pause: pause.kind)),
            limits=tuple(state for state in limits if state is not None),
            **self._wait_at_key(r),
            waiting_limit=force.terms(spec.tenant, spec.queue).waiting,
            workers=len(live),
            waits_for=wait_of(r),
            suspect=r.suspect and not r.is_finished,
            worker_until=next((w["expires_at"] for w in self.workers if r.lease and w["id"] == r.lease.worker), None),
            knowing=sum(not w["types"] or spec.type in w["types"] for w in live),
        )

    def _place_in_line(self, r):
        ready = [other for other in self.jobs if other.place == "ready" and other.spec.queue == r.spec.queue]
        others = {other.spec.tenant for other in ready if other.band == r.band} - {r.spec.tenant}
        return {
            "ahead": min(sum(other.line == r.line and other.key < r.key for other in ready), CAP),
            "more_urgent": min(sum(other.band < r.band for other in ready), CAP),
            "tenants": min(len(others), CAP),
        }

    def _state(self, force, key, now):
        running, rate, pause = force.running(key), force.rate(key), force.paused_until(key)
        pause = pause if pause and pause > now else None
        if running is None and rate is None and pause is None:
            return None
        return ops.LimitState(
            kind=key.kind,
            name=key.name,
            queue=key.queue,
            running=running,
            leases=0 if running is None else len(self._leases_under(force, key)),
            rate=rate,
            starts=0 if rate is None else len(self._claims_under(key, rate, now)),
            free_at=self._free_at(force, key, now),
        )
