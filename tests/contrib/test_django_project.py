"""A Django project around Fairlane: `manage.py`, checks, the address of its database, its users, its admin."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from tests.contrib.conftest import Shop

pytestmark = pytest.mark.requirement("W16")

ROOT = Path(__file__).parents[2]


def manage(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`manage.py …` in a process of its own."""
    command = [sys.executable, "-m", "django", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=90, check=False)


def test_a_worker_runs_the_tasks_of_the_project(shop: Shop) -> None:
    queues = {"lamp": "default", "desk": "mail"}
    results = [shop.task("make_order").using(queue_name=queue).enqueue(name) for name, queue in queues.items()]
    ran = manage("fairlane", "worker", "--backend", shop.alias, "--drain", "--processes", "1", "--slots", "2")
    assert ran.returncode == 0, ran.stderr
    ended = [shop.task("make_order").get_result(result.id).status for result in results]
    assert ended == ["SUCCESSFUL", "SUCCESSFUL"], "also in a queue that only the settings name"


def test_every_command_of_fairlane_is_there_on_the_projects_database(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    from django.core.management import call_command

    result = shop.task("add").enqueue(1)
    call_command("fairlane", "jobs", "show", result.id, "--json", "--backend", shop.alias)
    assert json.loads(capsys.readouterr().out)["job"]["type"] == "tests.contrib.django_site.tasks.add"
    call_command("fairlane", "migrate", "check", "--backend", shop.alias)
    with pytest.raises(SystemExit) as ended:
        call_command("fairlane", "jobs", "show", "01890a5d-ac96-774b-bcce-b302099a8057", "--backend", shop.alias)
    assert ended.value.code == 3


def test_manage_py_shows_the_help_of_fairlane_and_its_errors(site: None, capsys: pytest.CaptureFixture[str]) -> None:
    from fairlane.contrib.django.management.commands.fairlane import Command

    with pytest.raises(SystemExit) as ended:
        Command().print_help("./manage.py", "fairlane")
    assert ended.value.code == 0
    assert "manage.py fairlane [OPTIONS] COMMAND" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        Command().run_from_argv(["./manage.py", "fairlane", "--settings", "mine", "jbos"])
    assert ended.value.code == 2
    assert 'did you mean "jobs"?' in capsys.readouterr().err


def test_a_backend_that_is_none_is_named_in_one_line(site: None, capsys: pytest.CaptureFixture[str]) -> None:
    from django.core.management import call_command

    with pytest.raises(SystemExit) as ended:
        call_command("fairlane", "jobs", "list", "--backend", "nowhere")
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said == 'fairlane: TASKS has no "nowhere"; expected one of default, postgres, free, elsewhere\n'


def test_migrate_says_what_it_did_and_does_nothing_twice(site: None, shop: Shop) -> None:
    from fairlane.contrib.django.project import migrate

    assert migrate(shop.alias) == []


def test_checks_name_a_wrong_option_and_a_database_that_cannot_keep_jobs(site: None) -> None:
    from django.core.checks import run_checks
    from django.test import override_settings

    def found(**options: Any) -> list[str]:
        backend = "fairlane.contrib.django.FairlaneBackend"
        with override_settings(TASKS={"default": {"BACKEND": backend, "OPTIONS": options}}):
            return [str(message.msg) for message in run_checks() if message.id == "fairlane.E001"]

    assert found() == []
    [wrong] = found(capasity=5)
    assert "capasity" in wrong
    assert "capacity" in wrong
    [missing] = found(database="elsewhere")
    assert "elsewhere" in missing


def test_a_database_that_is_replaced_for_tests_is_the_one_that_gets_the_jobs(site: None, tmp_path: Path) -> None:
    """Django's test runner renames databases after they were checked: no test may reach the real one."""
    from django.core.management import call_command
    from django.db import connections

    from fairlane.contrib.django import application
    from tests.contrib.django_site.tasks import add

    real, given = application(), connections["default"].settings_dict
    connections["default"].close()
    connections["default"].settings_dict = {**given, "NAME": str(tmp_path / "test.sqlite3")}
    try:
        call_command("migrate", verbosity=0, run_syncdb=True)
        result = add.enqueue(1)
        assert str(tmp_path) in application().runtime.settings.url
        assert add.get_result(result.id).status == "READY"
    finally:
        connections["default"].close()
        connections["default"].settings_dict = given
    assert real is not application()
    assert application().jobs.get(result.id) is None


def test_a_backend_of_another_kind_is_named(site: None) -> None:
    from django.core.exceptions import ImproperlyConfigured
    from django.test import override_settings

    from fairlane.contrib.django import application
    from fairlane.contrib.django.backend import BaseTaskBackend

    immediate = f"{BaseTaskBackend.__module__.removesuffix('.base')}.immediate.ImmediateBackend"
    with (
        override_settings(TASKS={"default": {"BACKEND": immediate}}),
        pytest.raises(ImproperlyConfigured, match="ImmediateBackend; Fairlane needs"),
    ):
        application()


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({"NAME": "shop"}, "postgresql:///shop"),
        ({"NAME": "shop", "USER": "ada", "HOST": "db", "PORT": 5433}, "postgresql://ada@db:5433/shop"),
        ({"NAME": "a/b c", "USER": "a@b", "PASSWORD": "p:/?#%", "HOST": "db"}, "postgresql://a%40b:p%3A%2F%3F%23%25@db/a%2Fb%20c"),
        ({"NAME": "shop", "HOST": "/run/pg", "PORT": "5433"}, "postgresql:///shop?host=%2Frun%2Fpg&port=5433"),
        (
            {"NAME": "shop", "HOST": "::1", "USER": "ada", "OPTIONS": {"sslmode": "require", "pool": True}},
            "postgresql://ada@/shop?sslmode=require&host=%3A%3A1",
        ),
        ({"OPTIONS": {"service": "shop", "assume_role": "web"}}, "postgresql:///?service=shop&options=-c%20role%3Dweb"),
    ],
    ids=["socket", "server", "odd characters", "socket directory", "options", "service and role"],
)  # fmt: skip
def test_the_address_of_a_postgresql_database(site: None, given: dict[str, Any], url: str) -> None:
    from fairlane.contrib.django.project import _postgres_url

    assert _postgres_url(given) == url
    read = psycopg.conninfo.conninfo_to_dict(url)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    assert {names[name]: str(value) for name, value in given.items() if name in names}.items() <= read.items()


def test_a_database_in_memory_is_known_and_one_of_another_kind_refused_by_name(site: None) -> None:
    from django.core.exceptions import ImproperlyConfigured
    from django.db import connections

    from fairlane.contrib.django.project import database_url

    kept = connections["default"].settings_dict
    connections["default"].settings_dict = {**kept, "NAME": ":memory:"}
    try:
        assert database_url("default") == "memory://"
    finally:
        connections["default"].settings_dict = kept
    connections["default"].vendor = "oracle"
    try:
        with pytest.raises(ImproperlyConfigured, match="on oracle, where Fairlane keeps no jobs"):
            database_url("default")
    finally:
        del connections["default"].vendor


def test_a_database_in_memory_keeps_jobs_of_this_process_and_of_tests_in_transactions(site: None) -> None:
    """Django's own default for tests on SQLite."""
    from django.core.exceptions import ImproperlyConfigured
    from django.db import connections, transaction

    from fairlane.contrib.django import application
    from fairlane.testing import run_due
    from tests.contrib.django_site.tasks import add

    given = connections["default"].settings_dict
    connections["default"].close()
    connections["default"].settings_dict = {**given, "NAME": ":memory:"}
    try:
        result = add.enqueue(1)
        run_due(application())
        result.refresh()
        assert result.return_value == 1
        with pytest.raises(ImproperlyConfigured, match=r"application\(\)\.testing\(\)"), transaction.atomic():
            add.enqueue(1)
        with application().testing() as jobs, transaction.atomic():
            result = add.enqueue(2)
            jobs.run_due()
            result.refresh()
            assert result.return_value == 2
    finally:
        connections["default"].inc_thread_sharing()
        connections["default"].connection.close()
        connections["default"].connection = None
        connections["default"].dec_thread_sharing()
        connections["default"].settings_dict = given


PATH = "/fairlane/api/jobs/admin/dlq/"


class Visitors:
    """Users of the project, each logged in to Django, and what the site answers them."""

    def __init__(self) -> None:
        from django.core.asgi import get_asgi_application

        from fairlane.contrib.django import with_dashboard

        self.site = with_dashboard(get_asgi_application())

    def client(self, **about: Any) -> Any:
        from django.contrib.auth.models import Permission, User
        from django.test import Client

        permissions = about.pop("permissions", ())
        User.objects.filter(username="ada").delete()
        user = User.objects.create(username="ada", **about)
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        client = Client()
        client.force_login(user)
        return client

    def get(self, path: str, cookies: dict[str, str] | None = None, **headers: str) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.site)  # type: ignore[arg-type]
            async with httpx.AsyncClient(
                transport=transport, base_url="https://shop.example.com", cookies=cookies, headers=headers
            ) as http:
                return await http.get(path)

        return asyncio.run(ask())

    def as_user(self, path: str = PATH, **about: Any) -> httpx.Response:
        client = self.client(**about)
        return self.get(path, {"sessionid": client.cookies["sessionid"].value})


@pytest.fixture
def visitors(site: None) -> Iterator[Visitors]:
    yield Visitors()
    from django.db import connections

    connections.close_all()


@pytest.mark.requirement("W13")
def test_three_gates_lead_to_the_admin_routes(visitors: Visitors) -> None:
    manager = {"permissions": ["manage_jobs"]}
    assert visitors.get(PATH).status_code == 401
    assert visitors.as_user(is_staff=False, **manager).status_code == 403
    assert visitors.as_user(is_staff=True).status_code == 403
    assert visitors.as_user(is_staff=True, is_active=False, **manager).status_code == 401
    assert visitors.as_user(is_staff=True, **manager).status_code == 200
    assert visitors.as_user(is_staff=True, is_superuser=True).status_code == 200


def test_a_session_that_is_none_is_nobodys(visitors: Visitors) -> None:
    assert visitors.get(PATH, {"sessionid": "made up"}).status_code == 401


def test_the_site_and_the_dashboard_answer_under_their_own_paths(visitors: Visitors) -> None:
    assert "/admin/login/" in visitors.get("/admin/").headers["location"]
    assert visitors.get("/fairlanes/").status_code == 404
    page = visitors.as_user("/fairlane/", is_staff=True)
    assert page.status_code == 200
    assert "ada" in page.text


def test_a_function_of_the_project_says_who_sees_what(site: None) -> None:
    from django.conf import settings
    from django.test import override_settings

    own = {**settings.TASKS["default"], "OPTIONS": {"person": f"{__name__}.bound_to_acme", "profile": "development"}}
    with override_settings(TASKS={**settings.TASKS, "default": own}):
        seen = Visitors().as_user("/fairlane/api/jobs/me/", is_staff=False)
    assert (seen.status_code, seen.json()["tenant"]) == (200, "acme")


def bound_to_acme(user: Any) -> Any:
    from fairlane.api import Person

    return Person(name=user.get_username(), roles=("viewer",), tenant="acme")


def test_the_admin_links_to_the_dashboard_for_those_who_may_see_it(visitors: Visitors) -> None:
    client = visitors.client(is_staff=True)
    index = client.get("/admin/").content.decode()
    assert 'href="/admin/fairlane/dashboard/"' in index
    answer = client.get("/admin/fairlane/dashboard/")
    assert (answer.status_code, urlsplit(answer.headers["location"]).path) == (302, "/fairlane/")
    assert client.get("/admin/fairlane/dashboard/add/").status_code == 403


def test_each_step_of_a_migration_is_told_if_asked(site: None) -> None:
    from django.core.management import call_command

    told = io.StringIO()
    call_command("migrate", database="postgres", verbosity=2, stdout=told, run_syncdb=True)
    assert "Running post-migrate handlers for application fairlane" in told.getvalue()
