"""Shared circuit breakers in the oracle: the picture in `core.breaker`, drawn once more without looking at its code."""

from __future__ import annotations

from typing import Any

from fairlane.core import breaker as values, ops
from tests.model_facts import span

CLOSED = {"state": "closed", "failures": 0, "successes": 0, "probing": 0}
CLOSED |= dict.fromkeys(("opened_at", "half_opened_at", "retry_at"))


class Breakers:
    breakers: dict[str, dict[str, Any]]

    def _breaker(self, name, now):
        return self.breakers.get(name) or CLOSED | {"last_failure_at": None, "updated_at": now}

    def admit(self, op, now):
        row = self._breaker(op.name, now)
        if row["state"] == "open" and row["retry_at"] is not None and row["retry_at"] <= now:
            row |= {"state": "half_open", "half_opened_at": now, "retry_at": None, "updated_at": now}
        if row["state"] != "half_open":
            return values.Admission(admitted=row["state"] == "closed", state=row["state"], retry_at=row["retry_at"])
        given_up_at = row["updated_at"] + span(op.policy.cooldown_s)
        if row["probing"] >= op.policy.probes:
            if now < given_up_at:
                return values.Admission(admitted=False, state="half_open", retry_at=given_up_at)
            row["probing"] = 0
        row |= {"probing": row["probing"] + 1, "updated_at": now}
        return values.Admission(admitted=True, state="half_open")

    def report(self, op, now):
        row = self.breakers[op.name] = self._breaker(op.name, now)
        for failed in [True] * op.failures + [False] * op.successes:
            if failed:
                row |= {"last_failure_at": now, "updated_at": now}
                if row["state"] != "open":
                    row["failures"] += 1
                    if row["state"] == "half_open" or row["failures"] >= op.policy.threshold:
                        row |= {"state": "open", "successes": 0, "probing": 0, "opened_at": now}
                        row["retry_at"] = now + span(op.policy.cooldown_s)
            elif row["state"] == "half_open":
                row |= {"successes": row["successes"] + 1, "probing": max(row["probing"] - 1, 0), "updated_at": now}
                if row["successes"] >= op.policy.probes:
                    row |= CLOSED
            elif row["state"] == "closed" and row["failures"]:
                row |= {"failures": 0, "updated_at": now}
        return values.BreakerRecord(name=op.name, **row)

    def listbreakers(self, op, now):
        return ops.Breakers(
            breakers=tuple(values.BreakerRecord(name=n, **self.breakers[n]) for n in sorted(self.breakers))
        )

    def _set_breaker(self, op, action, facts, now):
        row = self.breakers[op.name] = self._breaker(op.name, now)
        before = row["state"]
        row |= facts | {"updated_at": now}
        self._note(op, action, None, f"breaker:{op.name}", {"state": before}, {"state": row["state"]}, now)
        return ops.BreakerAct(breaker=values.BreakerRecord(name=op.name, **row))

    def resetbreaker(self, op, now):
        return self._set_breaker(op, "breaker_reset", CLOSED, now)

    def forcebreaker(self, op, now):
        opened = {"state": "open", "successes": 0, "probing": 0, "opened_at": now, "retry_at": None}
        return self._set_breaker(op, "breaker_force_open", opened, now)
