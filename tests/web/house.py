"""The shop of the API's tests behind the dashboard: logged-in people, and a real server for browsers."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import httpx

from fairlane.cli.server import ApiServer
from fairlane.core.ops import Alert, SaveAlerts
from fairlane.web import create_dashboard
from tests.api.house import EVERY_ROLE, LIVE, Mine, ShopHouse

BROWSER = {"Accept": "text/html,application/xhtml+xml", "Sec-Fetch-Site": "same-origin"}


class DashboardHouse(ShopHouse):
    create = staticmethod(create_dashboard)

    def furnish(self) -> Self:
        super().furnish()
        self.app.alerts.silence("oldest_pending", 3600, by="eve")
        self.app.breakers.reset("maps", by="eve")
        now = self.clock.now()
        fires = Alert(
            rule="queue_backlog",
            about="default",
            state="firing",
            since=now,
            fired_at=now,
            resolved_at=None,
            value=1500.0,
            severity="warning",
            version=1,
        )
        self.app.runtime.access.run(SaveAlerts(alerts=(fires,)))
        self.app.queues.pause("bulk", by="eve", notes=LIVE)
        self.app.tenants.pause("initech", by="eve", notes=LIVE)
        for mine in (self.own, self.foreign):
            task = self.app.tasks["mail.send"].using(tenant=mine.tenant)
            self.app.schedules.add(self.paused_schedule(mine), task.bind(user_id=5), cron="0 4 * * *", by="eve")
            self.app.schedules.pause(self.paused_schedule(mine), by="eve")
        return self

    @staticmethod
    def paused_schedule(mine: Mine) -> str:
        return f"paused.{mine.note}"

    def session(self, roles: Sequence[str] = EVERY_ROLE, tenant: str | None = None) -> str:
        """The cookie of somebody who has logged in by a link."""
        answer = self.call("POST", f"/login?link={self.link(roles, tenant)}", headers=BROWSER)
        assert (answer.status_code, answer.headers["location"]) == (303, "./")
        return answer.headers["set-cookie"].partition(";")[0]

    def get(self, path: str, cookie: str | None = None, **request: Any) -> httpx.Response:
        """A page as a browser asks for it."""
        headers = {**BROWSER, **({} if cookie is None else {"Cookie": cookie}), **request.pop("headers", {})}
        return self.call("GET", path, headers=headers, **request)

    def post(self, path: str, cookie: str, fields: dict[str, Any] | None = None, **more: str) -> httpx.Response:
        """A form as a browser submits it."""
        return self.call("POST", path, headers={**BROWSER, "Cookie": cookie, **more}, data=fields or {})

    @contextmanager
    def served(self) -> Iterator[str]:
        """The dashboard on a port of this machine, in a thread."""
        listening = socket.create_server(("127.0.0.1", 0))
        server = ApiServer(self.api)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])), name="dashboard")
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive()
            listening.close()
