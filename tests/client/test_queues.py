"""Queues listed and measured, and figures over time."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from fairlane import Fairlane, FakeClock, InvalidOption
from fairlane.core.ids import WorkerId
from fairlane.core.ops import AddStats, Renew, StatRow


def test_a_queue_is_listed_with_its_counts_and_whether_it_is_paused(app: Fairlane, clock: FakeClock) -> None:
    send = app.task(name="send", queue="mail")(lambda: None)
    send.using(tenant="acme").enqueue()
    send.using(delay=60).enqueue()
    clock.advance(5)
    app.queues.pause("idle")
    idle, mail = app.queues.list()
    assert (idle.queue, idle.paused, idle.pending, idle.oldest_pending_s) == ("idle", True, 0, None)
    assert (mail.queue, mail.paused, mail.ready, mail.scheduled, mail.oldest_pending_s) == ("mail", False, 1, 1, 5.0)
    [seen] = asyncio.run(app.queues.alist(tenant="acme"))
    assert (seen.queue, seen.pending) == ("mail", 1)
    assert (app.queues.depth(), app.queues.depth("mail"), app.queues.depth("idle")) == (2, 2, 0)
    assert app.queues.depth(tenant="acme") == 1
    assert app.queues.running("mail") == 0


def test_figures_are_summed_over_steps_of_time(app: Fairlane, clock: FakeClock) -> None:
    worker = WorkerId(app.runtime.new_job_id())
    app.runtime.store.run(Renew(worker=worker, lease_s=60))
    began = clock.now().replace(second=0, microsecond=0)
    rows = tuple(
        StatRow(minute=began + timedelta(minutes=n), type="send", queue="mail", tenant=tenant, completed=n + 1)
        for n in range(3)
        for tenant in ("acme", "globex")
    )
    app.runtime.store.run(AddStats(worker=worker, batch=1, rows=rows))
    until = began + timedelta(minutes=10)
    minutes = app.statistics.minutes(began, until, tenant="acme")
    assert ([row.completed for row in minutes.rows], minutes.is_cut) == ([1, 2, 3], False)
    series = app.statistics.series(since=began, until=until, step_s=120, by="tenant")
    assert [(row.tenant, row.completed) for row in series.rows] == [
        ("acme", 3),
        ("globex", 3),
        ("acme", 3),
        ("globex", 3),
    ]
    last_hour = asyncio.run(app.statistics.aseries())
    assert last_hour.until - last_hour.since >= timedelta(hours=1)
    with pytest.raises(InvalidOption, match="steps"):
        app.statistics.series(since=until, until=began)
