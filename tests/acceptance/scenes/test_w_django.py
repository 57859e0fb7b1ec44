"""Document W, a Django document, in a Django project as its author writes one: positional arguments, strict payloads,
`atomic()`, three gates, and the calls of its section 7.3 at `/api/jobs/admin/dlq/` of the site."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.django_project import DjangoProject, on_postgresql
from tests.support.stores import Ground, ground

__all__ = ["ground"]

pytestmark = pytest.mark.requirement("W16")

FILES = {
    "settings.py": """
import json, os
import django

SECRET_KEY, USE_TZ, ROOT_URLCONF, ALLOWED_HOSTS = "only for tests", True, "urls", ["*"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": json.loads(os.environ["DATABASE"])}
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "modules.jobs",
    "fairlane.contrib.django",
    *([] if django.VERSION >= (6, 0) else ["django_tasks"]),
]
MIDDLEWARE = ["django.contrib.sessions.middleware.SessionMiddleware"]
MIGRATION_MODULES = dict.fromkeys(("auth", "contenttypes", "sessions"))  # made at once: quicker in tests
TASKS = {
    "default": {
        "BACKEND": "fairlane.contrib.django.FairlaneBackend",
        "OPTIONS": {"strict_payload": True},
    },
}
""",
    "asgi.py": """
from django.core.asgi import get_asgi_application

site = get_asgi_application()

from fairlane.contrib.django import with_dashboard  # noqa: E402

application = with_dashboard(site, "/fairlane", api_path="/")
""",
    "urls.py": """
from django.http import HttpResponse
from django.urls import path

urlpatterns = [path("api/firms/", lambda request: HttpResponse("the site's own"))]
""",
    "modules/__init__.py": "",
    "modules/jobs/__init__.py": "",
    "modules/jobs/models.py": """
from django.db import models


class Connection(models.Model):
    address = models.CharField(max_length=80)
""",
    "modules/jobs/tasks.py": """
import django

if django.VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task

from fairlane import NonRetryable
from fairlane.contrib.django import job_options


@task
@job_options(category="ingestion")
def email_ingestion_fetch(connection_id, external_message_id):
    if external_message_id == "msg_broken":
        raise NonRetryable("Validation error: invalid payload")
    return {"fetched_count": 10}


@task
@job_options(category="notifications")
def notification_email_send(user_id, email_body):
    pass


@task
@job_options(category="maintenance")
def session_expire(user_id, password):
    pass


@task
@job_options(category="sync")
def calendar_sync_pull(since):
    pass
""",
    # Section 7.1: a job is created as the document creates it, together with the author's own rows.
    "create_jobs.py": """
import json
import uuid

import django

django.setup()

from django.contrib.auth.models import Permission, User
from django.db import transaction
from django.test import Client

from fairlane import InvalidPayload
from fairlane.contrib.django import application
from modules.jobs import tasks
from modules.jobs.models import Connection

FIRM, OTHER_FIRM = 123, 124


def refused(task, *args):
    try:
        task.enqueue(*args)
    except InvalidPayload as error:
        return error.problems
    raise AssertionError(f"{task.name}{args} was accepted")


def using(task, key, firm=FIRM):
    return task.using(tenant=firm, correlation_id=uuid.uuid4(), idempotency_key=key)


# 2.1: the mandatory fields, all that are missing at once. `connection_id` is the reference.
missing = refused(tasks.email_ingestion_fetch, 456, "msg_789")
assert list(missing) == [f"{name} is missing" for name in ("tenant_id", "correlation_id", "idempotency_key")], missing

# 2.2: no sensitive content, also where the caller passes it by position; ids instead of content.
for task, args, name in (
    (tasks.session_expire, (7, "hunter2"), "password"),
    (tasks.notification_email_send, (7, "Dear Ada, ..."), "email_body"),
):
    problems = refused(using(task, "k"), *args)
    assert any(name in problem for problem in problems), problems
    assert "hunter2" not in str(problems)
assert any("no object is referred to" in problem for problem in refused(using(tasks.calendar_sync_pull, "k"), "2025-12-30"))
assert application().jobs.list().jobs == ()

# The job and the author's rows are one transaction.
fetch = tasks.email_ingestion_fetch
try:
    with transaction.atomic():
        lost = Connection.objects.create(address="lost@example.com")
        using(fetch, f"email_fetch_conn_{lost.pk}_msg_1").enqueue(lost.pk, "msg_1")
        raise LookupError
except LookupError:
    pass
assert application().jobs.list().jobs == ()
with transaction.atomic():
    connection = Connection.objects.create(address="ada@example.com")
    key = f"email_fetch_conn_{connection.pk}_msg_789"
    created = using(fetch, key).enqueue(connection.pk, "msg_789")

# 3.2: unique by firm and key.
assert using(fetch, key).enqueue(connection.pk, "msg_789").id == created.id
assert using(fetch, key, OTHER_FIRM).enqueue(connection.pk, "msg_789").id != created.id
broken = using(fetch, "email_fetch_conn_9_msg_broken").enqueue(9, "msg_broken")

users = {
    "member": User.objects.create(username="member"),
    "staff": User.objects.create(username="staff", is_staff=True),
    "manager": User.objects.create(username="manager", is_staff=True),
}
users["manager"].user_permissions.add(Permission.objects.get(codename="manage_jobs"))
sessions = {}
for name, user in users.items():
    browser = Client()
    browser.force_login(user)
    sessions[name] = browser.cookies["sessionid"].value
print(json.dumps({"created": created.id, "broken": broken.id, "connection": connection.pk, "sessions": sessions}))
""",
    "read_results.py": """
import sys

import django

django.setup()

from modules.jobs.tasks import email_ingestion_fetch

created, broken = (email_ingestion_fetch.get_result(each) for each in sys.argv[1:])
assert (created.status, created.return_value) == ("SUCCESSFUL", {"fetched_count": 10})
assert (created.args, created.kwargs) == ([int(created.args[0]), "msg_789"], {})
assert (broken.status, broken.attempts) == ("FAILED", 1)
assert broken.errors[0].traceback.endswith("Validation error: invalid payload\\n")
""",
}


@pytest.fixture
def project(ground: Ground, tmp_path: Path) -> DjangoProject:
    return DjangoProject(tmp_path, FILES, on_postgresql(ground.server.create_database("firm")))


@pytest.fixture
def address() -> Iterator[tuple[str, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", listening


@pytest.mark.requirement("W2", "W3", "W7", "W10", "W12", "W13")
def test_a_firm_fetches_its_mail_and_a_manager_reprocesses_what_failed(
    project: DjangoProject, address: tuple[str, socket.socket]
) -> None:
    project.python("manage.py", "migrate", "--run-syncdb", "--verbosity", "0")
    about = json.loads(project.python("create_jobs.py").stdout)
    project.python("manage.py", "fairlane", "worker", "--drain", "--processes", "1")
    project.python("read_results.py", about["created"], about["broken"])
    made = project.python("manage.py", "fairlane", "tokens", "create", "mira", "--role", "staff", "--role", "manager")
    token, (url, listening) = made.stdout.split()[-1], address

    server = ("-m", "uvicorn", "asgi:application", "--fd", str(listening.fileno()), "--log-level", "error")
    with project.running(*server, pass_fds=[listening.fileno()]), httpx.Client(base_url=url, timeout=30) as http:

        def ask(method: str, path: str, *, user: str | None = None, **request: Any) -> httpx.Response:
            shown = {"Authorization": f"Bearer {token}"}
            if user is not None:
                shown = {"Cookie": f"sessionid={about['sessions'][user]}", "Origin": url}
            return http.request(method, path, headers=shown, **request)

        # 11: authenticated, staff, manager.
        path = "/api/jobs/admin/dlq/"
        assert http.get(path).status_code == 401
        assert {user: ask("GET", path, user=user).status_code for user in about["sessions"]} == {
            "member": 403,
            "staff": 403,
            "manager": 200,
        }

        # 4.3, 7.3: the list, the item with its payload, reprocess.
        [item] = ask("GET", path).json()["dlq_items"]
        shown = {name: item[name] for name in ("category", "status", "idempotency_key", "error_class", "attempt_count")}
        assert shown == {
            "category": "ingestion",
            "status": "pending_review",
            "idempotency_key": "email_fetch_conn_9_msg_broken",
            "error_class": "non_retryable",
            "attempt_count": 1,
        }
        assert (item["job_type"], item["error_message"]) == (
            "modules.jobs.tasks.email_ingestion_fetch",
            "Validation error: invalid payload",
        )
        one = f"{path}{item['dlq_id']}/"
        assert ask("GET", one).json()["payload"] == {"connection_id": 9, "external_message_id": "msg_broken"}
        notes = {"notes": "Fixed upstream data issue, safe to retry"}
        assert ask("POST", f"{one}reprocess/", user="staff", json=notes).status_code == 403
        answer = ask("POST", f"{one}reprocess/", json=notes).json()
        assert (answer["message"], answer["dlq_id"]) == ("DLQ item reprocessed successfully", item["dlq_id"])
        assert answer["new_idempotency_key"].startswith("email_fetch_conn_9_msg_broken_retry_")
        assert ask("GET", f"{path}statistics/").status_code == 200
        assert ask("GET", "/api/jobs/admin/queue/", params={"category": "ingestion"}).status_code == 200
        assert ask("GET", "/api/firms/").text == "the site's own"
    audit = json.loads(project.python("manage.py", "fairlane", "audit", "list", "--json").stdout)
    assert {"job_dlq_reprocess_requested", "job_dlq_reprocess_success"} <= {one["action"] for one in audit["records"]}
