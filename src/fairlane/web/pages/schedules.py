"""The pages of schedules: each in words with its next and last runs; run, pause, resume, remove and add one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, get_args
from zoneinfo import ZoneInfo

from fairlane.api.fields import Name
from fairlane.api.routes.enqueue import refuse_beyond_caps
from fairlane.client.admin.schedules import ScheduleAdmin
from fairlane.client.rights import Right
from fairlane.core.job import Job
from fairlane.core.names import BUILT_IN_TASKS
from fairlane.core.payload.codec import stored_json
from fairlane.core.schedules import CatchUp, Overlap
from fairlane.web.form import Form
from fairlane.web.page import CurrentPage, Page, Pages, Values

pages = Pages("schedules", "/schedules", title="Schedules", key="s")

PAGE_SIZE = 100
NEXT_RUNS, LAST_RUNS = 5, 10


@pages.page("", ScheduleAdmin.alist, "schedules.html")
async def show_schedules(page: CurrentPage, after: Name | None = None) -> Values:
    """Show schedules by name."""
    found = [
        schedule
        for schedule in await page.app.schedules.alist()
        if page.tenant in (None, schedule.spec.tenant) and schedule.spec.name > (after or "")
    ]
    shown = found[:PAGE_SIZE]
    return {
        "schedules": shown,
        "after": after,
        "next": shown[-1].spec.name if len(found) > PAGE_SIZE else None,
        "tasks": sorted(_tasks(page)),
        "catch_ups": sorted(get_args(CatchUp), key="latest".__ne__),
        "overlaps": get_args(Overlap),
    }


@pages.page("/{name}", ScheduleAdmin.aget, "schedule.html")
async def show_schedule(page: CurrentPage, name: Name) -> Values:
    """Show one schedule: what it runs and how, its next times and its last jobs."""
    schedule = await page.app.schedules.aget(name)
    timetable = schedule.timetable
    times = () if timetable is None or schedule.state != "active" else timetable.next_runs(NEXT_RUNS, page.now)
    jobs = await page.app.jobs.alist(created_by=f"schedule:{name}", tenant=schedule.spec.tenant, limit=LAST_RUNS)
    return {
        "schedule": schedule,
        "spec": schedule.spec,
        "times": [(at, _local(at, timetable.zone)) for at in times] if timetable is not None else [],
        "runs": [(job, _nominal(job, name)) for job in jobs.jobs],
        "payload": stored_json(schedule.spec.payload),
        "shows_contents": page.may(Right.CONTENTS),
    }


@pages.act("/{name}/run", ScheduleAdmin.arun, done="This is its job, in addition to the timetable.")
async def run_schedule(page: CurrentPage, name: Name, form: Form) -> str:
    handle = await page.app.schedules.arun(name, by=page.by, notes=form.words("notes"))
    return page.url("show_job", id=handle.id)


@pages.act("/{name}/pause", ScheduleAdmin.apause, done="The schedule is paused.")
async def pause_schedule(page: CurrentPage, name: Name, form: Form) -> str:
    await page.app.schedules.aget(name)  # A schedule of another tenant is reported as missing.
    await page.app.schedules.apause(name, by=page.by, notes=form.words("notes"))
    return page.url("show_schedule", name=name)


@pages.act("/{name}/resume", ScheduleAdmin.aresume, done="The schedule is resumed.")
async def resume_schedule(page: CurrentPage, name: Name, form: Form) -> str:
    await page.app.schedules.aresume(name, by=page.by, notes=form.words("notes"))
    return page.url("show_schedule", name=name)


@pages.act("/{name}/remove", ScheduleAdmin.aremove, done="The schedule is removed.")
async def remove_schedule(page: CurrentPage, name: Name, form: Form) -> str:
    await page.app.schedules.aget(name)
    await page.app.schedules.aremove(name, by=page.by, notes=form.words("notes"))
    return page.url("show_schedules")


@pages.act("", ScheduleAdmin.aadd, done="The schedule is in force.")
async def add_schedule(page: CurrentPage, form: Form) -> str:
    """Add a schedule, or change one that was added before. Its task must be known here if any task is."""
    arguments = await form.json("arguments") if form.text("arguments") else {}
    using: Any = {"tenant": form.text("of_tenant") or page.tenant, "queue": form.text("queue")}
    if page.caller is not None:
        refuse_beyond_caps(page.app, page.caller, form.required("task"), queue=using["queue"])
    rules = page.app.runtime if _tasks(page) else None
    call = page.app.tasks.call(form.required("task"), arguments, rules=rules, **using)
    timetable: Any = {
        "cron": form.text("cron"),
        "every": form.number("every"),
        "jitter": form.number("jitter"),
        "tz": form.text("tz"),
        "catch_up": form.text("catch_up"),
        "overlap": form.text("overlap"),
    }
    schedule = await page.app.schedules.aadd(
        form.required("name"), call, by=page.by, notes=form.words("notes"), **timetable
    )
    return page.url("show_schedule", name=schedule.spec.name)


def _nominal(job: Job, name: str) -> str | None:
    """The time that a job stands for; None: somebody ran the schedule by hand."""
    key, prefix = job.idempotency_key, f"schedule:{name}:"
    return key.removeprefix(prefix).replace("T", " ").replace("Z", " UTC") if key.startswith(prefix) else None


def _tasks(page: Page) -> set[str]:
    return set(page.app.tasks) - BUILT_IN_TASKS


def _local(at: datetime, zone: ZoneInfo) -> str:
    """The time on a clock of the schedule's zone."""
    local = at.astimezone(zone)
    shown = local.strftime("%a %d %b %Y %H:%M:%S").removesuffix(":00")
    return shown + ("" if local.utcoffset() == timedelta() else f" {local.tzname()}")
