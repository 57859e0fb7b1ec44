"""One good request for each page and each act, about one tenant's things. One that is missing here fails the suite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote

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
    return lambda _, mine: Asked({"id": getattr(mine, name)}, {"notes": "because", **fields})


PAGES: dict[str, Make] = {
    "show_overview": plain,
    "show_jobs": plain,
    "show_job": job("ready"),
    "show_login": plain,
}
ACTS: dict[str, Make] = {
    "cancel_job": job("ready"),
    "retry_job": job("dead"),
    "fail_job": job("ready", reason="by hand"),
    "bury_job": job("ready", reason="by hand"),
    "reset_job": job("running"),
}


def path_of(name: str, asked: Asked) -> str:
    path = DECLARED[name].path
    for key, value in asked.path.items():
        for kind in ("", ":uuid", ":int", ":path"):
            path = path.replace(f"{{{key}{kind}}}", quote(str(value), safe=""))
    return path
