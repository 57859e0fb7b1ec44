"""One good request for each page and each act, about one tenant's things. One that is missing here fails the suite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from fairlane.web.page import DECLARED
from tests.api.house import Mine
from tests.web.house import DashboardHouse


class Asked(NamedTuple):
    path: dict[str, Any] = {}  # noqa: RUF012 - never changed
    fields: dict[str, Any] = {}  # noqa: RUF012 - never changed


Make = Callable[[DashboardHouse, Mine], Asked]


def plain(_: DashboardHouse, __: Mine) -> Asked:
    return Asked()


def job(name: str, **fields: Any) -> Make:
    return lambda _, mine: Asked({"id": getattr(mine, name)}, fields)


def letter(**fields: Any) -> Make:
    return lambda _, mine: Asked({"id": mine.letter}, fields)


def of(path: dict[str, Any], **fields: Any) -> Make:
    return lambda _, __: Asked(path, fields)


def schedule(**fields: Any) -> Make:
    return lambda _, mine: Asked({"name": mine.schedule}, fields)


PAGES: dict[str, Make] = {
    "show_overview": plain,
    "show_jobs": plain,
    "show_job": job("ready"),
    "confirm_jobs": lambda _, mine: Asked({}, {"act": "cancel", "id": str(mine.ready)}),
    "show_workflows": plain,
    "show_workflow": job("workflow"),
    "show_failures": plain,
    "show_dead_letters": plain,
    "show_dead_letter": letter(),
    "confirm_dead_letters": lambda _, mine: Asked({}, {"act": "discard", "id": mine.letter}),
    "show_breakers": plain,
    "show_workers": plain,
    "show_alerts": plain,
    "show_audit": plain,
    "verify_chain": plain,
    "show_charts": lambda _, __: Asked({}, {"by": "tenant"}),
    "show_queues": plain,
    "show_queue": of({"name": "default"}),
    "show_tenants": plain,
    "show_tenant": lambda _, mine: Asked({}, {"name": mine.tenant}),
    "show_limits": lambda _, mine: Asked({}, {"tenant": mine.held and mine.tenant}),
    "show_schedules": plain,
    "show_schedule": schedule(),
    "show_login": plain,
}
ACTS: dict[str, Make] = {
    "cancel_job": job("ready"),
    "retry_job": job("dead"),
    "fail_job": job("ready", reason="by hand"),
    "bury_job": job("ready", reason="by hand"),
    "reset_job": job("running"),
    "free_place": job("running"),
    "act_on_jobs": lambda _, mine: Asked({}, {"act": "cancel", "q": f"tenant:{mine.tenant}", "id": str(mine.ready)}),
    "cancel_workflow": job("workflow"),
    "retry_workflow": lambda _, mine: Asked({"id": mine.ended}, {"node": "first"}),
    "act_on_dead_letters": lambda _, mine: Asked({}, {"act": "discard", "notes": "no", "id": mine.letter}),
    "reprocess_dead_letter": letter(),
    "acknowledge_dead_letter": letter(),
    "resolve_dead_letter": letter(),
    "discard_dead_letter": letter(notes="because"),
    "open_breaker": of({"name": "smtp"}),
    "reset_breaker": of({"name": "smtp"}),
    "silence_rule": of({"rule": "queue_backlog"}, minutes="5"),
    "end_silence": of({"rule": "oldest_pending"}),
    "pause_queue": of({"name": "default"}, refuse="yes"),
    "resume_queue": of({"name": "bulk"}),
    "set_tenant": lambda _, mine: Asked({}, {"name": mine.tenant, "weight": "3.5"}),
    "pause_tenant": lambda _, mine: Asked({}, {"name": mine.tenant}),
    "resume_tenant": of({}, name="initech"),
    "set_limit": of({}, kind="queue", name="default", running="3", rate="50/min"),
    "clear_limit": of({}, kind="tenant", name="acme"),
    "run_schedule": schedule(),
    "pause_schedule": schedule(),
    "resume_schedule": lambda house, mine: Asked({"name": house.paused_schedule(mine)}),
    "remove_schedule": schedule(),
    "add_schedule": lambda _, mine: Asked(
        {},
        {
            "name": f"hourly.{mine.note}",
            "task": "mail.send",
            "cron": "@hourly",
            "arguments": '{"user_id": 7}',
            "of_tenant": mine.tenant,
        },
    ),
}


def path_of(name: str, asked: Asked) -> str:
    path = DECLARED[name].path
    for key, value in asked.path.items():
        for kind in ("", ":uuid", ":int", ":path"):
            path = path.replace(f"{{{key}{kind}}}", quote(str(value), safe=""))
    return path


def address_of(name: str, asked: Asked) -> str:
    """The address of a page, its fields as a query."""
    path = path_of(name, asked)
    return f"{path}?{urlencode(asked.fields)}" if asked.fields else path
