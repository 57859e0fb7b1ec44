"""Durable steps and signals in the oracle."""

from __future__ import annotations

from fairlane.core import ops
from fairlane.core.job import SignalWait, StepRecord


def steps_of(r):
    return tuple(sorted(r.steps, key=lambda step: step.n))


def is_waiting(r):
    return r.wait is not None and r.place == "scheduled" and r.attempt == r.wait["attempt"]


def wait_of(r):
    return SignalWait(**{name: r.wait[name] for name in ("n", "name", "key", "until")}) if is_waiting(r) else None


class Signals:
    def recordstep(self, op, now):
        r = self._leased(op, op.worker)
        if r is None:
            return ops.StepAnswer(accepted=False)
        if self._step(r, op.n) is None:
            result = None if op.result is None else bytes(op.result).decode()
            self._record(r, op.n, "call", op.name, op.attempt, now, ran_s=op.ran_s, result=result)
        return ops.StepAnswer(accepted=True, step=self._step(r, op.n))

    def readsteps(self, op, now):
        r = self._leased(op, op.worker)
        return ops.RecordedSteps(accepted=r is not None, steps=steps_of(r) if r else ())

    def takesignal(self, op, now):
        r = self._leased(op, op.worker)
        if r is None:
            return ops.SignalAnswer(accepted=False)
        known, signal = self._step(r, op.n), self._unheard(r, op.name, op.key)
        waits = r.wait and r.wait["n"] == op.n
        if known is None and not signal and not waits:
            return ops.SignalAnswer(accepted=True)
        if known is None and not signal and r.wait["until"] > now:
            return ops.SignalAnswer(accepted=True, left_s=(r.wait["until"] - now).total_seconds())
        if known is None:
            self._hear(r, op.n, op.name, op.key, op.attempt, signal, now)
        return ops.SignalAnswer(accepted=True, step=self._step(r, op.n))

    def emit(self, op, now):
        if any(s["id"] == op.id for s in self.signals):
            return ops.Emitted(repeated=True)
        kept = {"id": op.id, "tenant": op.tenant, "name": op.name, "key": op.key, "at": now}
        self.signals.append(kept | {"data": bytes(op.data).decode(), "undelivered": True})
        count = self._deliver([self.signals[-1]], ops.DELIVER_LIMIT, now) if op.deliver else 0
        return ops.Emitted(repeated=False, delivered=count)

    def deliver(self, op, now):
        limit = max(op.limit, 0)
        signals = [s for s in sorted(self.signals, key=lambda s: (s["at"], s["id"])) if s["undelivered"]][:limit]
        count = self._deliver(signals, limit, now)
        return ops.Delivered(count=count, more=limit in (count, len(signals)))

    def listsignals(self, op, now):
        found = [s for s in self.signals if op.scope.admits(s["tenant"])]
        found = [s for s in found if op.name in (None, s["name"]) and op.key in (None, s["key"])]
        found.sort(key=lambda s: (s["at"], s["id"]), reverse=True)
        names = ops.Signal.__struct_fields__
        page = found[: max(1, min(op.limit, ops.MAX_PAGE))]
        return ops.SignalPage(signals=tuple(ops.Signal(**{name: s[name] for name in names}) for s in page))

    def _deliver(self, signals, limit, now):
        count = 0
        for s in signals:
            waiting = [r for r in self.jobs if is_waiting(r) and self._concerns(s, r, r.wait["name"], r.wait["key"])]
            for r in waiting[: limit - count]:
                self._hear(r, r.wait["n"], s["name"], s["key"], r.wait["attempt"], s, now)
                r.due = now
            s["undelivered"] = len(waiting) > limit - count
            count = min(count + len(waiting), limit)
        return count

    def _suspend(self, r, suspension, attempt, now):
        if self._step(r, suspension.n) is not None:
            return
        if not suspension.signal:
            self._record(r, suspension.n, "sleep", suspension.name, attempt, now, until=r.due)
        elif signal := self._unheard(r, suspension.name, suspension.key):
            self._hear(r, suspension.n, suspension.name, suspension.key, attempt, signal, now)
            r.due = now
        else:
            r.wait = {"attempt": attempt, "n": suspension.n, "name": suspension.name, "key": suspension.key}
            r.wait["until"] = r.due

    def _unheard(self, r, name, key):
        found = [s for s in self.signals if self._concerns(s, r, name, key)]
        return min(found, key=lambda s: (s["at"], s["id"]), default=None)

    def _concerns(self, s, r, name, key):
        heard = any(step.signal == s["id"] for step in r.steps)
        return (s["tenant"], s["name"], s["key"]) == (r.spec.tenant, name, key) and not heard

    def _hear(self, r, n, name, key, attempt, signal, now):
        said = {"result": signal["data"], "signal": signal["id"]} if signal else {}
        self._record(r, n, "wait", name, attempt, now, key=key, **said)
        r.wait = None

    def _record(self, r, n, kind, name, attempt, now, key="", **more):
        r.steps.append(StepRecord(n=n, kind=kind, name=name, key=key, attempt=attempt, at=now, **more))

    def _step(self, r, n):
        return next((step for step in r.steps if step.n == n), None)

    def _forget_signals(self, before, limit):
        old = sorted((s for s in self.signals if s["at"] < before), key=lambda s: (s["at"], s["id"]))[: max(limit, 0)]
        self.signals = [s for s in self.signals if s not in old]
        return len(old)
