"""Workflows and batches as an application uses them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fairlane import (
    Fairlane,
    FakeClock,
    InvalidWorkflow,
    NonRetryable,
    Retry,
    WorkflowHandle,
    WorkflowNotFound,
    all_tenants,
    current_job,
)
from fairlane.client import workflow_handle
from fairlane.client.workflow_handle import BatchProgress
from fairlane.client.workflows import WorkflowBuilder
from fairlane.core.ops import AddNodes
from fairlane.core.workflows import RELEASE_LIMIT
from fairlane.errors import (
    EnqueueRateReached,
    InvalidOption,
    InvalidPayload,
    InvalidState,
    JobFailed,
    QueueFull,
    QueuePaused,
    TenantLimitReached,
)
from fairlane.testing import arun_due, run_due

pytestmark = pytest.mark.requirement("L18")


class Shop:
    """An application whose tasks say what they were called with."""

    def __init__(self) -> None:
        self.app = app = Fairlane("memory://")
        self.calls: list[tuple[str, Any]] = []
        self.fails: set[str] = set()

        @app.task(retry=Retry(max_attempts=1))
        def account(user_id: int) -> dict[str, int]:
            self.note("account", user_id)
            return {"id": user_id * 10}

        @app.task(retry=Retry(max_attempts=1))
        def mail(to: dict[str, int], kind: str) -> str:
            self.note("mail", (to, kind))
            return f"{kind}:{to['id']}"

        @app.task
        def report(sent: list[str | None]) -> int:
            self.note("report", sent)
            return len(sent)

        @app.task
        def grow(size: int) -> None:
            self.note("grow", size)
            first = current_job().workflow.add(account.bind(size))
            current_job().workflow.add(mail.bind(first.result, kind="late"))

        @app.task
        async def note(text: str) -> str:
            self.note("note", text)
            return text

        self.account, self.mail, self.report, self.grow, self.text = account, mail, report, grow, note

    def note(self, task: str, value: Any) -> None:
        self.calls.append((task, value))
        if task in self.fails:
            raise NonRetryable("no")


@pytest.fixture
def shop() -> Iterator[Shop]:
    shop = Shop()
    yield shop
    shop.app.close()


def test_results_are_passed_on_typed_and_within_lists(shop: Shop) -> None:
    flow = shop.app.workflow("onboard", idempotency_key="onboard-7")
    account = flow.add(shop.account.bind(user_id=7))
    mails = [flow.add(shop.mail.bind(account.result, kind=kind)) for kind in ("welcome", "tips")]
    report = flow.add(shop.report.bind([mail.result for mail in mails]), on_failure="continue")
    handle = flow.enqueue()
    assert handle.status().status == "running"
    run_due(shop.app)
    assert shop.calls[0] == ("account", 7)
    assert shop.calls[-1] == ("report", ["welcome:70", "tips:70"])
    assert handle.result(report) == 2
    assert handle.result(shop.report) == 2
    with pytest.raises(InvalidOption, match="the task of one node; 2 nodes run it: mail, mail-2"):
        handle.result(shop.mail)
    with pytest.raises(InvalidOption, match="no node runs it"):
        handle.result(shop.text)
    assert handle.status().status == "completed"
    assert [node.name for node in handle.nodes()] == ["account", "mail", "mail-2", "report"]
    again = shop.app.workflow("onboard", idempotency_key="onboard-7")
    again.add(shop.account.bind(user_id=7))
    assert (again.enqueue().id, again.enqueue().duplicate) == (handle.id, True)


def test_a_failed_parent_gives_none_where_that_is_allowed(shop: Shop) -> None:
    flow = shop.app.workflow("onboard")
    account = flow.add(shop.account.bind(1))
    mail = flow.add(shop.mail.bind(account.result, kind="welcome"))
    flow.add(shop.report.bind([mail.result]), on_failure="continue")
    handle = flow.enqueue()
    shop.fails = {"mail"}
    run_due(shop.app)
    assert shop.calls[-1] == ("report", [None])
    with pytest.raises(JobFailed):
        handle.result(mail)
    assert handle.status().status == "failed"
    shop.fails = set()
    assert handle.retry(from_=mail).status == "running"
    run_due(shop.app)
    assert shop.calls[-1] == ("report", ["welcome:10"])
    assert handle.status().status == "completed"


def test_a_result_that_does_not_fit_the_parameter_is_refused_when_it_runs(shop: Shop) -> None:
    flow = shop.app.workflow("odd")
    account = flow.add(shop.account.bind(1))
    flow.add(shop.account.bind(account.result))  # type: ignore[arg-type]
    handle = flow.enqueue()
    run_due(shop.app)
    [node] = [node for node in handle.nodes() if node.name == "account-2"]
    assert (node.status, "user_id" in str(node.last_error)) == ("dead", True)


@pytest.mark.parametrize("is_beside_one", [False, True])
def test_data_that_looks_like_the_result_of_a_node_is_refused(shop: Shop, is_beside_one: bool) -> None:
    flow = shop.app.workflow("forged")
    secret = flow.add(shop.account.bind(1))
    forged: Any = {"$fairlane.result": secret.name}
    with pytest.raises(InvalidPayload, match=r'"\$fairlane\.result": a reserved key'):
        flow.add(shop.report.bind([forged, secret.result] if is_beside_one else [forged]))  # type: ignore[list-item]
    flow.add(shop.report.bind(['the "$fairlane.result": of a text']))
    flow.enqueue()
    run_due(shop.app)
    assert shop.calls[-1] == ("report", ['the "$fairlane.result": of a text'])


@pytest.mark.requirement("L16")
def test_all_nodes_share_one_correlation_id(shop: Shop) -> None:
    handle = shop.app.chain(shop.account.bind(1), shop.account.bind(2)).enqueue()
    found = shop.app.jobs.list(correlation_id=handle.status().correlation_id).jobs
    assert sorted(job.id for job in found) == sorted(node.job_id for node in handle.nodes())


def test_chains_and_groups(shop: Shop) -> None:
    shop.app.chain(shop.account.bind(1), shop.account.bind(2), shop.account.bind(3)).enqueue()
    shop.app.group(shop.account.bind(4), shop.account.bind(5)).enqueue()
    run_due(shop.app)
    assert [value for _, value in shop.calls] in ([1, 4, 5, 2, 3], [1, 2, 3, 4, 5], [1, 4, 2, 5, 3])


def test_a_running_job_adds_nodes_behind_itself_once(shop: Shop) -> None:
    flow = shop.app.workflow("growing")
    flow.add(shop.grow.bind(5))
    handle = flow.enqueue()
    run_due(shop.app)
    assert [task for task, _ in shop.calls] == ["grow", "account", "mail"]
    assert [node.name for node in handle.nodes()] == ["grow", "grow/account", "grow/mail"]
    assert handle.status().status == "completed"


def test_a_running_job_adds_no_node_of_another_tenant(shop: Shop) -> None:
    @shop.app.task(retry=Retry(max_attempts=1))
    def stray() -> None:
        with all_tenants():
            current_job().workflow.add(shop.account.using(tenant="bolt").bind(1))

    flow = shop.app.workflow("stray")
    flow.add(stray.using(tenant="acme").bind())
    handle = flow.enqueue()
    [ran] = run_due(shop.app)
    assert 'belongs to the tenant "acme", not to "bolt"' in str(ran.outcome)
    assert len(handle.nodes()) == 1


def test_a_job_of_no_workflow_adds_no_nodes(shop: Shop) -> None:
    shop.grow.using(max_attempts=1).enqueue(1)
    [ran] = run_due(shop.app)
    assert "no node of a workflow" in str(ran.outcome)


def test_what_cannot_be_built_is_refused_with_the_reason(shop: Shop) -> None:
    app = shop.app
    with pytest.raises(InvalidWorkflow, match="no nodes"):
        app.workflow("empty").enqueue()
    one, other = app.workflow("one"), app.workflow("other")
    first = one.add(shop.account.bind(1))
    with pytest.raises(InvalidWorkflow, match="another workflow"):
        other.add(shop.account.bind(2), after=[first])
    other.add(shop.account.bind(2), name="x")
    with pytest.raises(InvalidWorkflow, match='two nodes are named "x"'):
        other.add(shop.account.bind(2), name="x")
    with pytest.raises(InvalidOption, match=r"a call of a task: `task.bind\(…\)`"):
        other.add(shop.account)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="on_failure"):
        other.add(shop.account.bind(2), on_failure="ignore")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="idempotency_key"):
        other.add(shop.account.using(idempotency_key="k").bind(2))
    mixed = app.workflow("mixed")
    mixed.add(shop.account.using(tenant="acme").bind(1))
    mixed.add(shop.account.using(tenant="bolt").bind(1))
    with pytest.raises(InvalidWorkflow, match="several tenants"):
        mixed.enqueue()
    with pytest.raises(WorkflowNotFound):
        app.workflows.get("00000000-0000-7000-8000-000000000000")


def test_a_cancelled_workflow_runs_nothing_more(shop: Shop) -> None:
    flow = shop.app.workflow("onboard")
    flow.chain(shop.account.bind(1), shop.account.bind(2))
    handle = flow.enqueue()
    assert handle.cancel(by="ada").status == "cancelled"
    assert run_due(shop.app) == ()
    assert handle.retry().status == "running"
    run_due(shop.app)
    assert [value for _, value in shop.calls] == [1, 2]


def test_a_retry_leaves_alone_what_waits_for_a_node_that_was_not_needed(shop: Shop) -> None:
    flow = shop.app.workflow("order")
    pay = flow.add(shop.account.bind(1))
    ship = flow.add(shop.mail.bind(pay.result, kind="ship"))
    refund = flow.add(shop.text.bind("refund"), after=[pay], on_failure="compensate")
    flow.add(shop.text.bind("tell"), after=[refund, ship])
    handle = flow.enqueue()
    shop.fails = {"mail"}
    run_due(shop.app)
    assert (handle.status().tally.dead, handle.status().tally.skipped) == (1, 2)
    shop.fails = set()
    assert handle.retry().status == "running"
    run_due(shop.app)
    assert [task for task, _ in shop.calls] == ["account", "mail", "mail"]
    assert handle.status().status == "completed"
    with pytest.raises(InvalidState):
        handle.retry(from_=refund)


def test_workflows_are_listed_and_drawn(shop: Shop) -> None:
    handle = shop.app.chain(shop.account.bind(1), shop.account.bind(2), name="two").enqueue()
    page = shop.app.workflows.list(name="two")
    assert [found.id for found in page.workflows] == [handle.id]
    graph = shop.app.workflows.graph(handle)
    assert graph.parents == {"account": (), "account-2": ("account",)}
    assert shop.app.workflows.cancel(handle.id, by="ada").status == "cancelled"


def test_async_twins(shop: Shop) -> None:
    async def story() -> None:
        flow = shop.app.workflow("async")
        first = flow.add(shop.text.bind("a"))
        flow.add(shop.text.bind(first.result), name="second")
        handle = await flow.aenqueue()
        await asyncio.to_thread(run_due, shop.app)
        assert await handle.aresult("second") == "a"
        assert (await handle.astatus()).status == "completed"
        assert len(await handle.anodes()) == 2

    asyncio.run(story())


def test_a_worker_runs_a_workflow(shop: Shop) -> None:
    flow = shop.app.workflow("onboard")
    account = flow.add(shop.account.bind(7))
    mail = flow.add(shop.mail.bind(account.result, kind="welcome"))
    last = flow.add(shop.text.bind(mail.result))
    handle = flow.enqueue()
    with shop.app.running(slots=2):
        assert handle.result(last, timeout=20) == "welcome:70"
        assert handle.wait(timeout=20).status == "completed"


def test_a_batch_reports_progress_and_calls_back_once(shop: Shop) -> None:
    batch = shop.app.batch("nightly", on_success=shop.text.bind("good"), on_complete=shop.text.bind("end"))
    batch.add_many(shop.account.bind(n) for n in range(5))
    handle = batch.enqueue()
    run_due(shop.app, limit=2)
    progress = handle.progress()
    assert (progress.total, progress.done, progress.failed) == (5, 2, 0)
    assert handle.add(shop.account.bind(99)) == 1
    run_due(shop.app)
    assert [call for call in shop.calls if call[0] == "note"] == [("note", "good"), ("note", "end")]
    assert (handle.progress().total, handle.progress().done) == (6, 6)
    with pytest.raises(InvalidState):
        handle.add(shop.account.bind(100))


def test_what_refuses_an_enqueue_refuses_jobs_added_to_a_batch(shop: Shop) -> None:
    app, call = shop.app, shop.account.using(tenant="acme").bind(1)
    handle = app.batch("nightly").add_many([call]).enqueue()
    app.limits.set(tenant="acme", waiting=1, when_full="reject")
    with pytest.raises(TenantLimitReached) as enqueueing:
        app.enqueue_many([call])
    with pytest.raises(TenantLimitReached) as adding:
        handle.add(call)
    assert str(adding.value) == str(enqueueing.value)
    app.limits.set(tenant="acme", waiting=5, when_full="reject")
    app.queues.pause("default", refuse=True)
    with pytest.raises(QueuePaused):
        handle.add(call)
    app.queues.resume("default")
    assert (handle.add(call), handle.progress().total) == (1, 2)


def test_jobs_beyond_the_capacity_the_rate_or_the_size_of_a_workflow_are_not_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = Fairlane("memory://", capacity=2, tenant_enqueue_rate="2/min")

    @app.task
    def work() -> None: ...

    handle = app.batch("nightly").add_many([work.bind()]).enqueue()
    with pytest.raises(QueueFull, match="2"):
        handle.add(work.bind(), work.bind())
    call = work.using(tenant="acme").bind()
    other = app.batch("nightly").add_many([call]).enqueue()
    run_due(app)
    assert other.add(call) == 1
    with pytest.raises(EnqueueRateReached, match="acme"):
        other.add(call)
    monkeypatch.setattr(workflow_handle, "AddNodes", partial(AddNodes, max_nodes=1))
    with pytest.raises(InvalidWorkflow, match="would have 2 nodes: expected at most 100,000; enqueue another"):
        handle.add(work.bind())
    app.close()


def test_a_job_that_is_refused_a_node_adds_it_later_under_the_same_name_and_pays_once(clock: FakeClock) -> None:
    app = Fairlane("memory://", clock=clock, tenant_enqueue_rate="4/hour")

    @app.task
    def work(place: int) -> None: ...

    @app.task(retry=Retry(max_attempts=2))
    def split() -> None:
        workflow = current_job().workflow
        workflow.add(work.bind(0))
        if current_job().attempt == 1:
            with all_tenants():
                app.queues.pause("default", refuse=True)
            with pytest.raises(QueuePaused):
                workflow.add(work.bind(1))
            with all_tenants():
                app.queues.resume("default")
        workflow.add(work.bind(1))
        if current_job().attempt == 1:
            raise RuntimeError("after all of them")

    flow = app.workflow("split")
    flow.add(split.using(tenant="acme").bind())
    handle = flow.enqueue()
    run_due(app)
    clock.advance(60)
    run_due(app)
    assert [node.name for node in handle.nodes()] == ["split", "split/work", "split/work-2"]
    assert handle.status().status == "completed"
    app.close()


def test_nodes_are_named_by_the_order_of_calls_also_behind_one_that_is_refused(clock: FakeClock) -> None:
    app, ran = Fairlane("memory://", clock=clock), list[int]()

    @app.task(queue="mail")
    def work(place: int) -> None:
        ran.append(place)

    @app.task(retry=Retry(max_attempts=2))
    def split() -> None:
        is_first = current_job().attempt == 1
        for place in range(3):
            if is_first and place == 0:
                app.queues.pause("mail", refuse=True)
                with pytest.raises(QueuePaused):
                    current_job().workflow.add(work.bind(place))
                app.queues.resume("mail")
            else:
                current_job().workflow.add(work.bind(place))
        if is_first:
            raise RuntimeError("after all of them")

    flow = app.workflow("split")
    flow.add(split.bind())
    handle = flow.enqueue()
    run_due(app)
    clock.advance(60)
    run_due(app)
    assert [node.name for node in handle.nodes()] == ["split", "split/work-2", "split/work-3", "split/work"]
    assert sorted(ran) == [0, 1, 2]
    app.close()


def test_two_nodes_of_one_name_are_refused_also_if_they_are_added_at_the_same_time(tmp_path: Path) -> None:
    app, seen = Fairlane(f"sqlite:///{tmp_path}/jobs.db"), list[str]()

    @app.task
    def work(place: int) -> None:
        seen.append(f"work {place}")

    @app.task
    async def split() -> None:
        workflow = current_job().workflow
        adding = (workflow.aadd(work.bind(place), name="x") for place in (1, 2))
        for result in await asyncio.gather(*adding, return_exceptions=True):
            seen.append(type(result).__name__)

    async def story() -> None:
        flow = app.workflow("split")
        flow.add(split.bind())
        handle = await flow.aenqueue()
        await arun_due(app)
        assert [node.name for node in await handle.anodes()] == ["split", "x"]
        await app.aclose()

    asyncio.run(story())
    assert seen == ["NodeRef", "InvalidWorkflow", "work 1"]


def test_progress_counts_jobs_named_like_callbacks_and_no_callback_whatever_became_of_it(shop: Shop) -> None:
    app, told = shop.app, []

    @app.task(max_attempts=1)
    def on_complete(fails: bool) -> None:
        told.append(fails)
        if fails:
            raise RuntimeError("no")

    batch = app.batch("nightly")
    batch.add_many([on_complete.bind(False), on_complete.bind(True)])
    with pytest.raises(InvalidWorkflow, match='a job is named "on_success", like a callback: give it another name'):
        batch.add(shop.account.bind(1), name="on_success")
    handle = batch.enqueue()
    run_due(app)
    assert handle.progress() == BatchProgress(total=2, done=1, failed=1)

    handle = app.batch("nightly", on_complete=on_complete.bind(True)).add_many([shop.account.bind(1)]).enqueue()
    run_due(app)
    assert handle.progress() == BatchProgress(total=1, done=1, failed=0)
    [letter] = app.workflows.get(handle).dead
    app.dead_letters.resolve(letter)
    assert handle.progress() == BatchProgress(total=1, done=1, failed=0)
    handle.retry(from_="account")
    assert handle.progress() == BatchProgress(total=1, done=0, failed=0)


def test_progress_is_right_while_a_callback_ends(shop: Shop) -> None:
    handle = shop.app.batch("nightly", on_success=shop.text.bind("good")).add_many([shop.account.bind(1)]).enqueue()
    steps, store, progress = handle._progress(), shop.app.runtime.store, None
    asked = next(steps)
    while progress is None:
        run_due(shop.app, limit=1)  # between any two looks
        try:
            asked = steps.send(store.run(asked))
        except StopIteration as end:
            progress = end.value
    assert progress == BatchProgress(total=1, done=1, failed=0)


def test_two_that_add_to_a_batch_at_the_same_time_both_do(shop: Shop) -> None:
    handle = shop.app.batch("nightly").add_many([shop.account.bind(1)]).enqueue()
    adding, store = [handle._add(shop.account.bind(n)) for n in (2, 3)], shop.app.runtime.store
    asked = [steps.send(store.run(next(steps))) for steps in adding]  # each has looked before the other has added
    for steps, op in zip(adding, asked, strict=True):
        with pytest.raises(StopIteration):
            steps.send(store.run(op))
    run_due(shop.app)
    assert sorted(shop.calls) == [("account", n) for n in (1, 2, 3)]


def test_what_cannot_be_added_to_a_batch_is_refused(shop: Shop) -> None:
    batch = shop.app.batch("nightly")
    first = batch.add(shop.account.using(tenant="acme").bind(1))
    handle = batch.enqueue()
    with pytest.raises(InvalidWorkflow, match='belongs to the tenant "acme", not to "other"'):
        handle.add(shop.account.using(tenant="other").bind(2))
    with pytest.raises(InvalidOption, match="idempotency_key"):
        handle.add(shop.account.using(idempotency_key="once").bind(2))
    with pytest.raises(InvalidWorkflow, match="another workflow"):
        handle.add(shop.mail.bind(first.result, kind="late"))
    with pytest.raises(InvalidWorkflow, match="no nodes"):
        handle.add()
    assert handle.add(shop.account.bind(2)) == 1
    assert {shop.app.jobs.get(node.job_id).tenant for node in handle.nodes()} == {"acme"}


def test_a_batch_with_a_failure_says_so_once(shop: Shop) -> None:
    callbacks = {"on_success": "good", "on_failure": "bad", "on_complete": "end"}
    batch = shop.app.batch("nightly", **{name: shop.text.bind(text) for name, text in callbacks.items()})
    batch.add_many([shop.account.bind(1), shop.mail.bind({"id": 1}, kind="x")])
    handle = batch.enqueue()
    shop.fails = {"mail"}
    run_due(shop.app)
    assert sorted(value for task, value in shop.calls if task == "note") == ["bad", "end"]
    assert (handle.progress().done, handle.progress().failed) == (1, 1)
    shop.fails = set()
    [letter] = shop.app.workflows.get(handle).dead
    shop.app.dead_letters.reprocess(letter)
    run_due(shop.app)
    assert sorted(value for task, value in shop.calls if task == "note") == ["bad", "end", "good"]


def test_a_callback_that_has_completed_is_called_again_only_behind_a_named_job(shop: Shop) -> None:
    callbacks = {"on_success": "good", "on_failure": "bad", "on_complete": "end"}
    batch = shop.app.batch("nightly", **{name: shop.text.bind(text) for name, text in callbacks.items()})
    handle = batch.add_many([shop.account.bind(1), shop.mail.bind({"id": 1}, kind="x")]).enqueue()
    shop.fails = {"mail"}
    for _ in range(2):
        run_due(shop.app)
        assert sorted(value for task, value in shop.calls if task == "note") == ["bad", "end"]
        handle.retry()
    assert handle.add(shop.account.bind(2)) == 1
    shop.fails = set()
    run_due(shop.app)
    assert sorted(value for task, value in shop.calls if task == "note") == ["bad", "end", "good"]
    assert (handle.status().status, handle.progress().done) == ("completed", 3)
    handle.retry(from_="mail")
    run_due(shop.app)
    assert sorted(value for task, value in shop.calls if task == "note") == ["bad", "end", "end", "good", "good"]


def test_callbacks_of_a_cancelled_batch_are_called_once_it_is_retried(shop: Shop) -> None:
    batch = shop.app.batch("nightly", on_success=shop.text.bind("good"), on_complete=shop.text.bind("end"))
    handle = batch.add_many([shop.account.bind(1)]).enqueue()
    handle.cancel()
    run_due(shop.app)
    assert (shop.calls, handle.status().status) == ([], "cancelled")
    handle.retry()
    run_due(shop.app)
    assert sorted(value for task, value in shop.calls if task == "note") == ["end", "good"]


def mails(shop: Shop, user_id: int) -> WorkflowBuilder:
    """A part: an account, two mails to it, and their number."""
    part = shop.app.workflow("mails")
    account = part.add(shop.account.bind(user_id))
    sent = [part.add(shop.mail.bind(account.result, kind=kind)) for kind in ("hello", "tips")]
    part.add(shop.text.bind("sorry"), after=sent, on_failure="compensate")
    part.add(shop.report.bind([mail.result for mail in sent]))
    return part


def test_a_workflow_is_a_part_of_another(shop: Shop) -> None:
    whole = shop.app.workflow("whole")
    first = whole.add(shop.account.bind(0))
    parts = [whole.add(mails(shop, user), after=[first]) for user in (1, 2)]
    last = whole.add(shop.report.bind([part["mail"].result for part in parts]), after=parts)
    handle = whole.enqueue()
    names = [node.name for node in handle.nodes()]
    assert names[:3] == ["account", "mails/account", "mails/mail"]
    assert {"mails-2/mail-2", "mails-2/report"} < set(names)
    run_due(shop.app)
    assert (handle.status().status, handle.status().tally.skipped) == ("completed", 2)
    assert shop.calls[0] == ("account", 0)
    assert shop.calls[-1] == ("report", ["hello:10", "hello:20"])
    assert handle.result(parts[0]) == 2
    assert handle.result(parts[1]["mail"]) == "hello:20"
    assert handle.result(last) == 2


def test_what_waits_for_a_part_waits_for_all_its_last_nodes_and_none_that_was_not_needed(shop: Shop) -> None:
    part = shop.app.workflow("part")
    one = part.add(shop.text.bind("one"))
    part.add(shop.text.bind("two"), name="two")
    part.add(shop.text.bind("undo"), after=[one], on_failure="compensate")
    whole = shop.app.workflow("whole")
    added = whole.add(part, name="inner")
    assert (added.starts, added.ends) == (("inner/note", "inner/two"), ("inner/note", "inner/two"))
    whole.add(shop.text.bind("three"), after=[added])
    handle = whole.enqueue()
    run_due(shop.app)
    assert [value for _, value in shop.calls] == ["one", "two", "three"]
    assert handle.status().status == "completed"


def test_cancel_and_retry_pass_through_a_part(shop: Shop) -> None:
    whole = shop.app.workflow("whole")
    first = whole.add(shop.text.bind("first"))
    part = whole.add(mails(shop, 1), after=[first])
    handle = whole.enqueue()
    run_due(shop.app, limit=2)
    handle.cancel()
    assert run_due(shop.app) == ()
    assert handle.retry(from_=part).status == "running"
    run_due(shop.app)
    assert handle.status().status == "completed"
    assert [task for task, _ in shop.calls] == ["note", "account", "account", "mail", "mail", "report"]


def test_a_dead_node_of_a_part_stops_what_comes_after_it(shop: Shop) -> None:
    whole = shop.app.workflow("whole")
    part = whole.add(mails(shop, 1))
    whole.add(shop.text.bind("after"), after=[part])
    whole.add(shop.text.bind("anyway"), after=[part], on_failure="continue")
    handle = whole.enqueue()
    shop.fails = {"account"}
    run_due(shop.app)
    assert handle.status().status == "blocked"
    shop.fails = set()
    shop.app.dead_letters.reprocess(shop.app.dead_letters.list().dead_letters[0])
    run_due(shop.app)
    assert handle.status().status == "completed"


def test_parts_within_parts(shop: Shop) -> None:
    inner = shop.app.workflow("inner")
    inner.add(shop.account.bind(1))
    middle = shop.app.workflow("middle")
    account = middle.add(inner)
    middle.add(shop.mail.bind(account.result, kind="deep"))
    whole = shop.app.workflow("whole")
    part = whole.add(middle)
    handle = whole.enqueue()
    run_due(shop.app)
    assert [node.name for node in handle.nodes()] == ["middle/inner/account", "middle/mail"]
    assert handle.result(part) == "deep:10"


def test_a_part_that_cannot_be_taken_is_refused(shop: Shop) -> None:
    whole = shop.app.workflow("whole")
    whole.add(shop.text.bind("x"), name="part/note")
    with pytest.raises(InvalidWorkflow, match="no nodes"):
        whole.add(shop.app.workflow("empty"))
    with pytest.raises(InvalidWorkflow, match="this workflow itself"):
        whole.add(whole)
    with pytest.raises(InvalidOption, match="idempotency_key"):
        whole.add(shop.app.workflow("part", idempotency_key="k"))
    with pytest.raises(InvalidWorkflow, match="callback of a batch"):
        whole.add(shop.app.batch("batch", on_success=shop.text.bind("done")).add_many([shop.text.bind("x")]))
    clashing = shop.app.workflow("part")
    clashing.add(shop.text.bind("a"), name="a")
    clashing.add(shop.text.bind("b"), name="note")
    with pytest.raises(InvalidWorkflow, match='two nodes are named "part/note"'):
        whole.add(clashing)
    with pytest.raises(InvalidWorkflow, match='no node "mial"'):
        whole.add(mails(shop, 1))["mial"]
    assert len(whole.enqueue().nodes()) == 6


def test_a_result_outside_of_its_workflow_is_refused_with_the_way_to_pass_it(shop: Shop) -> None:
    flow = shop.app.workflow("flow")
    account = flow.add(shop.account.bind(1))
    bound = shop.mail.bind(account.result, kind="x")
    for refused in (
        lambda: shop.mail.enqueue(account.result, kind="x"),
        lambda: shop.app.enqueue_many([bound]),
        lambda: shop.mail.enqueue_map([{"to": account.result, "kind": "x"}]),
        lambda: shop.app.schedules.add("daily", bound, cron="@daily"),
    ):
        with pytest.raises(InvalidPayload, match=r'the result of node "account" is there only within its workflow'):
            refused()
    assert shop.app.jobs.list().jobs == ()


def test_due_jobs_are_run_however_many_wait_for_one(shop: Shop) -> None:
    @shop.app.task(batch=500)
    def count(numbers: list[int]) -> None:
        shop.note("count", len(numbers))

    flow = shop.app.workflow("wide")
    flow.group(*map(count.bind, range(RELEASE_LIMIT + 5)), after=[flow.add(shop.account.bind(1))])
    handle = flow.enqueue()
    assert len(run_due(shop.app, limit=2000)) == RELEASE_LIMIT + 6
    assert handle.status().status == "completed"
    assert [number for _, number in shop.calls] == [1, 500, 500, 5]


def test_the_result_of_a_node_fails_like_that_of_a_job(shop: Shop) -> None:
    shop.fails.add("account")
    flow = shop.app.workflow("two")
    failed, odd = flow.add(shop.account.bind(1)), flow.add(shop.text.bind("three"), name="odd")
    handle = flow.enqueue()
    run_due(shop.app)
    with pytest.raises(JobFailed, match=r"is dead: .*NonRetryable: no$"):
        handle.result(failed)
    newer = WorkflowHandle(shop.app.runtime, handle.id, readers={"odd": shop.report.definition.signature.read_result})
    with pytest.raises(JobFailed, match='UnreadableResult: result of node "odd": Expected `int`, got `str`'):
        newer.result(odd)


class Sums:
    """Tasks whose results other nodes take."""

    def __init__(self, app: Fairlane) -> None:
        self.app = app

        @app.task(name="sums.upto")
        def upto(size: int) -> list[int]:
            return list(range(size))

        @app.task(name="sums.double", retry=Retry(max_attempts=1))
        def double(number: int, by: int = 2) -> int:
            if number < 0:
                raise NonRetryable("below zero")
            return number * by

        @app.task(name="sums.total")
        def total(numbers: list[int | None]) -> int:
            return sum(number or 0 for number in numbers)

        @app.task(name="sums.divide")
        def divide(number: int, by: int) -> float:
            return number / by

        @app.task(name="sums.ping")
        def ping(text: str = "ping") -> str:
            return text

        self.upto, self.double, self.total, self.divide, self.ping = upto, double, total, divide, ping


@pytest.fixture
def sums(app: Fairlane) -> Sums:
    return Sums(app)


def test_a_task_in_a_chain_takes_the_result_of_the_one_before(sums: Sums) -> None:
    chain = sums.app.chain(sums.double.bind(1), sums.double, sums.double.using(priority="high"), sums.divide.bind(1, 2))
    handle = chain.enqueue()
    ran = run_due(sums.app)
    assert [run.lease.priority for run in ran] == [5, 5, 0, 5]
    assert [handle.result(name, timeout=0) for name in ("double-2", "double-3", "divide")] == [4, 8, 0.5]


def test_the_first_of_a_chain_and_of_a_group_takes_the_result_of_the_node_they_are_after(sums: Sums) -> None:
    flow = sums.app.workflow("diamond")
    first = flow.add(sums.double.bind(2))
    left, right = flow.group(sums.double, sums.double.using(queue="other"), after=[first])
    last = flow.gather([left, right], into=sums.total)
    [pinged, doubled] = flow.chain(sums.ping.bind(), sums.double.bind(1), after=[left, right])
    handle = flow.enqueue()
    run_due(sums.app)
    assert [handle.result(node, timeout=0) for node in (left, right, last, pinged, doubled)] == [8, 8, 16, "ping", 2]


def test_a_task_that_needs_nothing_may_be_the_first_of_a_chain(sums: Sums) -> None:
    handle = sums.app.chain(sums.ping, sums.ping.bind("pong")).enqueue()
    run_due(sums.app)
    assert handle.result("ping-2", timeout=0) == "pong"


def test_a_group_is_followed_by_what_takes_the_list_of_its_results(sums: Sums) -> None:
    group = sums.app.group(*(sums.double.bind(number) for number in (3, 1, 2))).then(sums.total).then(sums.double)
    handle = group.then(sums.ping.bind("over")).enqueue()
    run_due(sums.app)
    assert (handle.result(sums.total, timeout=0), handle.result("double-4", timeout=0)) == (12, 24)
    assert handle.result(sums.ping, timeout=0) == "over"


def test_results_are_gathered_in_order_although_some_failed(sums: Sums) -> None:
    flow = sums.app.workflow("gather")
    started = flow.add(sums.ping.bind())
    calls = [sums.double.bind(number) for number in (-1, 2, 3)]
    summed = flow.gather(calls, into=sums.total, after=[started], on_failure="continue", name="sum")
    handle = flow.enqueue()
    run_due(sums.app)
    assert (summed.name, handle.result(summed, timeout=0)) == ("sum", 10)
    assert sums.app.workflows.graph(handle).parents["double"] == ("ping",)


def test_what_cannot_take_a_result_is_refused_when_the_workflow_is_built(sums: Sums) -> None:
    app, double = sums.app, sums.double.bind(1)
    with pytest.raises(
        InvalidWorkflow, match=r'"sums.double" has no node before it .* give its call, double.bind\(…\)'
    ):
        app.chain(sums.double)
    with pytest.raises(
        InvalidOption, match=r"the result of the node before it = .*sums.divide\(.* \(it has 2\), or its call"
    ):
        app.chain(double, sums.divide)
    with pytest.raises(InvalidOption, match=r"\(it has none\), or its call, ping.bind\(…\)"):
        app.chain(double, sums.ping)
    flow = app.workflow("two")
    pair = flow.group(double, double)
    with pytest.raises(InvalidWorkflow, match="several nodes before it"):
        flow.chain(sums.double, after=pair)
    with pytest.raises(InvalidOption, match=r"takes the list of results = .* \(it has none\)"):
        app.group(double).then(sums.ping)
    with pytest.raises(InvalidOption, match=r"a call of a task: `task.bind\(…\)`"):
        app.chain(double, len)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="after"):
        app.workflow("odd").chain(sums.ping, after=["ping"])  # type: ignore[list-item]


# Maps.


def test_a_map_adds_a_node_for_each_item_of_a_result(sums: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.client.workflow_maps.CHUNK", 2)
    double_all = sums.app.map(sums.double, into=sums.total)
    handle = sums.app.chain(sums.upto.bind(5), double_all).enqueue()
    run_due(sums.app)
    assert (handle.result(double_all, timeout=0), handle.result(sums.total, timeout=0)) == (5, 20)
    nodes = [f"double_map/double-{number}" for number in range(1, 6)]
    assert [node.name for node in handle.nodes()] == ["upto", "double_map", *nodes, "double_map/total"]
    assert sums.app.workflows.graph(handle).parents["double_map/total"] == tuple(nodes)
    assert handle.status().status == "completed"


def test_a_map_over_nothing_gathers_an_empty_list(sums: Sums) -> None:
    handle = sums.app.chain(sums.upto.bind(0), sums.app.map(sums.double, into=sums.total)).enqueue()
    run_due(sums.app)
    assert handle.result("double_map/total", timeout=0) == 0


def test_a_map_gathers_what_has_not_failed_if_that_is_asked_for(sums: Sums) -> None:
    double_all = sums.app.map(sums.double.using(queue="other"), into=sums.total, on_failure="continue", name="all")
    flow = sums.app.workflow("map")
    flow.add(double_all.bind([-1, 2, 3]))
    handle = flow.enqueue()
    run_due(sums.app)
    assert handle.result("all/total", timeout=0) == 10


def test_a_map_that_is_cut_off_adds_nothing_twice(
    sums: Sums, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane.client.workflow_maps.CHUNK", 2)
    double_all = sums.app.map(sums.double, into=sums.total)

    def cut_off(draft: Any) -> None:
        if draft.type == "sums.double" and draft.args["number"] == 3 and current_job().attempt == 1:
            raise RuntimeError("in the second commit")

    sums.app.jobs.on_enqueue(cut_off)
    handle = sums.app.chain(sums.upto.bind(5), double_all).enqueue()
    run_due(sums.app)
    assert len(handle.nodes()) == 4, "those of the first commit"
    clock.advance(60)
    run_due(sums.app)
    assert (handle.result(sums.total, timeout=0), len(handle.nodes())) == (20, 8)


def test_a_map_that_is_run_again_keeps_its_nodes_and_refuses_other_items(sums: Sums) -> None:
    sizes = [2, 2, 0]

    @sums.app.task(name="sums.sizes")
    def numbers() -> list[int]:
        return list(range(sizes.pop(0)))

    handle = sums.app.chain(numbers.bind(), sums.app.map(sums.double, into=sums.total)).enqueue()
    run_due(sums.app)
    handle.retry(from_="sizes")
    run_due(sums.app)
    assert (handle.status().status, len(handle.nodes()), handle.result(sums.total, timeout=0)) == ("completed", 5, 2)
    handle.retry(from_="sizes")
    run_due(sums.app)
    assert handle.status().status == "blocked"
    [failed] = [node for node in handle.nodes() if node.status == "dead"]
    assert "its items have changed since it added its nodes: enqueue the workflow anew" in str(failed.last_error)


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ([1, 2, 3, 4], '4 items: map "sums.double_map" takes at most 3, as its limit= says'),
        ([1, "x"], "number: Expected `int`, got `str`"),
        (None, "items: Expected `array`, got `null`"),
    ],
)
def test_a_map_adds_nothing_if_an_item_cannot_be_taken(sums: Sums, items: Any, problem: str) -> None:
    flow = sums.app.workflow("map")

    @sums.app.task(name="sums.given")
    def given() -> Any:
        return items

    flow.chain(given, sums.app.map(sums.double, into=sums.total, limit=3))
    handle = flow.enqueue()
    run_due(sums.app)
    assert [node.status for node in handle.nodes()] == ["completed", "dead"]
    assert problem in str(handle.nodes()[1].last_error)


def test_what_no_map_can_be_made_of_is_refused(sums: Sums) -> None:
    app = sums.app
    with pytest.raises(InvalidOption, match=r"takes an item = .* \(it has 2\)$"):
        app.map(sums.divide)
    with pytest.raises(InvalidOption, match=r"takes the list of results = .* \(it has none\)"):
        app.map(sums.double, into=sums.ping)
    with pytest.raises(InvalidOption, match=r"a task, as in app.map\(resize, into=report\)"):
        app.map(sums.double.bind(1))  # type: ignore[call-overload]
    with pytest.raises(InvalidOption, match="into"):
        app.map(sums.double, into=sums.total.bind([]))  # type: ignore[call-overload]
    with pytest.raises(InvalidOption, match="limit"):
        app.map(sums.double, limit=0)
    with pytest.raises(InvalidOption, match="on_failure"):
        app.map(sums.double, on_failure="ignore")  # type: ignore[call-overload]
    double_all = app.map(sums.double)
    with pytest.raises(InvalidOption, match="is registered under it"):
        app.map(sums.double, into=sums.total)
    double_all.using(max_attempts=1).enqueue([1])
    [ran] = run_due(app)
    assert "no node of a workflow" in str(ran.outcome)


# How many nodes run at once.


def test_only_so_many_nodes_of_a_workflow_run_at_once_also_of_those_added_while_it_runs(url: str) -> None:
    app, at_once, seen, pair = Fairlane(url), [0], list[int](), threading.Barrier(2)
    counting = threading.Lock()

    def changed(by: int) -> None:
        with counting:
            at_once[0] += by
            seen.append(at_once[0])

    @app.task(retry=Retry(max_attempts=1))
    def page(number: int) -> None:
        changed(1)
        pair.wait(timeout=20)  # two at once
        changed(-1)

    @app.task
    def end() -> str:
        return "ended"

    flow = app.workflow("import", running=2)
    pages = flow.group(*(page.bind(number) for number in range(4)))
    [more] = flow.group(app.map(page, into=None).bind(list(range(4))), after=pages)
    flow.add(end.bind(), after=[more])
    handle = flow.enqueue()
    with app.running(slots=8):
        assert handle.wait(timeout=30).status == "completed"
    assert (len(handle.nodes()), max(seen)) == (10, 2)
    app.close()


def test_nodes_that_wait_for_a_place_say_so_and_keep_their_key_when_they_run_again(sums: Sums) -> None:
    app = sums.app
    group = app.group(sums.double.bind(-1), sums.double.using(key=None).bind(2), running=1)
    handle = group.then(sums.total, on_failure="continue").enqueue()
    [key] = app.limits.keys()
    assert (key.key, key.running, key.waiting) == (f"workflow:{handle.id}", 1, 2)
    run_due(app)
    handle.retry()
    for node in handle.nodes():
        job = app.jobs.get(node.job_id)
        assert job is not None
        assert job.key == f"workflow:{handle.id}"
    [key] = app.limits.keys()
    assert (key.running, key.waiting) == (1, 1)


def test_nodes_with_a_key_of_their_own_are_refused_where_only_so_many_run_at_once(sums: Sums) -> None:
    app = sums.app
    flow = app.workflow("import", running=2)

    @app.task(name="sums.keyed", key="customer_id")
    def keyed(customer_id: int) -> None: ...

    with pytest.raises(
        InvalidWorkflow, match=r'running = 2, but "sums.keyed" has the key "customer", and a job has one key'
    ):
        flow.add(keyed.bind(1))
    with pytest.raises(InvalidWorkflow, match='has the key "import"'):
        flow.add(sums.double.using(key="import:1").bind(1))
    part = app.workflow("part")
    part.add(keyed.bind(1))
    with pytest.raises(InvalidWorkflow, match='has the key "customer"'):
        flow.add(part)
    flow.add(keyed.using(key=None).bind(1))
    inner = app.workflow("inner", running=2)
    inner.add(sums.ping.bind())
    with pytest.raises(InvalidOption, match="none on a part: give it to the workflow"):
        app.workflow("outer").add(inner)
    for running in (0, -1, True, 2.5, "2"):
        with pytest.raises(InvalidOption, match="a whole number from 1 on: how many of its nodes run at once"):
            app.workflow("import", running=running)  # type: ignore[arg-type]
