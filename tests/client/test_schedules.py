"""Schedules as an application sees them: declared in code, added and changed at run time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from fairlane import Fairlane, FakeClock, InvalidArguments, InvalidOption, InvalidState, PermissionDenied, tenant
from fairlane.errors import ScheduleNotFound
from fairlane.testing import run_due

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def digest(app: Fairlane) -> Any:
    @app.task(name="mail.digest", queue="bulk", timeout=90, max_attempts=2)
    def digest(user_id: int = 0) -> int:
        return user_id

    return digest


@pytest.mark.requirement("L12")
def test_a_task_may_say_when_it_runs(app: Fairlane) -> None:
    @app.task(name="report.daily", cron="0 9 * * MON-FRI", tz="Europe/Prague", catch_up="all", overlap="skip")
    def daily(full: bool = False) -> None: ...

    spec = app.schedules.declared["report.daily"]
    assert (spec.name, spec.type, spec.payload) == ("report.daily", "report.daily", "{}")
    assert (spec.cron, spec.timezone, spec.catch_up, spec.overlap) == (
        "0 9 * * MON-FRI",
        "Europe/Prague",
        "all",
        "skip",
    )


@pytest.mark.requirement("L12")
def test_a_task_may_run_at_an_interval_between_a_start_and_an_end(app: Fairlane) -> None:
    prague = timezone(timedelta(hours=1))
    ends = datetime(2027, 1, 1, 1, tzinfo=prague)

    @app.task(name="poll", every=timedelta(seconds=10), jitter=5, starts_at=NEW_YEAR, ends_at=ends, overlap="skip")
    def poll() -> None: ...

    spec = app.schedules.declared["poll"]
    assert (spec.cron, spec.timezone, spec.jitter_s, spec.overlap) == ("@every 10s", "UTC", 5.0, "skip")
    assert (spec.starts_at, spec.ends_at) == (NEW_YEAR, datetime(2027, 1, 1, tzinfo=UTC))


@pytest.mark.requirement("L12")
def test_each_tenant_has_its_schedule_in_its_own_zone(app: Fairlane, digest: Any) -> None:
    for customer, zone in (("acme", "Asia/Tokyo"), ("globex", "America/New_York")):
        app.schedules.add(f"digest.{customer}", digest, cron="30 8 * * *", tz=zone, tenant=customer)
    found = {one.spec.tenant: one for one in app.schedules.list()}
    assert {name: one.spec.timezone for name, one in found.items()} == {
        "acme": "Asia/Tokyo",
        "globex": "America/New_York",
    }
    for one in found.values():
        assert one.next_at is not None
        assert f"{one.next_at.astimezone(ZoneInfo(one.spec.timezone)):%H:%M}" == "08:30"
    with tenant("acme"):
        assert [one.spec.name for one in app.schedules.list()] == ["digest.acme"]
        with pytest.raises(PermissionDenied):
            app.schedules.add("digest.other", digest, cron="@daily", tenant="globex")


def test_a_schedule_whose_end_has_come_has_ended(app: Fairlane, digest: Any) -> None:
    schedule = app.schedules.add("digest", digest, every=1, ends_at=NEW_YEAR - timedelta(days=9999))
    assert (schedule.state, schedule.next_at) == ("ended", None)
    assert schedule.words.startswith("every 1 s, until ")
    again = app.schedules.add("digest", digest, every=1)
    assert (again.state, again.next_at is None) == ("active", False)


@pytest.mark.requirement("L12")
def test_a_task_may_have_several_schedules_each_with_its_own_arguments(app: Fairlane) -> None:
    @app.schedules.declare("sync.weekly", cron="@weekly", args={"full": True})
    @app.schedules.declare("sync.hourly", cron="@hourly")
    @app.task(name="sync", priority="high")
    def sync(full: bool = False) -> None: ...

    assert {name: spec.payload for name, spec in app.schedules.declared.items()} == {
        "sync.hourly": "{}",
        "sync.weekly": '{"full":true}',
    }
    weekly = app.schedules.declared["sync.weekly"]
    assert (weekly.priority, weekly.priority_label) == (0, "high")


def test_a_schedule_inherits_what_its_task_says(app: Fairlane, digest: Any) -> None:
    with tenant("acme"):
        schedule = app.schedules.add("digest", digest.bind(7), cron="@daily")
    spec = schedule.spec
    assert (spec.tenant, spec.queue, spec.timeout_s, spec.max_attempts) == ("acme", "bulk", 90.0, 2)
    using = digest.using(tenant=9, queue="default", priority=1, timeout=5, max_attempts=3)
    spec = app.schedules.add("digest-9", using, cron="@daily").spec
    assert spec.priority_label is None
    assert (spec.tenant, spec.queue, spec.priority, spec.timeout_s, spec.max_attempts) == ("9", "default", 1, 5.0, 3)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"cron": "61 * * * *"}, "cron = '61"),
        ({"cron": "0 0 30 2 *"}, "cron = '0 0 30 2"),
        ({"cron": "@daily", "tz": "Mars/Olympus"}, "tz = 'Mars/Olympus'"),
        ({"cron": "@daily", "catch_up": "some"}, "catch_up = 'some'"),
        ({"cron": "@daily", "overlap": "maybe"}, "overlap = 'maybe'"),
        ({"cron": "@daily", "catch_up_limit": 0}, "catch_up_limit = 0"),
        ({"cron": "@daily", "timezone": "UTC"}, "schedule option = 'timezone'"),
        ({}, "cron of schedule"),
        ({"cron": "@daily", "every": 10}, "one of the two"),
        ({"cron": "@every 10s"}, "An interval is given as every="),
        ({"every": 0.5}, "every = 0.5"),
        ({"every": 1.5}, "every = 1.5"),
        ({"every": timedelta(days=32)}, "every = "),
        ({"every": "10s"}, "every = '10s'"),
        ({"every": 10, "tz": "Europe/Prague"}, "tz = 'Europe/Prague'"),
        ({"every": 10, "jitter": 11}, "jitter = 11"),
        ({"cron": "@daily", "jitter": -1}, "jitter = -1"),
        ({"cron": "@daily", "jitter": timedelta(days=2)}, "jitter = "),
        ({"cron": "@daily", "starts_at": datetime(2026, 1, 1)}, "starts_at = "),  # noqa: DTZ001 - what is refused
        ({"cron": "@daily", "ends_at": "2026-01-01"}, "ends_at = '2026"),
        ({"cron": "@daily", "starts_at": NEW_YEAR, "ends_at": NEW_YEAR - timedelta(1)}, "leaves a firing"),
        ({"cron": "5 0 * * *", "starts_at": NEW_YEAR, "ends_at": NEW_YEAR + timedelta(minutes=4)}, "leaves a firing"),
        ({"cron": "@daily", "ends_at": datetime.max.replace(tzinfo=timezone(-timedelta(hours=9)))}, "ends_at = "),
        ({"every": 10, "starts_at": datetime(9999, 12, 31, tzinfo=UTC)}, "between 1970 and 9000"),
        ({"cron": "@daily", "tenant": ""}, "tenant = ''"),
    ],
)
def test_a_timetable_that_cannot_be_taken_is_refused_and_nothing_is_declared(
    app: Fairlane, digest: Any, given: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidOption, match=says):
        app.schedules.declare("digest", **given)(digest)
    with pytest.raises(InvalidOption, match=says):
        app.schedules.add("digest", digest, **given)
    assert app.schedules.declared == {}
    assert app.schedules.list() == ()


def test_a_task_whose_timetable_is_refused_is_not_registered(app: Fairlane) -> None:
    with pytest.raises(InvalidOption, match="cron = 'often'"):

        @app.task(name="late", cron="often")
        def late() -> None: ...

    with pytest.raises(InvalidArguments, match="user_id"):

        @app.task(name="needy", cron="@daily")
        def needy(user_id: int) -> None: ...

    with pytest.raises(InvalidOption, match="cron of schedule"):

        @app.task(name="zoned", tz="UTC")
        def zoned() -> None: ...

    assert app.tasks == {}
    assert app.schedules.declared == {}


def test_two_schedules_cannot_share_a_name(app: Fairlane, digest: Any) -> None:
    app.schedules.declare("digest", cron="@daily")(digest)
    with pytest.raises(InvalidOption, match=r"a name of its own: a schedule of task .mail\.digest. has it"):
        app.schedules.declare("digest", cron="@hourly")(digest)


def test_a_schedule_has_one_tenant(app: Fairlane, digest: Any) -> None:
    with pytest.raises(InvalidOption, match=r"tenant of schedule .digest. = 'acme'"):
        app.schedules.add("digest", digest.using(tenant="globex"), cron="@daily", tenant="acme")
    assert app.schedules.add("digest", digest.using(tenant=7), cron="@daily", tenant="7").spec.tenant == "7"


def test_a_schedule_takes_no_option_that_belongs_to_one_job(app: Fairlane, digest: Any) -> None:
    for option in ({"idempotency_key": "k"}, {"delay": 5}, {"run_at": NEW_YEAR}, {"dedup_key": "d"}):
        with pytest.raises(InvalidOption, match=r"using\(\) with tenant"):
            app.schedules.add("digest", digest.using(**option), cron="@daily")


def test_what_is_no_task_has_no_schedule(app: Fairlane) -> None:
    with pytest.raises(InvalidOption, match=r"put @app\.task under @app\.schedule"):
        app.schedules.declare("x", cron="@daily")(lambda: None)  # type: ignore[type-var]
    with pytest.raises(InvalidOption, match=r"task\.bind"):
        app.schedules.add("x", "mail.digest", cron="@daily")  # type: ignore[arg-type]


@pytest.mark.requirement("L12")
def test_schedules_are_added_changed_paused_resumed_and_removed_and_it_is_written_down(
    app: Fairlane, digest: Any, clock: FakeClock
) -> None:
    added = app.schedules.add("digest", digest.bind(7), cron="0 9 * * *", by="olga", notes="asked for")
    assert (added.source, added.next_at) == ("person", datetime(2026, 1, 1, 9, tzinfo=UTC))
    assert app.schedules.add("digest", digest.bind(7), cron="0 9 * * *", by="olga") == added
    changed = app.schedules.add("digest", digest.bind(7), cron="0 8 * * *", by="olga")
    assert changed.next_at == datetime(2026, 1, 1, 8, tzinfo=UTC)
    assert app.schedules.pause("digest", by="olga").paused_at == NEW_YEAR
    clock.advance(86_400 * 2)
    resumed = app.schedules.resume("digest", by="piet")
    assert (resumed.paused_at, resumed.next_at) == (None, datetime(2026, 1, 3, 8, tzinfo=UTC))
    assert app.schedules.list() == (resumed,)
    assert app.schedules.remove("digest", by="olga", notes="no longer") == resumed
    assert app.schedules.list() == ()
    audit = [(record.action, record.by, record.notes) for record in reversed(app.audit.list().records)]
    assert audit == [
        ("schedule_add", "olga", "asked for"),
        ("schedule_change", "olga", None),
        ("schedule_pause", "olga", None),
        ("schedule_resume", "piet", None),
        ("schedule_remove", "olga", "no longer"),
    ]


def test_a_schedule_runs_now_beside_its_timetable(app: Fairlane, digest: Any) -> None:
    added = app.schedules.add("digest", digest.bind(7), cron="@daily")
    app.schedules.pause("digest")
    handles = [app.schedules.run("digest", by="olga") for _ in range(2)]
    assert handles[0].id != handles[1].id
    run_due(app)
    assert [handle.result(timeout=0) for handle in handles] == [7, 7]
    job = handles[0].job()
    assert (job.created_by, job.headers) == ("schedule:digest", {"fairlane-schedule": "digest"})
    [schedule] = app.schedules.list()
    assert (schedule.last_job_id, schedule.next_at) == (handles[1].id, added.next_at)
    assert app.audit.list(action="schedule_run").records[0].by == "olga"


def test_a_schedule_nobody_knows_is_told_so_with_the_nearest(app: Fairlane, digest: Any) -> None:
    app.schedules.add("digest", digest, cron="@daily")
    for act in (app.schedules.resume, app.schedules.run):
        with pytest.raises(ScheduleNotFound, match='Nearest: "digest"'):
            act("digset")
    for act in (app.schedules.pause, app.schedules.remove):
        with pytest.raises(ScheduleNotFound, match="fairlane schedules list"):
            act("digset")


def test_a_name_that_code_declares_is_not_changed_by_hand(app: Fairlane, digest: Any) -> None:
    from fairlane.worker.duties.schedules import ScheduleDeclarations

    app.schedules.declare("digest", cron="@daily")(digest)
    asyncio.run(ScheduleDeclarations(app).run_once(app.runtime.clock.now()))
    with pytest.raises(InvalidState, match="declared by code"):
        app.schedules.add("digest", digest, cron="@hourly")
    assert app.schedules.list()[0].spec.cron == "@daily"


def test_every_act_has_an_async_twin(app: Fairlane, digest: Any) -> None:
    async def story() -> None:
        added = await app.schedules.aadd("digest", digest, cron="@daily")
        assert (await app.schedules.alist()) == (added,)
        assert (await app.schedules.apause("digest")).paused_at is not None
        assert (await app.schedules.aresume("digest")).paused_at is None
        assert (await (await app.schedules.arun("digest")).ajob()).type == "mail.digest"
        assert (await app.schedules.aremove("digest")).spec.name == "digest"
        with pytest.raises(ScheduleNotFound):
            await app.schedules.aremove("digest")

    asyncio.run(story())
