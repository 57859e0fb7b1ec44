"""`atomic()` holds for jobs as for rows: they commit and roll back together."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlane.testing import run_due
from tests.contrib.conftest import Shop

pytestmark = pytest.mark.requirement("W16")

ROOT = Path(__file__).parents[2]


class Stop(Exception):
    pass


def is_there(shop: Shop, result: Any) -> bool:
    """Whether others see the job."""
    return shop.app.jobs.get(result.id) is not None


def test_a_job_commits_with_the_row_it_belongs_to(shop: Shop) -> None:
    from django.db import transaction

    with transaction.atomic(using=shop.alias):
        shop.orders.create(name="a lamp")
        result = shop.task("add").enqueue(1)
        assert not is_there(shop, result)
    assert is_there(shop, result)
    assert shop.orders.count() == 1


def test_a_task_of_fairlanes_own_takes_djangos_connection(shop: Shop) -> None:
    from django.db import connections, transaction

    def touch() -> None: ...

    own = shop.app.task(touch, name="shop.own")
    for commits in (True, False):
        with contextlib.suppress(Stop), transaction.atomic(using=shop.alias):
            handle = own.using(conn=connections[shop.alias]).enqueue()
            assert shop.app.jobs.get(handle) is None
            if not commits:
                raise Stop
        assert (shop.app.jobs.get(handle) is not None) == commits


def test_a_job_is_rolled_back_with_the_row_it_belongs_to(shop: Shop) -> None:
    from django.db import transaction

    with contextlib.suppress(Stop), transaction.atomic(using=shop.alias):
        shop.orders.create(name="a lamp")
        result = shop.task("add").enqueue(1)
        raise Stop
    assert not is_there(shop, result)
    assert shop.orders.count() == 0


def test_an_inner_block_that_fails_takes_its_job_alone(shop: Shop) -> None:
    from django.db import transaction

    with transaction.atomic(using=shop.alias):
        outer = shop.task("add").enqueue(1)
        with contextlib.suppress(Stop), transaction.atomic(using=shop.alias):
            inner = shop.task("add").enqueue(2)
            raise Stop
        last = shop.task("add").enqueue(3)
    assert [is_there(shop, each) for each in (outer, inner, last)] == [True, False, True]


def test_a_duplicate_leaves_the_transaction_usable(shop: Shop) -> None:
    from django.db import transaction

    task = shop.task("add").using(idempotency_key="order 7", on_duplicate="return")
    first = task.enqueue(1)
    with transaction.atomic(using=shop.alias):
        again = task.enqueue(1)
        shop.orders.create(name="a lamp")
    assert (first.id, shop.orders.count()) == (again.id, 1)


def test_a_broken_transaction_takes_no_job(shop: Shop) -> None:
    from django.db import transaction

    with transaction.atomic(using=shop.alias):
        transaction.set_rollback(True, using=shop.alias)
        with pytest.raises(transaction.TransactionManagementError, match="until the end of the 'atomic' block"):
            shop.task("add").enqueue(1)
    assert shop.app.jobs.list().jobs == ()


def test_a_transaction_begun_by_hand_is_respected(shop: Shop) -> None:
    from django.db import transaction

    transaction.set_autocommit(False, using=shop.alias)
    try:
        shop.orders.create(name="a lamp")
        result = shop.task("add").enqueue(1)
        assert not is_there(shop, result)
        transaction.rollback(using=shop.alias)
    finally:
        transaction.set_autocommit(True, using=shop.alias)
    assert not is_there(shop, result)


def test_without_a_transaction_a_job_is_stored_at_once(shop: Shop) -> None:
    assert is_there(shop, shop.task("add").enqueue(1))


def test_many_jobs_of_one_block_are_all_there_after_it(shop: Shop) -> None:
    from django.db import transaction

    with transaction.atomic(using=shop.alias):
        results = [shop.task("add").enqueue(number) for number in range(20)]
    shop.run()
    assert [shop.task("add").get_result(result.id).return_value for result in results] == list(range(20))


def test_a_test_case_in_a_transaction_uses_the_kit_and_goes_on(shop: Shop) -> None:
    """As in Django's TestCase: jobs of the test's own transaction are collected, run in its thread, and seen."""
    from django.db import transaction

    with shop.app.testing() as jobs, transaction.atomic(using=shop.alias):
        with contextlib.suppress(Stop), transaction.atomic(using=shop.alias):
            shop.task("add").enqueue(1)
            raise Stop
        jobs.assert_nothing_enqueued()
        with transaction.atomic(using=shop.alias):
            result = shop.task("add").enqueue(1, b=2)
        jobs.run_due()
        result.refresh()
        assert result.return_value == 3
        shop.orders.create(name="the transaction is still usable")
        assert shop.orders.count() == 1
        transaction.set_rollback(True, using=shop.alias)
    assert shop.orders.count() == 0


@pytest.mark.parametrize("commits", [True, False])
def test_a_store_elsewhere_gets_its_jobs_after_the_commit(site: None, commits: bool) -> None:
    from django.db import transaction

    from fairlane.contrib.django import application
    from tests.contrib.django_site.tasks import add

    app, task = application("elsewhere"), add.using(backend="elsewhere")
    app.jobs.purge()
    try:
        with transaction.atomic():
            result = task.enqueue(1, b=1)
            assert app.jobs.get(result.id) is None
            if not commits:
                raise Stop
    except Stop:
        pass
    assert (app.jobs.get(result.id) is not None) is commits
    run_due(app)
    if commits:
        result.refresh()
        assert result.return_value == 2
        assert add.using(backend="elsewhere").enqueue(3).status == "READY", "without a transaction: at once"


FIRST = """
import time
import django; django.setup()
from django.db import transaction
from tests.contrib.django_site.models import Order
from tests.contrib.django_site.tasks import add
with transaction.atomic():
    Order.objects.create(name="first")
    began_s = time.monotonic()
    id = add.enqueue(1).id
    print(id, time.monotonic() - began_s)
"""


def test_the_first_enqueue_of_a_process_on_sqlite_does_not_wait_for_its_own_transaction(site: None) -> None:
    """The process holds the write lock when Fairlane opens its store."""
    ran = subprocess.run(
        [sys.executable, "-c", FIRST],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    job, took_s = ran.stdout.split()
    assert Shop("default").app.jobs.get(job) is not None
    assert float(took_s) < 3
