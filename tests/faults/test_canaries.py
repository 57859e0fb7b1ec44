"""Secrets are found nowhere they were not put on purpose: database, logs, answers, audit, events, figures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from click.testing import CliRunner

from fairlane import Fairlane, NonRetryable, Retry, current_job
from fairlane.api.router import gated_routes
from fairlane.cli.main import cli
from fairlane.client.rights import Right
from fairlane.core.ids import WorkerId
from fairlane.core.job import Job
from fairlane.core.ops import ALL_TENANTS, ReadEvents, Renew
from fairlane.core.profiles import ANY, Lane
from fairlane.worker.config import WorkerConfig
from fairlane.worker.engine import Engine
from tests.api.house import EVERY_ROLE, ShopHouse
from tests.faults import canaries as c
from tests.support.leaks import LEAKS
from tests.support.stores import Ground


class Leaks(NamedTuple):
    app: Fairlane
    url: str
    dump: Callable[[], bytes]
    logged: c.Logged


@pytest.fixture(params=["sqlite", "postgres"])
def leaks(request: pytest.FixtureRequest, tmp_path: Path, ground: Ground) -> Iterator[Leaks]:
    """An application that tells everybody its secrets."""
    file = tmp_path / "jobs.db"
    url = f"sqlite:///{file}" if request.param == "sqlite" else ground.address("postgres")
    logged, root = c.Logged(), logging.getLogger()
    level = root.level
    root.addHandler(logged)
    root.setLevel(logging.DEBUG)
    with Fairlane(url, sensitive="redact", profile="development") as app:
        _tasks(app)
        dump = (lambda: c.dumped_file(file)) if request.param == "sqlite" else (lambda: c.dumped_database(url))
        yield Leaks(app, url, dump, logged)
    root.removeHandler(logged)
    root.setLevel(level)


def _tasks(app: Fairlane) -> None:
    @app.resource(scope="worker")
    def connection() -> Iterator[str]:
        yield "open"
        raise ConnectionError(f"postgresql://app:{c.CLOSING}@db hung up")

    @app.task(name="sync.quiet")
    def quiet(account: dict[str, Any], note: str = "") -> str:
        current_job().log(f"connecting with api_key={c.LOGGED}")
        return str(account) + note + connection()

    @app.task(name="sync.loud", retry=Retry(max_attempts=2, delays=(0.0,)))
    def loud() -> None:
        try:
            raise PermissionError(f"403 for {{'X-Api-Key': '{c.CAUSE}', 'Accept': '*/*'}}")
        except PermissionError as cause:
            raise ConnectionError(
                f"could not reach postgresql://app:{c.IN_A_URL}@db:5432/shop\n"
                f"Authorization: Bearer {c.BEARER}\nCookie: theme=dark; session={c.COOKIE}\n"
                f"GET /v1?access_token={c.IN_A_QUERY}&page=2"
            ) from cause

    @app.task(name="sync.corpus", max_attempts=1)
    def corpus(at: int) -> None:
        text = LEAKS[at].format(x=c.CORPUS)
        current_job().log(text)
        raise ValueError(text)

    @app.task(name="sync.final")
    def final() -> None:
        raise ExceptionGroup("all failed", [NonRetryable(f"client_secret='{c.CLIENT_SECRET}'"), ValueError("b")])


def _work(app: Fairlane) -> None:
    worker = WorkerId(app.runtime.new_job_id())
    app.runtime.store.run(Renew(worker=worker, lease_s=3600))
    config = WorkerConfig(lanes=(Lane("general", 2, (ANY,)),), poll_s=0.1, grace_s=5.0, drain=True)
    asyncio.run(Engine(app, config, worker).run())


def _seen(app: Fairlane, id: UUID) -> Job:
    job = app.jobs.get(id)
    assert job is not None
    return job


def _every_answer(house: ShopHouse, token: str, job: object, letter: int, flow: object) -> bytes:
    """All that can be read over HTTP."""
    answers = []
    for route in gated_routes(house.api):
        if "GET" not in route.methods or route.declared.right is Right.OPEN or route.operation_id == "watch_events":
            continue
        shown = {"show_dead_letter": letter, "show_workflow": flow}.get(route.operation_id or "", job)
        path = route.path_format.format(id=shown, name="acme", fingerprint="x", rule="x")
        answer = house.call("GET", path, token)
        assert answer.status_code == 200, f"{path}: {answer.text}"
        answers.append(answer.content + str(answer.headers).encode())
    assert len(answers) > 25
    return b"\n".join(answers)


@pytest.mark.requirement("W3")
def test_no_secret_is_found_where_it_was_not_put(leaks: Leaks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    app = leaks.app
    account = {"name": "acme", "password": c.PASSWORD, "nested": [{"clientSecret": c.CLIENT_SECRET}]}
    quiet = app.tasks["sync.quiet"].using(tenant="acme", headers={"authorization": c.HEADER, "trace": "1"})
    job = quiet.enqueue(account=account, note=f"see https://u:{c.IN_A_URL}@host/")
    flow = app.chain(quiet.bind(account=account, note="first"), quiet.bind(account=account, note="last")).enqueue()
    app.tasks["sync.loud"].using(tenant="acme").enqueue()
    corpus = [app.tasks["sync.corpus"].using(tenant="acme").enqueue(at=at) for at in range(len(LEAKS))]
    dead = app.tasks["sync.final"].using(tenant="acme").enqueue()
    _work(app)
    assert {_seen(app, one.id).status for one in (job, dead)} == {"completed", "dead"}
    assert {_seen(app, one.id).status for one in corpus} == {"dead"}

    house = ShopHouse(app)
    token = house.token(EVERY_ROLE)
    letter = int(_seen(app, dead.id).seq)
    notes = {"notes": f"logged in with password={c.NOTED}"}
    made = house.call("POST", "/api/jobs/tokens/", token, json={"name": "ci", "roles": ["viewer"], **notes}).json()
    link = house.link()
    assert (
        house.call("POST", "/login", params={"link": link}, headers={"Accept": "application/json"}).status_code == 200
    )
    acts = [
        house.call("POST", f"/api/jobs/admin/dlq/{letter}/acknowledge/", token, json=notes),
        house.call("POST", f"/api/jobs/admin/dlq/{letter}/reprocess/", token, json={**notes, "payload": {}}),
        house.call("POST", "/api/jobs/queues/bulk/pause/", token, json=notes),
        house.call(
            "POST", "/api/jobs/", token, json={"type": "sync.quiet", "payload": {"account": account}, "delay_s": 9e6}
        ),
        house.call("POST", "/api/jobs/", token, json={"type": "sync.quiet", "payload": {"account": c.PASSWORD}}),
        house.call("POST", "/api/jobs/", token, json={"type": "sync.quiet", "payload": {"password": c.PASSWORD}}),
        house.call("GET", "/api/jobs/", "fl_" + "canary-guess-" + "x" * 30),
    ]
    assert [answer.status_code for answer in acts] == [200, 200, 200, 201, 422, 422, 401]
    shown = [
        CliRunner().invoke(cli, [*command, "--url", leaks.url]).output.encode()
        for command in (["queues", "pause", "slow", "--by", "eve", "--notes", notes["notes"]], ["jobs", "show", str(dead.id)],
                        ["jobs", "show", str(job.id)], ["dead-letters", "show", str(letter)], ["audit", "list"], ["tokens", "list"], ["config"])
    ]  # fmt: skip
    for text in LEAKS:
        app.queues.pause("bulk", by="eve", notes=text.format(x=c.CORPUS))
    events = str(app.runtime.access.run(ReadEvents(scope=ALL_TENANTS, limit=1000)).events).encode()
    places = {
        "answers": _every_answer(house, token, job.id, letter, flow.id),
        "acts": b"\n".join(answer.content for answer in acts),
        "command line": b"\n".join(shown),
        "events": events,
        "last exceptions": str(app.runtime.last_exceptions).encode() + repr(list(app.runtime.last_exceptions)).encode(),
        "logs": leaks.logged.text,
    }
    house.runner.close()
    app.close()
    places["database"] = leaks.dump()

    secrets = (*c.EVERY, token[11:], made["token"][11:], link[11:], "canary-guess-")
    found = {where: c.hits(text, secrets) for where, text in places.items()}
    assert found == {where: [] for where in places}
    for where in ("answers", "command line", "logs", "database"):
        assert b"[redacted]" in places[where], f"nothing was hidden in {where}: was anything there?"
