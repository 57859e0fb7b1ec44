"""The state machine of what is kept beside jobs: credentials, events, duties, alerts, the audit's seal, figures rolled up."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec import Raw
from msgspec.structs import replace

from fairlane.core.audit_chain import seal, verify
from fairlane.core.ids import Seq
from fairlane.core.ops import (
    ALL_TENANTS,
    AddEvents,
    Alert,
    AuditToSeal,
    Bury,
    DeadLetterFilter,
    Enqueue,
    EventDraft,
    FindCredential,
    ForgetOld,
    GroupDeadLetters,
    IssueCredential,
    ListCredentials,
    Op,
    PageAudit,
    ReadAlerts,
    ReadAuditChain,
    ReadEnqueued,
    ReadEvents,
    ReadStats,
    ReadUnsealed,
    RedeemLink,
    Reprocess,
    Resolve,
    Retain,
    RevokeCredential,
    RollUpEnqueued,
    SaveAlerts,
    SealAudit,
    SeeCredentials,
    SilenceAlerts,
    TakeDuty,
)
from fairlane.testing.conformance.samples import NOON, Making
from fairlane.testing.conformance.scene import Runs
from tests.stateful.side_by_side import SideBySide
from tests.stateful.strategies import QUEUES, TENANTS, TYPES, scopes

T = TypeVar("T")
KINDS = ("token", "link", "session")
SECRETS = tuple(letter * 64 for letter in "abcd")
RULES = ("backlog", "stuck")
DUTIES = ("alerts", "seal")

kinds: st.SearchStrategy[Any] = st.sampled_from(KINDS)
secrets = st.sampled_from(SECRETS)
limits = st.sampled_from((100, 100, 2, 1, 0))
ages = st.sampled_from((None, 0.0, 10.0, 60.0))
drafts = st.builds(
    EventDraft,
    kind=st.sampled_from(("job_completed", "dlq_alert", "job_limit_warning")),
    tenant=st.sampled_from((None, *TENANTS)),
    data=st.sampled_from(({}, {"queue": "bulk"}, {"deep": [{"er": None}], "n": 1})),
)


class SharedRecords(RuleBasedStateMachine):
    """Whoever issues, tells, watches or seals what in whatever order, the store answers as the model does."""

    open_store: ClassVar[Callable[[], Runs]]

    @initialize()
    def begin(self) -> None:
        self.both = SideBySide(type(self).open_store())
        self.now, self.making = NOON, Making()
        self.ids: list[UUID] = [self.making.job_id()]
        self.letters: list[Seq] = []
        self.seen_events: list[int] = [0]
        self.snapshots: list[AuditToSeal] = []
        self.both.model.last_event_id = self.both.store.run(ReadEvents(scope=ALL_TENANTS)).last

    def run(self, op: Op[T]) -> T:
        op = replace(op, now=self.now)
        model = self.both.model
        audited, told = len(model.audit), model.last_event_id
        answer = self.both.run(op)
        if len(model.audit) > audited:
            self._number_audit_as_stored(len(model.audit) - audited)
        if model.last_event_id > told:
            self._number_events_as_stored(told)
        return answer

    def _number_audit_as_stored(self, count: int) -> None:
        records = self.both.store.run(PageAudit(scope=ALL_TENANTS, limit=count)).records[::-1]
        model = self.both.model
        new = [replace(ours, id=theirs.id) for ours, theirs in zip(model.audit[-count:], records, strict=True)]
        model.audit[-count:], model.last_audit_id = new, new[-1].id

    def _number_events_as_stored(self, before: int) -> None:
        page = self.both.store.run(ReadEvents(scope=ALL_TENANTS, after=before))
        model = self.both.model
        new = [
            replace(ours, id=theirs.id)
            for ours, theirs in zip(model.events[-len(page.events) :], page.events, strict=True)
        ]
        model.events[-len(new) :], model.last_event_id = new, page.last
        self.seen_events += [event.id for event in new]

    @rule(span_s=st.sampled_from((0.5, 1.0, 9.5, 15.0, 30.0, 60.0)))
    def time_passes(self, span_s: float) -> None:
        self.now += timedelta(seconds=span_s)

    # Credentials.

    @rule(
        data=st.data(),
        kind=kinds,
        secret=secrets,
        ttl_s=st.sampled_from((None, 10.0, 60.0)),
        tenant=st.sampled_from((None, *TENANTS)),
        name=st.sampled_from(("ada", "robot")),
    )
    def issue(
        self, data: st.DataObject, kind: Any, secret: str, ttl_s: float | None, tenant: str | None, name: str
    ) -> None:
        if data.draw(st.sampled_from((True, True, True, False)), label="under a new id"):
            self.ids.append(self.making.job_id())
            chosen = self.ids[-1]
        else:
            chosen = self.known(data)
        given: dict[str, Any] = {"name": name, "prefix": "fl_", "roles": ("viewer",), "by": "ada", "notes": None}
        self.run(IssueCredential(id=chosen, kind=kind, hash=secret, tenant=tenant, ttl_s=ttl_s, **given))

    def known(self, data: st.DataObject) -> UUID:
        chosen: UUID = data.draw(st.sampled_from(self.ids[-4:]), label="credential")
        return chosen

    @rule(kind=kinds, secret=secrets)
    def find(self, kind: Any, secret: str) -> None:
        self.run(FindCredential(kind=kind, hash=secret))

    @rule(secret=secrets)
    def redeem_twice(self, secret: str) -> None:
        self.run(RedeemLink(hash=secret))
        assert self.run(RedeemLink(hash=secret)).credential is None

    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        self.run(RevokeCredential(id=self.known(data), by="grace", notes="n"))

    @rule(data=st.data())
    def see(self, data: st.DataObject) -> None:
        self.run(SeeCredentials(ids=tuple(data.draw(st.lists(st.sampled_from(self.ids), max_size=3), label="seen"))))

    @rule(events=ages, credentials=ages, limit=limits)
    def forget(self, events: float | None, credentials: float | None, limit: int) -> None:
        ago = [None if age is None else self.now - timedelta(seconds=age) for age in (events, credentials)]
        self.run(ForgetOld(events_before=ago[0], credentials_before=ago[1], limit=limit))

    # Events.

    @rule(told=st.lists(drafts, max_size=3))
    def tell(self, told: list[EventDraft]) -> None:
        self.run(AddEvents(events=tuple(told)))

    @rule(data=st.data(), scope=scopes, watch=st.booleans(), limit=st.sampled_from((200, 2, 1, 0)))
    def watch(self, data: st.DataObject, scope: Any, watch: bool, limit: int) -> None:
        after = data.draw(st.sampled_from(self.seen_events), label="after")
        asked = data.draw(st.sampled_from(((), (), ("dlq_alert",), ("dlq_alert", "job_completed"))), label="kinds")
        self.run(ReadEvents(scope=scope, after=after, kinds=asked, limit=limit, watch=watch))

    # Duties and alerts.

    @rule(name=st.sampled_from(DUTIES), every_s=st.sampled_from((0.5, 15.0, 60.0)))
    def take_a_duty(self, name: str, every_s: float) -> None:
        self.run(TakeDuty(name=name, every_s=every_s))

    @rule(
        data=st.data(),
        state=st.sampled_from(("pending", "firing", "resolved")),
        value=st.sampled_from((0.0, 0.1, 51.0)),
    )
    def decide_upon_alerts(self, data: st.DataObject, state: Any, value: float) -> None:
        versions = {(alert.rule, alert.about): alert.version for alert in self.run(ReadAlerts()).alerts}
        told = []
        for key in data.draw(st.lists(st.sampled_from([(r, a) for r in RULES for a in ("", "x")]), unique=True)):
            version = versions.get(key, 0) + data.draw(st.sampled_from((1, 1, 1, 0, 2)), label="version")
            instants = {"since": self.now, "fired_at": self.now if state == "firing" else None}
            over_s = data.draw(st.sampled_from((None, 0.0, 86_390.0, 86_399.999999, 86_400.0)), label="over for")
            instants["resolved_at"] = None if over_s is None else self.now - timedelta(seconds=over_s)
            instants["told_at"] = data.draw(st.sampled_from((None, self.now)), label="told at")
            told.append(
                Alert(
                    rule=key[0], about=key[1], state=state, value=value, severity="warning", version=version, **instants
                )
            )
        self.run(SaveAlerts(alerts=tuple(told)))

    @rule(rule_name=st.sampled_from(RULES), for_s=st.sampled_from((0.0, 0.0, 10.0, 60.0)))
    def silence(self, rule_name: str, for_s: float) -> None:
        self.run(SilenceAlerts(rule=rule_name, for_s=for_s, by="ada", notes="n"))

    # Jobs that end dead, so that there is something to group, count and audit.

    @rule(
        data=st.data(),
        tenant=st.sampled_from(TENANTS),
        queue=st.sampled_from(QUEUES),
        buried=st.sampled_from((True, True, False)),
        ahead_s=st.sampled_from((0.0, 0.0, 0.0, 40.0)),
    )
    def put_a_job(self, data: st.DataObject, tenant: str, queue: str, buried: bool, ahead_s: float) -> None:
        job = self.making.job(data.draw(st.sampled_from(TYPES)), tenant=tenant, queue=queue)
        now, self.now = self.now, self.now + timedelta(seconds=ahead_s)
        [receipt] = self.run(Enqueue(jobs=(job,))).receipts
        self.now = now
        if buried:
            self.run(Bury(scope=ALL_TENANTS, id=job.id, by="ada", reason=data.draw(st.sampled_from(("a", "b")))))
            self.letters.append(receipt.seq)

    @rule(
        data=st.data(),
        payload=st.sampled_from((None, b'{"user_id":7}', b'{"n":1}')),
        delay_s=st.sampled_from((None, 5.0)),
    )
    def deal_with_a_letter(self, data: st.DataObject, payload: bytes | None, delay_s: float | None) -> None:
        if not self.letters:
            return
        letter = data.draw(st.sampled_from(self.letters[-4:]), label="letter")
        who: dict[str, Any] = {"scope": data.draw(scopes), "id": letter, "by": "grace"}
        if data.draw(st.booleans(), label="again"):
            edited = None if payload is None else Raw(payload)
            self.run(Reprocess(**who, new_job_id=self.making.job_id(), payload=edited, delay_s=delay_s))
        else:
            self.run(Resolve(**who))
        if data.draw(st.sampled_from((False, False, True)), label="retention"):
            self.run(Retain(closed_before=self.now, stats_before=self.now - timedelta(minutes=2)))

    @rule(scope=scopes, limit=limits, status=st.sampled_from((None, "pending_review", "resolved")))
    def group(self, scope: Any, limit: int, status: Any) -> None:
        where = DeadLetterFilter(status=status)
        self.run(GroupDeadLetters(scope=scope, where=where, limit=limit))

    @rule(settled_s=st.sampled_from((0.0, 30.0)), limit=limits)
    def roll_up(self, settled_s: float, limit: int) -> None:
        self.run(RollUpEnqueued(settled_s=settled_s, limit=limit))

    @rule(after=st.integers(0, 12), limit=limits)
    def read_enqueued(self, after: int, limit: int) -> None:
        self.run(ReadEnqueued(after=after, limit=limit))

    # The seal.

    @rule(limit=st.sampled_from((500, 500, 2, 1)))
    def look_at_what_is_to_seal(self, limit: int) -> None:
        self.snapshots.append(self.run(ReadUnsealed(limit=limit)))

    @rule(data=st.data())
    def seal_what_was_seen(self, data: st.DataObject) -> None:
        """Now or a while ago, and without some that would have committed later."""
        if not self.snapshots:
            self.look_at_what_is_to_seal(500)
        there = data.draw(st.sampled_from(self.snapshots[-3:]), label="snapshot")
        late = data.draw(st.sampled_from((None, None, 0, 1)), label="late")
        records = [record for nth, record in enumerate(there.records) if nth != late]
        if records:
            self.run(SealAudit(links=seal(there.last, records)))

    # Always.

    @invariant()
    def both_show_the_same(self) -> None:
        for kind in KINDS:
            before: str | None = None
            while (page := self.run(ListCredentials(kind=kind, also_bad=True, before=before, limit=2))).next:  # type: ignore[arg-type]
                before = page.next
        self.run(ReadEvents(scope=ALL_TENANTS))
        self.run(ReadAlerts())
        self.run(ReadStats(since=NOON - timedelta(days=1), until=NOON + timedelta(days=1)))
        self.both.compare_everything()

    @invariant()
    def the_chain_is_whole(self) -> None:
        chain = self.run(ReadAuditChain(limit=1000))
        found = verify(chain.sealed)
        assert (found.links, found.broken) == (len(chain.sealed), None)
        assert len(chain.sealed) + chain.unsealed == len(self.both.model.audit)
