"""Fairlane runs background jobs for multi-tenant Python applications.

    from fairlane import Fairlane

    app = Fairlane()

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    handle = add.enqueue(1, 2)

Names are loaded when they are first used, so importing this package is cheap and imports no driver.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from fairlane.client.admin.breakers import Breaker as Breaker
    from fairlane.client.admin.claims import ClaimedJob as ClaimedJob
    from fairlane.client.admin.limits import NamedLimit as NamedLimit
    from fairlane.client.app import Fairlane as Fairlane, Snapshot as Snapshot
    from fairlane.client.batch_tasks import AsyncBatchTask as AsyncBatchTask, SyncBatchTask as SyncBatchTask
    from fairlane.client.context import (
        CurrentJob as CurrentJob,
        all_tenants as all_tenants,
        current_job as current_job,
        no_tenant as no_tenant,
        tenant as tenant,
    )
    from fairlane.client.durable_steps import (
        asleep as asleep,
        astep as astep,
        await_for as await_for,
        sleep as sleep,
        step as step,
        wait_for as wait_for,
    )
    from fairlane.client.enqueue.options import EnqueueOptions as EnqueueOptions
    from fairlane.client.enqueue.prepare import Draft as Draft
    from fairlane.client.handle import Handle as Handle
    from fairlane.client.hooks import FailedAttempt as FailedAttempt
    from fairlane.client.logs import JobLogFilter as JobLogFilter
    from fairlane.client.resources import AsyncResource as AsyncResource, SyncResource as SyncResource
    from fairlane.client.settings.model import Settings as Settings
    from fairlane.client.task import (
        AsyncTask as AsyncTask,
        Bound as Bound,
        SyncTask as SyncTask,
        Task as Task,
        TaskOptions as TaskOptions,
    )
    from fairlane.client.timeouts import timeout as timeout
    from fairlane.client.workflow_handle import BatchHandle as BatchHandle, WorkflowHandle as WorkflowHandle
    from fairlane.client.workflow_nodes import NodeRef as NodeRef, PartRef as PartRef
    from fairlane.client.workflows import (
        BatchBuilder as BatchBuilder,
        GroupBuilder as GroupBuilder,
        WorkflowBuilder as WorkflowBuilder,
    )
    from fairlane.core.clock import FakeClock as FakeClock
    from fairlane.core.ids import SYSTEM as SYSTEM
    from fairlane.core.job import Attempt as Attempt, DeadLetter as DeadLetter, Job as Job
    from fairlane.core.job_keys import JobKey as JobKey
    from fairlane.core.limits import Limit as Limit, Rate as Rate
    from fairlane.core.ops.jobs import JobDetail as JobDetail
    from fairlane.core.payload.validator import PayloadValidator as PayloadValidator
    from fairlane.core.queues import QueuePolicy as QueuePolicy
    from fairlane.core.retry import Retry as Retry
    from fairlane.core.schedules import Cron as Cron, Schedule as Schedule
    from fairlane.errors import (
        AttemptCancelled as AttemptCancelled,
        BadInput as BadInput,
        BreakerOpen as BreakerOpen,
        Cancel as Cancel,
        ClaimLost as ClaimLost,
        ConfigError as ConfigError,
        DuplicateJob as DuplicateJob,
        EnqueueRateReached as EnqueueRateReached,
        FairlaneError as FairlaneError,
        InvalidArguments as InvalidArguments,
        InvalidOption as InvalidOption,
        InvalidPayload as InvalidPayload,
        InvalidState as InvalidState,
        InvalidWorkflow as InvalidWorkflow,
        JobFailed as JobFailed,
        JobNotFound as JobNotFound,
        LeaseLost as LeaseLost,
        MissingData as MissingData,
        MissingExtra as MissingExtra,
        MissingPrincipal as MissingPrincipal,
        NonRetryable as NonRetryable,
        PermissionDenied as PermissionDenied,
        QueueFull as QueueFull,
        QueuePaused as QueuePaused,
        RateLimited as RateLimited,
        ResultTimeout as ResultTimeout,
        ScheduleNotFound as ScheduleNotFound,
        SignalTimedOut as SignalTimedOut,
        Snooze as Snooze,
        SpoolFull as SpoolFull,
        StepMismatch as StepMismatch,
        StillRunning as StillRunning,
        StoreClosed as StoreClosed,
        StoreUnavailable as StoreUnavailable,
        TenantLimitReached as TenantLimitReached,
        UnknownPriority as UnknownPriority,
        UnknownTask as UnknownTask,
        WorkflowNotFound as WorkflowNotFound,
    )

_HOMES = {
    "fairlane.client.admin.breakers": "Breaker",
    "fairlane.client.admin.claims": "ClaimedJob",
    "fairlane.client.admin.limits": "NamedLimit",
    "fairlane.client.app": "Fairlane Snapshot",
    "fairlane.client.batch_tasks": "AsyncBatchTask SyncBatchTask",
    "fairlane.client.context": "CurrentJob all_tenants current_job no_tenant tenant",
    "fairlane.client.durable_steps": "asleep astep await_for sleep step wait_for",
    "fairlane.client.enqueue.options": "EnqueueOptions",
    "fairlane.client.enqueue.prepare": "Draft",
    "fairlane.client.handle": "Handle",
    "fairlane.client.hooks": "FailedAttempt",
    "fairlane.client.logs": "JobLogFilter",
    "fairlane.client.resources": "AsyncResource SyncResource",
    "fairlane.client.settings.model": "Settings",
    "fairlane.client.task": "AsyncTask Bound SyncTask Task TaskOptions",
    "fairlane.client.timeouts": "timeout",
    "fairlane.client.workflow_handle": "BatchHandle WorkflowHandle",
    "fairlane.client.workflow_nodes": "NodeRef PartRef",
    "fairlane.client.workflows": "BatchBuilder GroupBuilder WorkflowBuilder",
    "fairlane.core.clock": "FakeClock",
    "fairlane.core.ids": "SYSTEM",
    "fairlane.core.job": "Attempt DeadLetter Job",
    "fairlane.core.job_keys": "JobKey",
    "fairlane.core.limits": "Limit Rate",
    "fairlane.core.ops.jobs": "JobDetail",
    "fairlane.core.payload.validator": "PayloadValidator",
    "fairlane.core.queues": "QueuePolicy",
    "fairlane.core.retry": "Retry",
    "fairlane.core.schedules": "Cron Schedule",
    "fairlane.errors": """
        AttemptCancelled BadInput BreakerOpen Cancel ClaimLost ConfigError DuplicateJob EnqueueRateReached FairlaneError
        InvalidArguments InvalidOption InvalidPayload InvalidState InvalidWorkflow JobFailed JobNotFound LeaseLost
        MissingData MissingExtra MissingPrincipal NonRetryable PermissionDenied QueueFull QueuePaused RateLimited
        ResultTimeout ScheduleNotFound SignalTimedOut Snooze SpoolFull StepMismatch StillRunning StoreClosed
        StoreUnavailable TenantLimitReached UnknownPriority UnknownTask WorkflowNotFound
    """,
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - type checkers read the imports above


def __getattr__(name: str) -> Any:
    try:
        home = _HOME_OF[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    value = globals()[name] = getattr(importlib.import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
