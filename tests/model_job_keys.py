"""Keys of jobs in the oracle: who is held at one, who has a place, who is let in."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fairlane.core import ops
from fairlane.core.job_keys import key_name
from fairlane.core.limits import NO_LIMIT, LimitKey
from tests.model_facts import Record, span


def whose(r: Record) -> tuple[str, str]:
    return r.spec.tenant, r.spec.key.value


class JobKeys:
    jobs: list[Record]
    limits: dict[LimitKey, Any]
    claims: list[dict[str, Any]]

    def _held_at(self, key):
        """In the order in which they are let in."""
        held = [r for r in self.jobs if r.at_key and whose(r) == key]
        return sorted(held, key=lambda r: (False, r.order) if r.spec.key.ordered else (True, r.band, *r.key))

    def _with_place(self, key):
        return [r for r in self.jobs if r.has_place and whose(r) == key]

    def _terms(self, first):
        """What is in force for a job's key: places, rate, and until when nobody is let in."""
        own, kept = first.spec.key, self.limits.get(LimitKey("key", first.spec.key.name))
        running = own.running if kept is None or kept.limit.running is None else kept.limit.running
        rate = own.rate if kept is None or kept.limit.rate is None else kept.limit.rate
        running = None if running == NO_LIMIT else running
        if own.ordered:
            running = 1 if running is None else min(running, 1)
        return running, None if rate is None or rate.count == NO_LIMIT else rate, kept and kept.paused_until

    def _let_in(self, now, hints):
        for key in sorted({whose(r) for r in self.jobs if r.at_key}):
            held, placed = self._held_at(key), self._with_place(key)
            running, rate, paused_until = self._terms(held[0])
            rooms = [] if running is None else [running - len(placed)]
            if rate is not None:
                uses = self._claims_under(("key", *key), rate, now)
                rooms.append(rate.count - len(uses) - sum(r.place == "ready" for r in placed))
                if 0 < rate.count <= len(uses):
                    hints.append(uses[-rate.count] + span(rate.period_s))
            if paused_until and paused_until > now:
                hints.append(paused_until)
                rooms = [0]
            for r in held[: max(min(rooms, default=len(held)), 0)]:
                r.place, r.at_key, r.let_in, r.is_rated = "ready", False, True, rate is not None

    def _hold_again(self, key: LimitKey):
        """The terms of a key's name have changed: nobody has been let in yet."""
        if key.kind == "key":
            for r in self.jobs:
                if r.place == "ready" and r.spec.key and r.spec.key.name == key.name:
                    r.make_ready()

    def _conflicting(self, spec):
        """The unfinished jobs with its key, oldest first, if they are as many as run at once."""
        places = ("ready", "scheduled", "leased")
        found = [r for r in self.jobs if r.spec.key and whose(r) == (spec.tenant, spec.key.value)]
        found = [r for r in found if r.place in places or r.at_key]
        running = self._terms(Record(spec, 0, "new", enqueued_at=None, first_due=None, due=None))[0]
        return found if running is not None and len(found) >= running else []

    def _use(self, key):
        held, placed = self._held_at(key), self._with_place(key)
        first = held[0] if held else placed[0]
        running, rate, _ = self._terms(first)
        shown = [
            ops.PlaceHolder(
                id=r.spec.id,
                seq=r.seq,
                type=r.spec.type,
                state=r.place,
                since=r.lease.leased_at if r.lease else r.finished_at or r.due,
            )
            for r in placed[: ops.HOLDERS_SHOWN]
        ]
        counts = {"in_use": len(placed), "waiting": len(held), "ordered": first.spec.key.ordered}
        return ops.KeyUse(tenant=key[0], key=key[1], running=running, rate=rate, holders=tuple(shown), **counts)

    def listkeys(self, op, now):
        held = Counter(whose(r) for r in self.jobs if r.at_key and op.scope.admits(r.spec.tenant))
        found = [key for key in held if op.name in (None, key_name(key[1])) and op.key in (None, key[1])]
        found.sort(key=lambda key: (-held[key], key))
        return ops.KeyUses(keys=tuple(self._use(key) for key in found[: max(1, min(op.limit, ops.MAX_PAGE))]))

    def freeplace(self, op, now):
        def change(r):
            r.let_in = r.is_rated = False
            return True

        return self._act_on_job(op, "job_place_free", now, lambda r: r.has_place, change)

    def _wait_at_key(self, r):
        """What `why` says of it."""
        if r.spec.key is None or r.is_finished or not (self._held_at(whose(r)) or self._with_place(whose(r))):
            return {}
        ahead = self._held_at(whose(r)).index(r) if r.at_key else None
        return {"key": self._use(whose(r)), "key_ahead": ahead}
