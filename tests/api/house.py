"""Two tenants' jobs in every state behind one API, and callers of every kind. All that is globex's bears its canary."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self
from uuid import UUID

import httpx
import msgspec
from fastapi import FastAPI

from fairlane import Fairlane, FakeClock, NonRetryable
from fairlane.api import create_api
from fairlane.api.auth.admission import FailedGuesses
from fairlane.core.chance import FixedChance
from fairlane.core.ops import (
    ALL_TENANTS,
    AddEvents,
    EventDraft,
    ListBreakers,
    ListCredentials,
    ListLimits,
    ListPauses,
    ListSchedules,
    Note,
    PageAudit,
    PageDeadLetters,
    PageJobs,
    PageTenants,
    ReadAlerts,
    RevokeCredential,
)
from fairlane.testing import run_due

OWN, FOREIGN = "acme", "globex"
CANARY = "canary-of-globex"
ROLE_SETS: dict[str, tuple[str, ...]] = {
    "viewer": ("viewer",),
    "operator": ("operator",),
    "staff": ("staff",),
    "manager": ("manager",),
    "staff and manager": ("staff", "manager"),
    "admin": ("admin",),
    "metrics": ("metrics",),
}
EVERY_ROLE = ("viewer", "operator", "staff", "manager", "admin", "metrics")
LIVE, DEAD = "contents-of-live-jobs", "contents-of-dead-jobs"
"""In every payload, result, header, error text, log line and note; never in a name."""


def shop(url: str = "memory://", **settings: Any) -> Fairlane:
    app = Fairlane(url, clock=FakeClock(), chance=FixedChance(7), profile="development", **settings)

    @app.task(name="mail.send")
    def send(user_id: int, note: str = "") -> str:
        return f"sent {user_id} {note}"

    @app.task(name="mail.bounce")
    def bounce(note: str = "") -> None:
        raise NonRetryable(f"no such address {note}")

    @app.task(name="mail.export", category="export")
    def export(broken: bool = False) -> None:
        if broken:
            raise NoDisk("full")

    return app


class NoDisk(NonRetryable):
    pass


class Mine:
    """One tenant's things, by the names the tests call them."""

    def __init__(self, house: ShopHouse, tenant: str, note: str) -> None:
        app = house.app
        self.tenant, self.note, self.key = tenant, note, f"order:{note}"
        send, bounce = app.tasks["mail.send"], app.tasks["mail.bounce"]
        self._live = f"{note} {LIVE}"
        options: Any = {"tenant": tenant, "correlation_id": f"{note}-correlation", "headers": {"trace": self._live}}
        of_dead = {**options, "headers": {"trace": f"{note} {DEAD}"}, "idempotency_key": f"{note}-dead"}
        dead = bounce.using(**of_dead).enqueue(note=f"{note} {DEAD}")
        done = send.using(**options).enqueue(user_id=1, note=self._live)
        run_due(app)
        self.done: UUID = done.id
        self.dead: UUID = dead.id
        letter = app.jobs.get(dead.id)
        assert letter is not None
        self.letter = int(letter.seq)
        self.fingerprint = app.dead_letters.list(tenant=tenant).dead_letters[0].fingerprint
        self._options, self._house = options, house

    def start(self) -> None:
        send = self._house.app.tasks["mail.send"]
        self.running: UUID = send.using(**self._options, key=self.key).enqueue(user_id=2, note=self._live).id
        claimed = self._house.app.jobs.claim(lease=3600)
        assert claimed is not None
        self.claim = claimed.token

    def begin(self) -> None:
        """What waits, once nothing else will be run."""
        app, tenant, note, options = self._house.app, self.tenant, self.note, self._options
        send, done = app.tasks["mail.send"], self.done
        self.ready: UUID = (
            send.using(**options, idempotency_key=f"{note}-ready", parent=done).enqueue(user_id=3, note=self._live).id
        )
        self.schedule = f"nightly.{note}"
        app.schedules.add(
            self.schedule, send.using(tenant=tenant).bind(user_id=4, note=self._live), cron="0 3 * * *", by="eve"
        )
        app.tenants.set(tenant, weight=2.0, tier=f"tier-{note}", by="eve", notes=self._live)
        app.limits.set(tenant=tenant, waiting=500, by=f"{note}-setter")
        app.tenants.pause(tenant, by="eve", notes=self._live)
        app.tenants.resume(tenant, by="eve", notes=self._live)
        app.runtime.access.run(
            AddEvents(
                events=(
                    EventDraft(kind="job_dead", tenant=tenant, data={"id": str(self.dead), "error": f"{note} {DEAD}"}),
                )
            )
        )

    @cached_property
    def held(self) -> UUID:
        """A job that waits at the key of the running one, enqueued when it is asked for."""
        task = self._house.app.tasks["mail.send"].using(tenant=self.tenant, key=self.key)
        return task.enqueue(user_id=7).id

    @cached_property
    def workflow(self) -> UUID:
        """A workflow of two nodes, enqueued when it is asked for: other tests count jobs."""
        return self._onboard()

    @cached_property
    def ended(self) -> UUID:
        """A workflow that was cancelled."""
        workflow = self._onboard()
        self._house.app.workflows.cancel(workflow, by="eve")
        return workflow

    def _onboard(self) -> UUID:
        app, send = self._house.app, self._house.app.tasks["mail.send"].using(tenant=self.tenant)
        flow = app.workflow(f"onboard.{self.note}")
        flow.add(send.bind(user_id=6), after=[flow.add(send.bind(user_id=6), name="first")], name="last")
        return flow.enqueue().id


class ShopHouse:
    """The application, its API, and ways to call it. `furnish` puts everything where it was."""

    create = staticmethod(create_api)

    def __init__(self, app: Fairlane | None = None, **given: Any) -> None:
        self.app = app or shop()
        self.api: FastAPI = self.create(self.app, **{"event_poll_s": 0.01, **given})
        self.runner = asyncio.Runner()

    def furnish(self) -> Self:
        self.app.jobs.purge()
        self.api.state.fairlane.authenticator.failures = FailedGuesses(self.app.runtime.clock)
        self.own, self.foreign = Mine(self, OWN, "note-of-acme"), Mine(self, FOREIGN, CANARY)
        self.own.start()
        self.foreign.start()
        self.own.begin()
        self.foreign.begin()
        self.app.breakers.open("smtp", by="eve")
        self.token(("viewer",), name="old")
        self.old = self.app.runtime.access.run(ListCredentials(kind="token")).credentials[0].id
        return self

    @property
    def clock(self) -> FakeClock:
        assert isinstance(self.app.runtime.clock, FakeClock)
        return self.app.runtime.clock

    def log(self, job: UUID, line: str) -> None:
        """A line in the log of a running job."""
        found = self.app.jobs.get(job)
        assert found is not None
        assert found.worker is not None
        note = Note(worker=found.worker, seq=found.seq, attempt=found.attempt, claim_no=1, log=(line,))
        assert self.app.runtime.store.run(note).accepted

    def token(
        self, roles: Sequence[str], tenant: str | None = None, ttl_s: float | None = None, name: str = "ada"
    ) -> str:
        return self.app.tokens.create(name, roles, tenant=tenant, ttl=ttl_s, by="eve").secret

    def credential(self, name: str) -> UUID:
        return self.app.tokens.list(name=name).credentials[0].id

    def link(self, roles: Sequence[str] = ("viewer",), tenant: str | None = None, ttl_s: float = 600.0) -> str:
        return self.app.tokens.create_link("lea", roles, tenant=tenant, ttl=ttl_s, by="eve").secret

    def revoked(self) -> str:
        secret = self.token(EVERY_ROLE, name="gone")
        [found] = [
            c for c in self.app.runtime.access.run(ListCredentials(kind="token")).credentials if c.name == "gone"
        ]
        self.app.runtime.access.run(RevokeCredential(id=found.id, by="eve"))
        return secret

    def call(
        self,
        method: str,
        path: str,
        token: str | None = None,
        *,
        client: tuple[str, int] = ("198.51.100.7", 4711),
        base: str = "https://jobs.example",
        **request: Any,
    ) -> httpx.Response:
        headers = {**({} if token is None else {"Authorization": f"Bearer {token}"}), **request.pop("headers", {})}

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.api, client=client, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url=base) as http:
                return await http.request(method, path, headers=headers, **request)

        return self.runner.run(ask())

    def facts(self) -> bytes:
        """Everything that is kept, but for when credentials were last used."""
        for mine in (self.own, self.foreign):
            assert len({mine.workflow, mine.ended, mine.held}) == 3
        run = self.app.runtime.access.run
        credentials = [
            msgspec.structs.replace(credential, last_used_at=None)
            for kind in ("token", "link")
            for credential in run(ListCredentials(kind=kind, also_bad=True, limit=10_000)).credentials  # type: ignore[arg-type]
        ]
        kept = [
            run(PageJobs(scope=ALL_TENANTS, limit=200)),
            run(PageDeadLetters(scope=ALL_TENANTS, limit=200)),
            run(PageAudit(scope=ALL_TENANTS, limit=200)),
            run(PageTenants(scope=ALL_TENANTS)),
            run(ListPauses()).pauses,
            run(ListLimits()).limits,
            run(ListBreakers()),
            run(ListSchedules()),
            run(ReadAlerts()),
            credentials,
        ]
        return msgspec.json.encode(kept)

    def close(self) -> None:
        self.runner.close()
        self.app.close()
