"""For the tests of applications: jobs in memory, assertions about them, and a clock that tests move.

    def test_signing_up_sends_a_welcome(fairlane_app):
        sign_up("ann@example.com")
        assert_enqueued(send_welcome, user_id=7, tenant="acme")

The functions here ask the application under test: that of the fixture `fairlane_app`, or of `with app.testing():`.
"""

from __future__ import annotations

from typing import Any

from fairlane.testing.assertions import AnyTask, CollectedJob as CollectedJob
from fairlane.testing.runs import Ran as Ran, arun_due as arun_due, run_attempt as run_attempt, run_due as run_due
from fairlane.testing.sandbox import Mode as Mode, NoSandbox as NoSandbox, Sandbox as Sandbox, sandbox_of
from fairlane.testing.transactions import TransactionUnknown as TransactionUnknown


def enqueued(task: AnyTask | None = None, /, **expected: Any) -> list[CollectedJob]:
    """The jobs that were enqueued: all, or those of a task with these arguments and options. See `Sandbox.enqueued`."""
    return sandbox_of(task).enqueued(task, **expected)


def assert_enqueued(task: AnyTask, /, **expected: Any) -> CollectedJob:
    """Fail unless a job of this task with these arguments and options was enqueued; returns the first."""
    __tracebackhide__ = True
    return sandbox_of(task).assert_enqueued(task, **expected)


def assert_nothing_enqueued(task: AnyTask | None = None, /, **expected: Any) -> None:
    """Fail if a job was enqueued: any, or one of this task with these arguments and options."""
    __tracebackhide__ = True
    sandbox_of(task).assert_nothing_enqueued(task, **expected)


async def aenqueued(task: AnyTask | None = None, /, **expected: Any) -> list[CollectedJob]:
    return await sandbox_of(task).aenqueued(task, **expected)


async def aassert_enqueued(task: AnyTask, /, **expected: Any) -> CollectedJob:
    __tracebackhide__ = True
    return await sandbox_of(task).aassert_enqueued(task, **expected)


async def aassert_nothing_enqueued(task: AnyTask | None = None, /, **expected: Any) -> None:
    __tracebackhide__ = True
    await sandbox_of(task).aassert_nothing_enqueued(task, **expected)
