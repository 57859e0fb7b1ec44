"""Django's own test runner, in a project whose tests enqueue on the real tables of a test database."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.support.django_project import DjangoProject, on_postgresql
from tests.support.stores import Ground, ground

__all__ = ["ground"]

pytestmark = pytest.mark.requirement("W16")

FILES = {
    "settings.py": """
import json, os
import django

SECRET_KEY, USE_TZ = "only for tests", True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": json.loads(os.environ["DATABASE"])}
INSTALLED_APPS = ["orders", "fairlane.contrib.django", *([] if django.VERSION >= (6, 0) else ["django_tasks"])]
TASKS = {"default": {"BACKEND": "fairlane.contrib.django.FairlaneBackend"}}
""",
    "orders/__init__.py": "",
    "orders/models.py": """
from django.db import models


class Order(models.Model):
    email = models.CharField(max_length=80)
""",
    "orders/tasks.py": """
import django

if django.VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task

from orders.models import Order


@task
def receipt(order_id: int) -> str:
    return Order.objects.get(pk=order_id).email


@task
async def areceipt(order_id: int) -> str:
    return (await Order.objects.aget(pk=order_id)).email
""",
    "orders/tests.py": """
from asgiref.sync import sync_to_async
from django.db import transaction
from django.test import TestCase, TransactionTestCase

from fairlane.contrib.django import application
from fairlane.testing import arun_due, assert_enqueued, run_due
from orders.models import Order
from orders.tasks import areceipt, receipt


class RealTables(TransactionTestCase):
    def test_one_enqueue(self):
        result = receipt.enqueue(Order.objects.create(email="ada@example.com").pk)
        run_due(application())
        result.refresh()
        self.assertEqual(result.return_value, "ada@example.com")


class MoreRealTables(TransactionTestCase):
    async def test_from_async_code(self):
        order = await Order.objects.acreate(email="ada@example.com")
        results = [await task.aenqueue(order.pk) for task in (receipt, areceipt)]
        await arun_due(application())
        self.assertEqual((await application().jobs.aget(results[0].id)).status, "completed")
        for result in results:
            await result.arefresh()
            self.assertEqual(result.return_value, "ada@example.com")

    def test_inside_a_transaction(self):
        with transaction.atomic():
            result = areceipt.enqueue(Order.objects.create(email="bob@example.com").pk)
        run_due(application())
        result.refresh()
        self.assertEqual(result.return_value, "bob@example.com")


class InTransactions(TestCase):
    def setUp(self):
        self.order = Order.objects.create(email="eve@example.com")

    def test_tasks_run_by_the_test(self):
        with application().testing() as jobs:
            results = [task.enqueue(self.order.pk) for task in (receipt, areceipt)]
            assert_enqueued(receipt, order_id=self.order.pk)
            jobs.run_due()
            for result in results:
                result.refresh()
                self.assertEqual(result.return_value, "eve@example.com")
        self.assertTrue(Order.objects.filter(email="eve@example.com").exists())

    async def test_tasks_run_where_they_are_enqueued(self):
        with application().testing("inline"):
            for task in (receipt, areceipt):
                result = await task.aenqueue(self.order.pk)
                await result.arefresh()
                self.assertEqual(result.return_value, "eve@example.com")

    async def test_tasks_run_from_async_code(self):
        with application().testing() as jobs:
            results = [await task.aenqueue(self.order.pk) for task in (receipt, areceipt)]
            await sync_to_async(jobs.run_due)()
            for result in results:
                await result.arefresh()
                self.assertEqual(result.return_value, "eve@example.com")
        self.assertTrue(await Order.objects.filter(email="eve@example.com").aexists())
""",
}


def test_the_test_database_on_postgresql_is_made_kept_copied_and_dropped(tmp_path: Path, ground: Ground) -> None:
    dsn = ground.server.create_database("runner")
    project = DjangoProject(tmp_path, FILES, on_postgresql(dsn))

    def left() -> list[str]:
        with psycopg.connect(dsn) as conn:
            found = conn.execute("select datname from pg_database where datname like 'test\\_runner%' order by 1")
            return [name for (name,) in found]

    for options, after in ((["--keepdb"], ["test_runner"]), (["--parallel", "2"], []), ([], [])):
        assert "Ran 6 tests" in project.python("manage.py", "test", "--noinput", *options).stderr
        assert left() == after


def test_the_same_tests_run_on_sqlite(tmp_path: Path) -> None:
    file = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "shop.sqlite3")}
    project = DjangoProject(tmp_path, FILES, {**file, "TEST": {"NAME": str(tmp_path / "test.sqlite3")}})
    assert "Ran 6 tests" in project.python("manage.py", "test", "--noinput").stderr
