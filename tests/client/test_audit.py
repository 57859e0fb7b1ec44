"""The audit verified as a whole, from a kept link on, and in parts; alerts silenced; events read."""

from __future__ import annotations

import asyncio

import pytest

from fairlane import Fairlane, InvalidOption, PermissionDenied, tenant
from fairlane.core.audit_chain import seal
from fairlane.core.ops import AddEvents, ReadUnsealed, SealAudit
from fairlane.core.ops.events import EventDraft


def seal_all(app: Fairlane) -> None:
    found = app.runtime.store.run(ReadUnsealed())
    app.runtime.store.run(SealAudit(links=seal(found.last, found.records)))


def test_a_chain_is_verified_as_a_whole_and_from_a_link_on(app: Fairlane) -> None:
    assert app.audit.verify().last is None
    for queue in ("a", "b", "c"):
        app.queues.pause(queue, by="ada")
    seal_all(app)
    app.queues.pause("d")
    found = app.audit.verify()
    assert (found.links, found.broken, found.unsealed, found.has_more) == (3, None, 1, False)
    assert found.last is not None
    kept = found.last.n, found.last.hash
    assert app.audit.verify(kept=kept) == found
    rest = asyncio.run(app.audit.averify(after=kept))
    assert (rest.links, rest.broken) == (0, None)


def test_a_chain_without_the_kept_link_is_broken(app: Fairlane) -> None:
    app.queues.pause("a")
    seal_all(app)
    for given, why in (
        ({"kept": (1, "0" * 64)}, "renewed"),
        ({"kept": (7, "0" * 64)}, "cut_off"),
        ({"after": (1, "0" * 64)}, "link_changed"),
        ({"after": (7, "0" * 64)}, "gap"),
    ):
        broken = app.audit.verify(**given).broken  # type: ignore[arg-type]
        assert broken is not None
        assert broken.why == why
    with tenant("acme"), pytest.raises(PermissionDenied):
        app.audit.verify()


def test_a_rule_is_silenced_for_a_while(app: Fairlane) -> None:
    rule = app.runtime.settings.alerts.rules_in_force[0].name
    [silence] = app.alerts.silence(rule, 60, by="ada", notes="known").silences
    assert (silence.rule, silence.by, silence.notes) == (rule, "ada", "known")
    assert app.alerts.list().silences == (silence,)
    assert asyncio.run(app.alerts.asilence(rule, 0)).silences == ()
    for bad in (lambda: app.alerts.silence("no_such_rule", 60), lambda: app.alerts.silence(rule, -1)):
        with pytest.raises(InvalidOption):
            bad()


def test_events_are_read_in_order_and_by_tenant(app: Fairlane) -> None:
    drafts = [EventDraft(kind=kind, tenant=tenant) for kind, tenant in (("a", "acme"), ("b", None), ("a", "globex"))]
    app.runtime.store.run(AddEvents(events=tuple(drafts)))
    page = app.events.list()
    assert [event.kind for event in page.events] == ["a", "b", "a"]
    assert [event.tenant for event in app.events.list(kinds=("a",), after=page.events[0].id).events] == ["globex"]
    assert [event.tenant for event in asyncio.run(app.events.alist(tenant="acme")).events] == ["acme"]
    with pytest.raises(InvalidOption):
        app.events.list(limit=0)
