"""Flask: tasks run in the application's context, whose teardown always runs; requests enqueue for their tenant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, current_app, g, request

from fairlane import SYSTEM, Fairlane, PermissionDenied, tenant
from fairlane.contrib.flask import init_app
from fairlane.testing import run_due


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Fairlane]:
    with Fairlane(f"sqlite:///{tmp_path}/jobs.db") as jobs:
        yield jobs


def made(jobs: Fairlane, name: str = "shop") -> tuple[Flask, list[Any]]:
    site, torn_down = Flask(name), []
    init_app(
        site, jobs, tenant_of=lambda: SYSTEM if "x-staff" in request.headers else request.headers.get("x-organization")
    )

    @site.teardown_appcontext
    def teardown(error: BaseException | None) -> None:
        torn_down.append(g.pop("session", None))

    @site.post("/orders")
    def order() -> str:
        return str(jobs.tasks["site_name"].enqueue().id)

    return site, torn_down


def add_tasks(jobs: Fairlane) -> None:
    @jobs.task(name="site_name")
    def site_name() -> str:
        g.session = "plain"
        return str(current_app.name)

    @jobs.task(name="site_name_async")
    async def site_name_async() -> str:
        g.session = "async"
        return str(current_app.name)

    @jobs.task(name="fails", max_attempts=1)
    def fails() -> None:
        g.session = "failed"
        raise ValueError


def test_tasks_run_in_the_context_of_the_application_and_leave_it(jobs: Fairlane) -> None:
    add_tasks(jobs)
    site, torn_down = made(jobs)
    handles = [jobs.tasks[name].enqueue() for name in ("site_name", "site_name_async", "fails")]
    run_due(jobs)
    assert [handle.status() for handle in handles] == ["completed", "completed", "dead"]
    assert [handle.result() for handle in handles[:2]] == ["shop", "shop"]
    assert torn_down == ["plain", "async", "failed"]
    assert not current_app
    assert site.extensions["fairlane"] is jobs


def test_a_worker_does_the_same_in_its_threads(jobs: Fairlane) -> None:
    add_tasks(jobs)
    _, torn_down = made(jobs)
    handles = [jobs.tasks[name].enqueue() for name in ("site_name", "site_name_async") for _ in range(5)]
    with jobs.running(slots=3, drain=True):
        pass
    assert [handle.result() for handle in handles] == ["shop"] * 10
    assert sorted(torn_down) == ["async"] * 5 + ["plain"] * 5


def test_a_factory_that_is_called_again_replaces_the_context(jobs: Fairlane) -> None:
    add_tasks(jobs)
    made(jobs, "first")
    _, torn_down = made(jobs, "second")
    handle = jobs.tasks["site_name"].enqueue()
    run_due(jobs)
    assert (handle.result(), torn_down) == ("second", ["plain"])


def test_a_request_enqueues_for_its_tenant_and_leaves_none_behind(jobs: Fairlane) -> None:
    add_tasks(jobs)
    site, _ = made(jobs)
    http = site.test_client()
    ids = [http.post("/orders", headers=headers).text for headers in ({"x-organization": "acme"}, {"x-staff": "1"})]
    ids.append(str(jobs.tasks["site_name"].enqueue().id))
    found = [jobs.jobs.get(job_id) for job_id in ids]
    assert [job.tenant for job in found if job] == ["acme", "system", "system"]


@pytest.mark.requirement("I10")
def test_a_request_of_nobody_sees_and_enqueues_nothing(jobs: Fairlane) -> None:
    add_tasks(jobs)
    site, _ = made(jobs)
    of_acme = jobs.tasks["site_name"].using(tenant="acme").enqueue()
    acts: dict[str, Callable[[], object]] = {
        "get": lambda: jobs.jobs.get(of_acme.id),
        "list": lambda: jobs.jobs.list().jobs,
        "of another": lambda: jobs.jobs.list(tenant="acme").jobs,
        "cancel": lambda: jobs.jobs.cancel(of_acme.id, by="nobody"),
        "pause": lambda: jobs.queues.pause("default", by="nobody"),
        "enqueue": jobs.tasks["site_name"].enqueue,
        "many": lambda: jobs.enqueue_many([jobs.tasks["site_name"].bind()]),
        "schedule": lambda: jobs.schedules.add("mine", jobs.tasks["site_name"].bind(), cron="0 3 * * *", by="nobody"),
    }

    @site.post("/acts/<name>")
    def act(name: str) -> str:
        return str(acts[name]())

    @site.post("/login")
    def log_in() -> str:
        with tenant("acme"):
            return str(jobs.tasks["site_name"].enqueue().id)

    http = site.test_client()
    site.testing = True
    for name in acts:
        with pytest.raises(PermissionDenied, match="no tenant is known here; nothing was done"):
            http.post(f"/acts/{name}")
        assert name == "pause" or http.post(f"/acts/{name}", headers={"x-organization": "acme"}).status_code == 200
    job = jobs.jobs.get(http.post("/login").text)
    assert job is not None
    assert job.tenant == "acme"
