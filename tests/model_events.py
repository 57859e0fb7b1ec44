"""Events in the oracle."""

from __future__ import annotations

from copy import deepcopy

from fairlane.core import ops
from tests.model_facts import span


class Events:
    events: list[ops.Event]
    last_event_id = 0

    def addevents(self, op, now):
        for draft in op.events:
            self.last_event_id += 1
            kept = ops.Event(
                id=self.last_event_id, at=now, kind=draft.kind, tenant=draft.tenant, data=deepcopy(draft.data)
            )
            self.events.append(kept)
        return ops.EventsAdded(watched=any(now < since + span(ops.WATCHED_FOR_S) for since in self.watched_at))

    def readevents(self, op, now):
        if op.watch:
            self.watched_at.append(now)
        found = [e for e in self.events if e.id > op.after and op.scope.tenant in (None, e.tenant)]
        found = [e for e in found if not op.kinds or e.kind in op.kinds]
        found = deepcopy(found[: max(1, min(op.limit, 1000))])
        return ops.EventPage(events=tuple(found), last=self.last_event_id)

    def forgetold(self, op, now):
        old = [e for e in self.events if op.events_before is not None and e.at < op.events_before]
        old = old[: max(op.limit, 0)]
        self.events = [e for e in self.events if e not in old]
        before, credentials = op.credentials_before, 0
        if before is not None:
            credentials = self._forget_credentials(before, op.limit, now)
        signals = self._forget_signals(op.signals_before, op.limit) if op.signals_before is not None else 0
        return ops.Forgotten(events=len(old), credentials=credentials, signals=signals)
