"""What a user may write. Type checkers find nothing wrong here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, assert_type
from uuid import UUID

from fairlane import (
    AsyncTask,
    BatchHandle,
    Bound,
    Breaker,
    ClaimedJob,
    CurrentJob,
    Draft,
    FailedAttempt,
    Fairlane,
    GroupBuilder,
    Handle,
    Job,
    JobKey,
    NodeRef,
    QueuePolicy,
    Retry,
    Schedule,
    Snapshot,
    SyncTask,
    Task,
    WorkflowBuilder,
    WorkflowHandle,
    asleep,
    astep,
    await_for,
    current_job,
    sleep,
    step,
    tenant,
    timeout,
    wait_for,
)
from fairlane.client.admin.audit import ChainVerified
from fairlane.client.admin.bulk_acts import ManyActs
from fairlane.client.admin.dead_letters import Reprocessed
from fairlane.client.admin.explanation import Explanation
from fairlane.client.admin.queues import QueueState
from fairlane.client.workflow_handle import BatchProgress
from fairlane.client.workflow_nodes import PartRef
from fairlane.core.job import Status
from fairlane.core.ops import Pause
from fairlane.core.workflows import Node, Workflow
from fairlane.testing import CollectedJob, Ran, assert_enqueued, assert_nothing_enqueued

app = Fairlane("memory://", capacity=10, queues={"mail": QueuePolicy(name="mail", slots=2)}, profile="development")
Fairlane("memory://", queues={"mail": {"slots": 3}, "sms": QueuePolicy(name="sms")}, retry={"max_attempts": 3})
Fairlane("memory://", queues={"mail": {"slots": "3/process"}}, retry_by_class={"transient": {"base_s": 1.0}})


@app.task
def add(a: int, b: int = 2) -> int:
    return a + b


@app.task
def total(numbers: list[Any]) -> int:
    return len(numbers)


@app.task
async def greet(name: str) -> str:
    return f"Hello {name}"


@app.task(queue="mail", category="notifications", timeout=timedelta(minutes=1), retry=Retry(max_attempts=5))
async def send(user_id: int, *, subject: str = "") -> list[str]:
    return [f"{current_job().tenant}: {user_id} {subject}"]


@app.task(name="tidy", errors={OSError: "transient"}, required=("age",), priority="low")
def tidy(age: int | None = None) -> None: ...


@app.task(key="customer_id", running=3, rate="10/s", on_conflict="discard")
def sync(customer_id: int) -> int:
    return customer_id


@app.task(key=lambda shop, **_: f"shop:{shop}", ordered=True)
async def push(shop: str, item: int) -> None: ...


app.task(key=("a", "b"))(add)
assert_type(sync.using(key="import:42", ordered=False, on_conflict="replace").enqueue(1), Handle[int])
assert_type(sync.using(key=None).using(key=JobKey(value="import:42", running=2)).bind(1), Bound[int])
assert_type(app.limits.keys(name="customer")[0].holders[0].state, Literal["ready", "scheduled", "leased", "dead"])
assert_type(app.jobs.free_place("id", by="ada"), Job)
app.limits.set(key="customer", running=2)
app.tasks.enqueue("sync", {"customer_id": 1}, key="import:42")


assert_type(add(1), int)
assert_type(add.enqueue(1, b=3), Handle[int])
assert_type(add.enqueue(1).result(timeout=5), int)
assert_type(add.enqueue(1).status(), Status)
assert_type(add.enqueue(1).cancel(by="ada"), Job)
assert_type(add.bind(1), Bound[int])
assert_type(greet.enqueue("Ada"), Handle[str])
assert_type(send.using(tenant=1, priority="high", delay=30).enqueue(7, subject="Hi"), Handle[list[str]])
assert_type(send.using(parent=add.enqueue(1), correlation_id=UUID(int=7), conn=object()).bind(7), Bound[list[str]])
assert_type(app.enqueue_many([add.bind(i) for i in range(3)]), Sequence[Handle[int]])
assert_type(app.jobs.get("id"), Job | None)
assert_type(app.jobs.cancel(add.enqueue(1), by="ada", notes="n", tenant=1), Job)
assert_type(app.snapshot(), Snapshot)
assert_type(app.jobs.handle("id").result(), Any)
claimed = app.jobs.claim("legacy", types=["mail.send"], lease=timedelta(minutes=5), worker="cron")
assert_type(claimed, ClaimedJob | None)
if claimed is not None:
    assert_type(claimed.arguments, dict[str, Any])
    assert_type(claimed.fail(OSError(), error_class="transient", retry=True, retry_after=30), float | None)
    assert_type(claimed.complete({"sent": True}), None)

any_task: Task[[str], str] = greet
async_task: AsyncTask[[str], str] = greet
sync_task: SyncTask[[int, int], int] = add


async def use() -> None:
    assert_type(await greet("Ada"), str)
    assert_type(await greet.aenqueue("Ada"), Handle[str])
    assert_type(await (await greet.aenqueue("Ada")).aresult(timeout=1), str)
    assert_type(await app.aenqueue_many([send.bind(1)]), Sequence[Handle[list[str]]])
    assert_type(await app.jobs.acancel("id"), Job)
    assert_type(await app.jobs.aget("id"), Job | None)
    assert_type(await app.jobs.aclaim(["legacy", "default"]), ClaimedJob | None)
    assert_type(await (await app.jobs.aclaimed("token")).afail("no", error_class="non_retryable"), float | None)
    assert_type(await app.dead_letters.areprocess(7, payload={"a": 1}), Reprocessed)
    assert_type(await app.queues.adrain("mail", timeout=5), None)
    assert_type(await app.tenants.apause(5), tuple[Pause, ...])
    assert_type(await app.asnapshot(), Snapshot)
    assert_type(await (await app.chain(greet.bind("Ada")).aenqueue()).aresult(greet), str)
    async with app:
        with tenant(123):
            await send.using(run_at=app.runtime.clock.now()).aenqueue(1)


@app.jobs.on_enqueue
def score(draft: Draft) -> Draft | None:
    return draft.change(priority="high", delay=1.5, headers={"traceparent": "00-1"})


with app.testing() as jobs:
    assert_type(jobs.assert_enqueued(send, tenant="acme").args, dict[str, Any])
    assert_type(jobs.enqueued(), list[CollectedJob])
    assert_type(jobs.run_due(within=timedelta(hours=1)), tuple[Ran, ...])
    assert_enqueued(send.using(tenant=1))
    assert_nothing_enqueued()


@app.before_job
async def announce(job: CurrentJob) -> None:
    assert_type(job.arguments, dict[str, Any])


@app.around_job
def span(job: CurrentJob) -> Iterator[None]:
    yield


@send.around_job
async def async_span(job: CurrentJob) -> AsyncIterator[None]:
    yield


@send.after_job
def sent(job: CurrentJob, result: list[str]) -> None: ...


@app.on_failure
def failed(job: CurrentJob, failed: FailedAttempt) -> None:
    assert_type(failed.exception, BaseException)
    assert_type(failed.retry_in_s, float | None)


@add.upcast(1)
def _(payload: dict[str, Any]) -> dict[str, Any]:
    return payload


@app.resource
async def session() -> AsyncIterator[bytes]:
    yield b""


@app.resource(scope="worker")
def client() -> Iterator[float]:
    yield 1.0


@app.task(breaker=Breaker("smtp", threshold=3, cooldown=timedelta(seconds=30)))
async def guarded(user_id: int) -> None:
    assert_type(await session(), bytes)
    assert_type(client(), float)
    async with app.breakers.guard("web"), timeout(5):
        current_job().progress(0.5)


@app.task(breaker="smtp")
def plain() -> None:
    with app.breakers.guard("web"), timeout(5), client.replaced(2.0) as replaced:
        assert_type(replaced, float)


@app.task(batch=100, within=timedelta(seconds=0.2), queue="mail")
async def index(documents: list[int]) -> list[str | Exception]:
    return [ValueError(job.stopping) if job.stopping else str(job.id) for job in current_job().batch]


@app.task(batch=10)
def tally(rows: list[dict[str, int]]) -> None: ...


assert_type(index.enqueue(7), Handle[str])
assert_type(tally.using(tenant=1).enqueue({"a": 1}), Handle[None])
app.enqueue_many([tally.bind({"a": 1})])
tally([{"a": 1}, {"b": 2}])
assert_type(guarded.enqueue(7), Handle[None])
assert_type(app.jobs.why("id"), Explanation)
assert_type(app.jobs.act_on_many("cancel", ["id"], dry_run=True), ManyActs[Job])
assert_type(app.queues.list(), tuple[QueueState, ...])
assert_type(app.queues.depth("mail", tenant=1), int)
assert_type(app.schedules.add("daily", tidy, cron="@daily", by="ada"), Schedule)
assert_type(app.schedules.add("poll", tidy, every=timedelta(seconds=10), jitter=2.5, tenant=7), Schedule)
assert_type(app.schedules.add("sale", tidy, every=10, starts_at=datetime.now(UTC)), Schedule)
assert_type(app.schedules.run("daily"), Handle[Any])
assert_type(app.limits.clear(queue="mail"), bool)
assert_type(app.limits.declare("smtp", rate="100/min").pause_for(5), datetime)
assert_type(app.tokens.create("deploy", ["viewer"], ttl=timedelta(days=90)).secret, str)
assert_type(app.audit.verify(kept=(7, "")), ChainVerified)
assert_type(app.queues.pause("mail", by="ada"), tuple[Pause, ...])
app.tenants.drain(5, timeout=60)

flow = app.workflow("onboard", idempotency_key="onboard-7")
summed = flow.add(add.bind(1))
greeted = flow.add(greet.bind("Ada"), after=[summed], on_failure="continue", name="first")
assert_type(summed, NodeRef[int])
assert_type(summed.result, int)
assert_type(greeted.result, str)
flow.add(add.bind(summed.result, b=flow.add(add.bind(2)).result))
flow.add(tidy.bind(), after=flow.group(greet.bind("Bob"), tally.bind({"a": summed.result})))
assert_type(flow.add(app.chain(add.bind(1), add.bind(2)), name="part"), PartRef)
assert_type(flow.chain(add.bind(1), add, greet.using(priority="high"), after=[summed]), list[NodeRef[Any]])
assert_type(flow.gather([add.bind(1), summed, add], into=total, after=[summed]), NodeRef[int])
assert_type(flow.gather([summed], into=greet.bind("all"), on_failure="continue").result, str)
assert_type(app.chain(add.bind(1), add, name="sums"), WorkflowBuilder)
assert_type(app.group(add.bind(1), add.bind(2), running=2).then(total).then(add.bind(1)), GroupBuilder)
assert_type(app.workflow("import", running=3), WorkflowBuilder)
total_all = app.map(greet, into=total, limit=5, on_failure="continue", name="totals")
assert_type(total_all, SyncTask[[Sequence[Any]], int])
assert_type(flow.add(total_all.bind(["Ada"])), NodeRef[int])
handle = flow.enqueue(conn=object())
assert_type(handle, WorkflowHandle)
assert_type(handle.result(summed), int)
assert_type(handle.result(greet, timeout=5), str)
assert_type(handle.result(flow.add(index.bind(7))), str)
assert_type(handle.status(), Workflow)
assert_type(handle.nodes(), tuple[Node, ...])
assert_type(handle.retry(from_=summed, by="ada"), Workflow)
batch = app.batch("import", on_success=greet.bind("all")).add_many(add.bind(n) for n in range(3)).enqueue()
assert_type(batch, BatchHandle)
assert_type(batch.progress(), BatchProgress)
assert_type(batch.add(add.bind(3), greet.bind("Ada")), int)


@app.task
def fulfil(order: int) -> str:
    assert_type(step("sum", add, order, b=3), int)
    assert_type(step.using(retry=Retry(max_attempts=3))("text", str, order), str)
    assert_type(wait_for("paid", key=order, timeout=timedelta(days=7), type=int), int)
    assert_type(wait_for("paid", timeout=5, type=int, default=None), int | None)
    assert_type(current_job().workflow.add(greet.bind("Ada")).result, str)
    sleep(days=3)
    return "done"


@app.task
async def afulfil(order: int) -> str:
    assert_type(await astep("greet", greet, "Ada"), str)
    assert_type(await astep("plain", len, "Ada"), int)
    assert_type(await await_for("paid", key="k", timeout=5, type=int), int)
    assert_type((await current_job().workflow.aadd(add.bind(1))).result, int)
    await asleep(minutes=5)
    return "done"


for job in app.jobs.list(status=("pending", "failed"), queue="mail", limit=10, tenant=1).jobs:
    assert_type(job, Job)
for letter in app.dead_letters.list(status="pending_review", acknowledged=False).dead_letters:
    assert_type(app.dead_letters.reprocess(letter, by="ada").job, Job)
