"""Verbs written once: what steps yield, what the store raises in them, and both colours of a verb."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane import Fairlane, StoreUnavailable
from fairlane.client.steps import Sleep, Steps, Verbs, ask, both
from fairlane.core.ops import Check, Health, Op


class Probe(Verbs):
    def _health(self, naps: int = 0) -> Steps[Health]:
        """Look, after some naps."""
        for _ in range(naps):
            yield Sleep(1.5)
        return (yield from ask(Check()))

    def _try(self) -> Steps[str]:
        try:
            yield from ask(Check())
        except StoreUnavailable as error:
            return f"away: {error.store}"
        return "there"

    health, ahealth = both(_health)
    attempt, aattempt = both(_try)


def test_a_verb_has_two_colours(app: Fairlane, pause: Any) -> None:
    probe = Probe(app.runtime)
    assert probe.health(2).store == asyncio.run(probe.ahealth(naps=1)).store
    assert pause.pauses == [1.5, 1.5, 1.5]
    assert (probe.health.__name__, probe.ahealth.__name__, probe.health.__doc__) == (
        "health",
        "ahealth",
        "Look, after some naps.",
    )


def test_what_the_store_raises_is_raised_where_it_was_asked(app: Fairlane, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = Probe(app.runtime)
    assert (probe.attempt(), asyncio.run(probe.aattempt())) == ("there", "there")

    def run(op: Op[Any], *, on: object = None) -> Any:
        raise StoreUnavailable("test", "gone")

    async def arun(op: Op[Any], *, on: object = None) -> Any:
        raise StoreUnavailable("test", "gone")

    monkeypatch.setattr(app.runtime.access, "run", run)
    monkeypatch.setattr(app.runtime.access, "arun", arun)
    assert (probe.attempt(), asyncio.run(probe.aattempt())) == ("away: test", "away: test")
    with pytest.raises(StoreUnavailable):
        probe.health()
