"""The shop with three tenants on Django, from the request to the worker and its own test suite, on SQLite and PostgreSQL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import create_engine, text

from fairlane import Fairlane
from tests.support.stores import Ground

pytestmark = pytest.mark.requirement("W16")

TENANTS = ("acme", "globex", "initech")
CONFIRM = "orders.tasks.confirm"
FILES = {
    "site_settings.py": """
import json, os
import django

SECRET_KEY, USE_TZ, ROOT_URLCONF, ALLOWED_HOSTS = "only for tests", True, "orders.urls", ["*"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": json.loads(os.environ["SHOP_DATABASE"])}
INSTALLED_APPS = ["orders", "fairlane.contrib.django", *([] if django.VERSION >= (6, 0) else ["django_tasks"])]
MIDDLEWARE = ["orders.middleware.tenant_of_request"]
TASKS = {"default": {"BACKEND": "fairlane.contrib.django.FairlaneBackend", "QUEUES": ["default", "mail"]}}
""",
    "orders/__init__.py": "",
    "orders/models.py": """
from django.db import models


class Order(models.Model):
    organization = models.CharField(max_length=40)
    email = models.CharField(max_length=80)
    is_confirmed = models.BooleanField(default=False)
""",
    "orders/tasks.py": """
import django

if django.VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task

from fairlane import NonRetryable, Retry, current_job
from fairlane.contrib.django import job_options
from orders.models import Order


@task(queue_name="mail")
@job_options(retry=Retry(max_attempts=3))
def confirm(order_id: int) -> str:
    order = Order.objects.get(pk=order_id)
    if order.organization != current_job().tenant:
        raise NonRetryable("an order of another tenant")
    order.is_confirmed = True
    order.save()
    return order.email
""",
    "orders/middleware.py": """
from fairlane import tenant


def tenant_of_request(get_response):
    def respond(request):
        with tenant(request.headers["x-organization"]) as request.organization:
            return get_response(request)

    return respond
""",
    "orders/urls.py": """
from django.db import transaction
from django.http import HttpResponse
from django.urls import path

from orders.models import Order
from orders.tasks import confirm


class NoAddress(Exception):
    pass


def place(request):
    email = request.POST["email"]
    try:
        with transaction.atomic():
            order = Order.objects.create(organization=request.organization, email=email)
            result = confirm.using(idempotency_key=email).enqueue(order.pk)
            if "@" not in email:
                raise NoAddress
    except NoAddress:
        return HttpResponse("no address", status=422)
    return HttpResponse(result.id)


urlpatterns = [path("orders", place)]
""",
    "orders/tests.py": """
from django.test import TestCase

from fairlane.contrib.django import application
from orders.models import Order
from orders.tasks import confirm


class Orders(TestCase):
    def setUp(self):
        self.jobs = self.enterContext(application().testing())

    def order(self, email, organization="acme"):
        return self.client.post("/orders", {"email": email}, headers={"x-organization": organization})

    def test_an_order_is_confirmed(self):
        self.assertEqual(self.order("ada@example.com").status_code, 200)
        order = Order.objects.get()
        [job] = self.jobs.enqueued()
        self.assertEqual((job.tenant, job.job.queue, order.is_confirmed), ("acme", "mail", False))
        self.jobs.run_due()
        order.refresh_from_db()
        self.assertTrue(order.is_confirmed)

    def test_a_refused_order_leaves_nothing(self):
        self.assertEqual(self.order("nobody").status_code, 422)
        self.jobs.assert_nothing_enqueued()
        self.assertFalse(Order.objects.exists())

    def test_an_order_of_another_tenant_is_not_touched(self):
        order = Order.objects.create(organization="globex", email="eve@example.com")
        result = confirm.using(tenant="acme").enqueue(order.pk)
        self.jobs.run_due(raising=False)
        result.refresh()
        self.assertEqual(result.status, "FAILED")
""",
    "day.py": f"""
import django

django.setup()

from django.conf import settings
from django.core.management import call_command
from django.test import Client
from django.test.utils import get_runner

from orders.models import Order

call_command("migrate", run_syncdb=True, verbosity=0)
shop, statuses = Client(), []
for tenant in {TENANTS!r}:
    for email in (*(f"{{number}}@{{tenant}}.example.com" for number in range(3)), "nobody"):
        answer = shop.post("/orders", {{"email": email}}, headers={{"x-organization": tenant}})
        statuses.append(answer.status_code)
print(sorted(set(statuses)), Order.objects.count())
print("suite failed", get_runner(settings)(verbosity=0, interactive=False).run_tests(["orders"]))
""",
}


class Place(NamedTuple):
    database: dict[str, object]
    """An entry of DATABASES."""
    jobs: str
    orders: str
    """The same for Fairlane and for SQLAlchemy, to look at it from outside."""


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, ground: Ground, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        file, options = tmp_path / "shop.sqlite3", {"transaction_mode": "IMMEDIATE"}
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file), "OPTIONS": options}
        return Place(database, f"sqlite:///{file}", f"sqlite:///{file}")
    url = ground.server.create_database(f"django_shop_{os.getpid()}")
    at = conninfo_to_dict(url)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    database = {"ENGINE": "django.db.backends.postgresql", **{name: at.get(key, "") for name, key in names.items()}}
    return Place(database, url, url.replace("postgresql://", "postgresql+psycopg://"))


def test_orders_and_their_jobs_are_one_for_each_tenant(place: Place, tmp_path: Path) -> None:
    """A request that fails leaves neither an order nor a job; the project's own suite passes; a worker runs the rest."""
    for name, code in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code, "utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FAIRLANE_", "DJANGO_"))}
    settings = {"DJANGO_SETTINGS_MODULE": "site_settings", "SHOP_DATABASE": json.dumps(place.database)}

    def python(*arguments: str) -> list[str]:
        ran = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path, env={**kept, **settings, "PYTHONPATH": str(tmp_path)},
            capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.splitlines()

    assert [line for line in python("day.py") if "System check" not in line] == ["[200, 422] 9", "suite failed 0"]
    python("-m", "django", "fairlane", "worker", "--drain", "--processes", "1", "--slots", "3")
    engine = create_engine(place.orders)
    with engine.connect() as connection:
        assert connection.scalar(text("select count(*) from orders_order where is_confirmed")) == 9
    engine.dispose()
    with Fairlane(place.jobs, sqlite_library="stdlib") as jobs:
        for tenant in TENANTS:
            found = jobs.jobs.list(tenant=tenant).jobs
            assert [(job.type, job.tenant, job.status) for job in found] == [(CONFIRM, tenant, "completed")] * 3
