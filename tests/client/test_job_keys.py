"""Keys of jobs as an application gives them: from parameters, by a function, for one call; and what people do there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from fairlane import DuplicateJob, Fairlane, FakeClock, InvalidOption, InvalidState, JobKey, Rate, SyncTask
from fairlane.client.admin.explanation import Reason
from fairlane.core.limits import NO_LIMIT
from fairlane.testing import run_due

pytestmark = pytest.mark.requirement("D24")

Make = Callable[..., Fairlane]
ORDER = UUID("0199f2a0-0000-7000-8000-00000000002a")


def key_of(app: Fairlane, task: SyncTask[..., Any], *args: Any, **kwargs: Any) -> JobKey | None:
    """The key that this call would be enqueued with."""
    bound = task.bind(*args, **kwargs)
    return app.runtime.preparer.bound_job(bound.definition, bound.options, bound.args, bound.payload).key


def task_with(app: Fairlane, key: Any, **options: Any) -> SyncTask[..., Any]:
    @app.task(name="sync", key=key, **options)
    def sync(customer_id: int | str | None = 7, shop: str | None = "berlin", order_id: UUID | None = None) -> None: ...

    return sync


# From the arguments.


@pytest.mark.parametrize(
    ("parts", "args", "value"),
    [
        ("customer_id", {"customer_id": 42}, "customer:42"),
        ("customer_id", {"customer_id": "a:b"}, "customer:a:b"),
        ("order_id", {"order_id": ORDER}, f"order:{ORDER}"),
        ("customer_id", {"customer_id": None}, None),
        ("customer_id", {}, "customer:7"),
        ("shop", {"shop": "rome"}, "shop:rome"),
        (("shop", "customer_id"), {"customer_id": 42}, "shop-customer:berlin:42"),
        (["shop", "customer_id"], {"shop": "a:b", "customer_id": "c\\"}, "shop-customer:a\\:b:c\\\\"),
        (("shop", "customer_id"), {"shop": None}, None),
        (lambda shop, **_: f"shop:{shop}", {}, "shop:berlin"),
        (lambda shop, **_: shop and f"shop:{shop}", {"shop": None}, None),
    ],
)
def test_a_key_is_made_of_arguments(app: Fairlane, parts: Any, args: dict[str, Any], value: str | None) -> None:
    key = key_of(app, task_with(app, parts), **args)
    assert key == (None if value is None else JobKey(value=value))


def test_two_parameters_never_make_one_key_of_two_pairs(app: Fairlane) -> None:
    sync = task_with(app, ("shop", "customer_id"))
    pairs = [("a", "b:c"), ("a:b", "c"), ("a\\", ":b"), ("a", "\\:b"), ("a\\:b", ""), ("", "a")]
    keys = {key_of(app, sync, shop=shop, customer_id=customer) for shop, customer in pairs}
    assert len(keys) == len(pairs)


@pytest.mark.parametrize("value", [1.5, True, [1], {"a": 1}])
def test_a_value_that_names_nobody_is_refused_where_the_job_is_enqueued(app: Fairlane, value: Any) -> None:
    @app.task(name="sync", key="customer_id")
    def sync(customer_id: Any) -> None: ...

    with pytest.raises(InvalidOption, match=r'"customer_id" in the key of task "sync".*a whole number, text, a UUID'):
        sync.enqueue(value)


def test_a_function_that_fails_or_returns_no_text_enqueues_nothing(app: Fairlane) -> None:
    with pytest.raises(InvalidOption, match='text such as "shop:berlin", or None'):
        key_of(app, task_with(app, lambda customer_id, **_: customer_id))

    @app.task(name="fails", key=lambda **args: str(args["nobody"]))
    def fails() -> None: ...

    with pytest.raises(KeyError) as raised:
        fails.enqueue()
    assert raised.value.__notes__ == ['raised by the key of task "fails"; nothing was enqueued']


def test_a_batch_task_has_a_key_of_the_argument_of_each_job(app: Fairlane) -> None:
    @app.task(batch=10, key="users")
    def greet(users: list[int]) -> None: ...

    assert key_of(app, greet, 7) == JobKey(value="users:7")


# What a task says, and one call.


def test_places_and_rate_of_a_task_with_a_key_are_those_of_each_key(app: Fairlane) -> None:
    sync = task_with(app, "customer_id", running=3, rate="10/s", on_conflict="replace")
    assert key_of(app, sync) == JobKey(value="customer:7", running=3, rate=Rate(10, 1.0), on_conflict="replace")
    assert not [limit for limit in app.limits.declared if limit.kind in ("type", "named", "key")]


def test_a_key_may_let_any_number_run(app: Fairlane) -> None:
    key = key_of(app, task_with(app, "customer_id", running=-1, rate="10/s"))
    assert key == JobKey(value="customer:7", running=NO_LIMIT, rate=Rate(10, 1.0))


def test_without_a_key_places_and_rate_are_the_tasks(app: Fairlane) -> None:
    @app.task(name="plain", running=3, rate="10/s")
    def plain() -> None: ...

    assert key_of(app, plain) is None
    [limit] = [limit for limit in app.limits.declared if limit.kind == "type"]
    assert (limit.running, limit.rate) == (3, Rate(10, 1.0))


def test_one_call_has_a_key_of_its_own_on_the_terms_of_its_task(app: Fairlane) -> None:
    sync = task_with(app, "customer_id", running=3)
    assert key_of(app, sync.using(key="import:42")) == JobKey(value="import:42", running=3)
    assert key_of(app, sync.using(key=None)) is None
    assert key_of(app, sync.using(key="import:42").using(key=None)) is None
    whole = JobKey(value="import:42", running=9, ordered=False)
    assert key_of(app, sync.using(key=whole)) == whole
    assert key_of(app, sync.using(on_conflict="discard")) == JobKey(
        value="customer:7", running=3, on_conflict="discard"
    )


def test_one_call_of_a_task_without_a_key_has_one_with_one_place(app: Fairlane) -> None:
    @app.task(name="plain")
    def plain(n: int = 0) -> None: ...

    assert key_of(app, plain.using(key="import:42")) == JobKey(value="import:42")
    ordered = plain.using(key="import:42", ordered=True, on_conflict="replace")
    assert key_of(app, ordered) == JobKey(value="import:42", ordered=True, on_conflict="replace")
    assert key_of(app, plain) is None


def test_a_rate_of_one_call_is_read_as_anywhere(app: Fairlane) -> None:
    @app.task(name="plain")
    def plain() -> None: ...

    key = JobKey(value="import:42", rate="10/s")  # type: ignore[arg-type]
    assert key_of(app, plain.using(key=key)) == JobKey(value="import:42", rate=Rate(10, 1.0))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"key": "costumer_id"}, 'key of task "sync" .*expected a parameter, out of customer_id, shop.* "customer_id"'),
        ({"key": ("shop", "id")}, "expected a parameter"),
        ({"key": ()}, "at least one parameter"),
        ({"key": "shop", "ordered": True, "running": 2}, "running .*an ordered key runs one job at a time"),
        ({"key": "shop", "ordered": 1}, "ordered .*True or False"),
        ({"key": "shop", "on_conflict": "drop"}, "on_conflict .*wait, discard, replace, cancel_running"),
        ({"key": "shop", "running": "2"}, "running .*a whole number"),
        ({"ordered": True}, 'ordered of task "sync" .*key=…, too'),
        ({"on_conflict": "discard"}, 'on_conflict of task "sync" .*key=…, too'),
    ],
)
def test_what_a_task_says_wrong_is_refused_where_it_is_declared(
    app: Fairlane, options: dict[str, Any], said: str
) -> None:
    def sync(customer_id: int, shop: str) -> None: ...

    with pytest.raises(InvalidOption, match=said):
        app.task(name="sync", **options)(sync)
    assert "sync" not in app.tasks


def test_a_coroutine_makes_no_keys(app: Fairlane) -> None:
    async def of_shop(**_: Any) -> str:
        return "shop:berlin"

    with pytest.raises(InvalidOption, match="a plain function"):
        task_with(app, of_shop)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ordered": True}, "ordered .*a key, too"),
        ({"on_conflict": "discard"}, "on_conflict .*a key, too"),
        ({"key": ""}, "key .*text"),
        ({"key": ":42"}, "a name, and a value behind a colon"),
        ({"key": 42}, "key .*text"),
        ({"key": "import:42", "ordered": "yes"}, "True or False"),
        ({"key": "import:42", "on_conflict": "drop"}, "wait, discard, replace, cancel_running"),
        ({"key": JobKey(value="import:42", running=2), "ordered": True}, "an ordered key runs one job at a time"),
    ],
)
def test_what_one_call_says_wrong_is_refused(app: Fairlane, options: dict[str, Any], said: str) -> None:
    @app.task(name="plain")
    def plain() -> None: ...

    with pytest.raises(InvalidOption, match=said):
        plain.using(**options)
    with pytest.raises(InvalidOption, match=said):
        app.tasks.enqueue("unknown.here", {}, **options)


def test_a_task_with_several_places_is_not_ordered_for_one_call(app: Fairlane) -> None:
    with pytest.raises(InvalidOption, match="an ordered key runs one job at a time"):
        task_with(app, "shop", running=2).using(ordered=True)


@pytest.mark.parametrize("kind", ["workflow", "batch"])
def test_jobs_that_others_wait_for_are_not_discarded_or_replaced(app: Fairlane, kind: str) -> None:
    sync = task_with(app, "customer_id", on_conflict="discard")
    flow: Any = app.workflow("flow") if kind == "workflow" else app.batch("batch")
    with pytest.raises(InvalidOption, match='"wait" for a node or a job of a batch'):
        flow.add(sync.bind(1))
    flow.add(sync.using(on_conflict="wait").bind(1))
    flow.add(sync.using(key=None).bind(2))


def test_the_result_of_another_node_makes_no_key(app: Fairlane) -> None:
    sync = task_with(app, "shop")
    flow = app.workflow("flow")
    first = flow.add(sync.bind(1))
    flow.add(sync.bind(2, shop=first.result))
    with pytest.raises(InvalidOption, match="known where the job is enqueued"):
        flow.enqueue()


# In the store.


def test_each_row_of_a_map_has_its_own_key(app: Fairlane) -> None:
    sync = task_with(app, "customer_id")
    assert sync.enqueue_map([(1,), (2,), (None,), (1,)]) == 4
    handles = app.enqueue_many([sync.bind(3), sync.bind(4), sync.using(key="import:42").bind(5)])
    assert [handle.job().key for handle in handles] == ["customer:3", "customer:4", "import:42"]
    keys = [job.key for job in reversed(app.jobs.list().jobs)]
    assert keys == ["customer:1", "customer:2", None, "customer:1", "customer:3", "customer:4", "import:42"]


def test_a_map_counts_what_was_enqueued_and_not_what_was_discarded(app: Fairlane) -> None:
    sync = task_with(app, "customer_id", on_conflict="discard")
    assert sync.enqueue_map([(1,), (1,), (2,), (2,), (None,)], chunk=3) == 3
    handles = app.enqueue_many([sync.using(key="import:42").bind(n) for n in range(3)])
    assert [handle.duplicate for handle in handles] == [False, True, True]


def test_a_later_call_does_not_have_the_key_of_the_one_before(app: Fairlane) -> None:
    sync = task_with(app, "customer_id")
    assert [sync.enqueue(n).job().key for n in (1, 2, None, 1)] == ["customer:1", "customer:2", None, "customer:1"]


def test_a_discarded_job_is_answered_with_the_one_that_is_there(app: Fairlane) -> None:
    sync = task_with(app, "customer_id", on_conflict="discard")
    first, again, other = sync.enqueue(1), sync.enqueue(1), sync.enqueue(2)
    assert [(handle.duplicate, handle.id) for handle in (first, again, other)] == [
        (False, first.id),
        (True, first.id),
        (False, other.id),
    ]
    with pytest.raises(DuplicateJob, match=f"a job with the key 'customer:1' is there already: {first.id}") as raised:
        sync.using(on_duplicate="raise").enqueue(1)
    assert (raised.value.existing_id, raised.value.key) == (first.id, "job")


def test_a_job_replaces_the_one_that_waits(app: Fairlane) -> None:
    sync = task_with(app, "customer_id", on_conflict="replace")
    first, second = sync.enqueue(1), sync.enqueue(1)
    assert (first.status(), second.status()) == ("cancelled", "pending")


def test_a_schedule_gives_its_jobs_the_key_of_its_task(app: Fairlane) -> None:
    sync = task_with(app, ("shop", "customer_id"))
    app.schedules.add("nightly", sync.bind(42), cron="0 3 * * *")
    assert app.schedules.run("nightly").job().key == "shop-customer:berlin:42"
    with pytest.raises(InvalidOption, match='key of schedule "daily"'):
        app.schedules.add("daily", sync.using(key="import:42").bind(), cron="0 3 * * *")


def test_a_schedule_whose_key_cannot_be_made_is_refused_when_it_is_added(app: Fairlane) -> None:
    sync = task_with(app, lambda shop, **_: shop)
    with pytest.raises(InvalidOption, match="a name, and a value behind a colon"):
        app.schedules.add("nightly", sync.bind(shop=":"), cron="0 3 * * *")


def test_keys_are_listed_for_people(app: Fairlane) -> None:
    sync = task_with(app, "customer_id")
    for n in (1, 2, 2, 2, 1):
        sync.using(tenant="acme").enqueue(n)
    sync.using(tenant="globex", key="import:7").enqueue()
    found = app.limits.keys()
    assert [(use.tenant, use.key, use.waiting, use.in_use) for use in found] == [
        ("acme", "customer:2", 3, 0),
        ("acme", "customer:1", 2, 0),
        ("globex", "import:7", 1, 0),
    ]
    assert [use.key for use in app.limits.keys(name="import")] == ["import:7"]
    assert [use.key for use in app.limits.keys(tenant="acme", key="customer:1")] == ["customer:1"]
    assert [use.key for use in app.limits.keys(limit=1)] == ["customer:2"]
    with pytest.raises(InvalidOption, match='the name of keys, "customer"'):
        app.limits.keys(name="customer:1")


def test_people_limit_each_key_of_a_name(app: Fairlane, clock: FakeClock) -> None:
    sync = task_with(app, "customer_id")
    with pytest.raises(InvalidOption, match='the name of keys, "customer": a limit is over every key'):
        app.limits.set(key="customer:1", running=2)
    with pytest.raises(InvalidOption, match="not with a task, a name or a key"):
        app.limits.set(key="customer", tenant="acme", running=2)
    [kept] = app.limits.set(key="customer", running=2, by="ada")
    assert (kept.limit.kind, kept.limit.name, kept.limit.running) == ("key", "customer", 2)
    sync.enqueue(1)
    assert app.limits.keys()[0].running == 2
    assert app.limits.clear(key="customer")
    assert app.limits.keys()[0].running == 1
    assert app.limits.pause(timedelta(seconds=30), key="customer") == clock.now() + timedelta(seconds=30)


def why(app: Fairlane, job: Any) -> Reason:
    return app.jobs.why(job).reasons[0]


def test_why_and_a_place_freed_by_hand(app: Fairlane, clock: FakeClock) -> None:
    sync = task_with(app, "customer_id")
    first, second, third = (sync.enqueue(1) for _ in range(3))
    claimed = app.jobs.claim(["default"], lease=600)
    assert claimed is not None
    number = first.job().seq
    clock.advance(3)
    reason = why(app, third)
    assert reason.says == (
        f"it is second of 2 at customer:1, which runs 1 at a time; job {number} has its place, running for 3.0 s"
    )
    assert reason.helps == f"fairlane limits set --key customer --running N, or fairlane jobs free-place {number}"
    with pytest.raises(InvalidState, match=r"cannot free the place of job .*: it is without one"):
        app.jobs.free_place(second)
    assert app.jobs.free_place(first, by="ada", notes="it hangs").key == "customer:1"
    assert app.jobs.claim(["default"], lease=600) is not None
    assert second.status() == "processing"
    [record] = [record for record in app.audit.list().records if record.action == "job_place_free"]
    assert (record.by, record.notes) == ("ada", "it hangs")


def test_a_dead_letter_holds_the_line_of_an_ordered_key_until_it_is_closed(app: Fairlane) -> None:
    @app.task(name="push", key="shop", ordered=True, max_attempts=1)
    def push(shop: str, item: int) -> None:
        raise ValueError(item)

    handles = [push.using(tenant="acme").enqueue("berlin", item) for item in range(3)]
    run_due(app)
    assert [handle.status() for handle in handles] == ["dead", "pending", "pending"]
    letter = handles[0].job().seq
    assert why(app, handles[2]).says == (
        f"it is second of 2 at shop:berlin, which runs one at a time, in order; dead letter {letter} holds the line "
        "until somebody deals with it"
    )
    app.dead_letters.resolve(letter, by="ada", notes="by hand")
    run_due(app)
    assert [handle.status() for handle in handles] == ["dead", "dead", "pending"]
