"""Registering functions as tasks."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fairlane import AsyncTask, Breaker, Fairlane, InvalidOption, QueuePolicy, Retry, SyncTask, UnknownTask
from fairlane.stores.sqlite import MemoryStore
from fairlane.testing import run_due

if TYPE_CHECKING:
    from decimal import Decimal


def test_a_task_is_still_a_plain_function(app: Fairlane) -> None:
    @app.task
    def add(a: int, b: int = 2) -> int:
        """Adds."""
        return a + b

    @app.task(name="later")
    async def later(a: int) -> int:
        return a

    assert add(1) == 3
    assert asyncio.run(later(4)) == 4
    assert (add.__name__, add.__doc__) == ("add", "Adds.")
    assert isinstance(add, SyncTask)
    assert isinstance(later, AsyncTask)
    assert app.jobs.get("00000000-0000-7000-8000-000000000000") is None


def test_a_task_is_named_after_its_module_and_function(app: Fairlane) -> None:
    @app.task
    def add(a: int) -> int:
        return a

    assert add.name.endswith("test_tasks.test_a_task_is_named_after_its_module_and_function.add")
    assert app.tasks[add.name] is add


def test_a_module_gives_its_tasks_the_same_names_run_or_imported(tmp_path: Path) -> None:
    (tmp_path / "mail.py").write_text(
        "from fairlane import Fairlane\n"
        "app = Fairlane('memory://')\n"
        "@app.task\n"
        "def send(a: int) -> None: ...\n"
        "if __name__ in ('__main__', 'mail'): print(send.name)\n"
    )
    for command in (["mail.py"], ["-m", "mail"], ["-c", "import mail"]):
        run = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert run.stdout == "mail.send\n"
    text = (tmp_path / "mail.py").read_text()
    run = subprocess.run([sys.executable, "-"], input=text, capture_output=True, text=True, check=True)
    assert run.stdout == "main.send\n"


def test_two_tasks_cannot_have_one_name(app: Fairlane) -> None:
    app.task(name="add")(lambda a: a)
    with pytest.raises(InvalidOption, match="is registered under it"):
        app.task(name="add")(lambda b: b)
    assert list(app.tasks) == ["add"]


@pytest.mark.requirement("L3", "L6")
def test_an_unknown_task_is_named_with_its_nearest_neighbour(app: Fairlane) -> None:
    app.task(name="mail.send_digest")(lambda: None)
    with pytest.raises(UnknownTask, match=r'no task named "mail\.send".*Nearest: "mail\.send_digest"'):
        app.tasks["mail.send"]
    assert app.tasks.get("mail.send") is None
    assert "mail.send" not in app.tasks


def takes_positional(a: int, *rest: int) -> None: ...
def takes_keywords(**rest: int) -> None: ...
def takes_nameless(a: int, /) -> None: ...
def takes_socket(a: asyncio.AbstractEventLoop) -> None: ...
def returns_socket() -> asyncio.AbstractEventLoop: ...
def one(a: int) -> int:
    return a


def yields(a: list[int]) -> Iterator[int]:
    yield from a


async def yields_later(a: list[int]) -> AsyncIterator[int]:
    for one in a:
        yield one


NO_TASKS: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (takes_positional, {}, "stored by name"),
    (takes_keywords, {}, "stored by name"),
    (takes_nameless, {}, "stored by name"),
    (takes_socket, {}, "a type that JSON can carry"),
    (returns_socket, {}, "a type that JSON can carry"),
    (lambda a: a, {}, r"@app\.task\(name=…\)"),
    (int, {}, "expected a function"),
    (one, {"name": "os:system; rm"}, "task name"),
    (one, {"name": "ｍail"}, "task name"),
    (one, {"name": "x" * 129}, "task name"),
    (one, {"name": ""}, "task name"),
    (one, {"queue": "a queue"}, "queue"),
    (one, {"category": "notification"}, 'Nearest: "notifications"'),
    (one, {"timeout": 0}, "timeout"),
    (one, {"timeout": timedelta(days=30)}, "timeout"),
    (one, {"timeout": float("nan")}, "timeout"),
    (one, {"retry": 3}, "Retry"),
    (one, {"priority": -1}, "priority"),
    (one, {"priority": True}, "priority"),
    (one, {"max_attempts": 0}, "max_attempts"),
    (one, {"max_attempts": 2.5}, "max_attempts"),
    (one, {"version": 0}, "version"),
    (one, {"required": ("b",)}, "out of a"),
    (one, {"required": "a"}, "a tuple of argument names"),
    (one, {"refs": ("b",)}, "out of a"),
    (one, {"sensitive": "hide"}, "one of refuse, redact, allow"),
    (one, {"errors": {ValueError: "fatal"}}, "one of transient"),
    (one, {"que": "x"}, 'Nearest: "queue"'),
    (yields, {}, "a function that returns, not a generator"),
    (yields_later, {}, "a function that returns, not a generator"),
    (yields, {"batch": 5}, "a function that returns, not a generator"),
    (yields_later, {"batch": 5, "name": "x"}, "a function that returns, not a generator"),
]


@pytest.mark.parametrize(("function", "options", "problem"), NO_TASKS)
def test_what_cannot_be_a_task_is_refused_at_the_decorator(
    app: Fairlane, function: Callable[..., Any], options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidOption, match=problem):
        app.task(**options)(function)
    assert not app.tasks


@pytest.mark.requirement("Q1")
def test_an_unknown_priority_label_is_refused(app: Fairlane) -> None:
    with pytest.raises(ValueError, match='no priority named "urgent"'):
        app.task(priority="urgent")(one)
    with pytest.raises(ValueError, match='no priority named "urgent"'):
        app.task(one).using(priority="urgent")


def test_an_annotation_may_name_what_is_defined_further_down(app: Fairlane) -> None:
    greet = app.task(greeting_of)
    handle = greet.enqueue(person=Person("Ada"))
    assert '"Ada"' in handle.job().payload


def test_an_annotation_that_never_exists_is_explained(app: Fairlane) -> None:
    task = app.task(price)
    with pytest.raises(InvalidOption, match="outside `if TYPE_CHECKING:`"):
        task.enqueue(amount=1)


def price(amount: Decimal) -> None: ...


def greeting_of(person: Person) -> str:
    return f"Hello {person.name}"


from dataclasses import dataclass  # noqa: E402


@dataclass
class Person:
    name: str


@pytest.mark.requirement("W1")
def test_every_task_has_a_category_its_own_the_route_or_the_default(make_app: Callable[..., Fairlane]) -> None:
    app = make_app(categories=("mail", "rest"), default_category="rest", category_routes={"mail.*": "mail"})
    app.task(name="mail.send")(lambda: None)
    app.task(name="other")(lambda: None)
    app.task(name="own", category="mail")(lambda: None)
    assert {name: task.definition.category for name, task in app.tasks.items()} == {
        "mail.send": "mail",
        "other": "rest",
        "own": "mail",
    }


def test_a_task_routed_to_a_queue_goes_there_unless_it_names_one(make_app: Callable[..., Fairlane]) -> None:
    app = make_app(routes={"mail.*": "critical"})
    assert app.task(name="mail.send")(lambda: None).enqueue().job().queue == "critical"
    assert app.task(name="mail.bulk", queue="bulk")(lambda: None).enqueue().job().queue == "bulk"
    assert app.task(name="other")(lambda: None).enqueue().job().queue == "default"


def test_attempts_come_from_the_call_the_task_the_queue(make_app: Callable[..., Fairlane]) -> None:
    app = make_app(queues={"mine": QueuePolicy(name="mine", retry=Retry(max_attempts=4))})
    plain = app.task(name="plain")(lambda: None)
    patient = app.task(name="patient", retry=Retry(max_attempts=9))(lambda: None)
    stubborn = app.task(name="stubborn", retry=Retry(max_attempts=9), max_attempts=2)(lambda: None)
    assert plain.enqueue().job().max_attempts == 5
    assert plain.using(queue="mine").enqueue().job().max_attempts == 4
    assert plain.using(queue="unheard.of").enqueue().job().max_attempts == 5
    assert patient.enqueue().job().max_attempts == 9
    assert stubborn.enqueue().job().max_attempts == 2
    assert stubborn.using(retry=Retry(max_attempts=7)).enqueue().job().max_attempts == 7
    assert stubborn.using(retry=Retry(max_attempts=7), max_attempts=3).enqueue().job().max_attempts == 3


def test_a_renamed_task_runs_the_jobs_of_its_old_names() -> None:
    store = MemoryStore()
    old, app = Fairlane(store=store), Fairlane(store=store)
    before = old.task(name="mail.send")(lambda to: None).enqueue(to="ann")

    @app.task(name="mail.deliver", aliases=["mail.send", "mail.post"])
    def deliver(to: str) -> str:
        return f"to {to}"

    after, by_old_name = deliver.enqueue("ben"), app.tasks.enqueue("mail.post", {"to": "cy"})
    assert len(run_due(app)) == 3
    assert [app.jobs.handle(job.id).result(timeout=0) for job in (before, after, by_old_name)] == [
        "to ann",
        "to ben",
        "to cy",
    ]
    assert [job.job().type for job in (before, after)] == ["mail.send", "mail.deliver"]


def test_an_alias_that_is_taken_or_repeated_is_refused_and_nothing_registered(app: Fairlane) -> None:
    app.task(name="a")(lambda: None)
    app.task(name="b", aliases=["old-b"])(lambda: None)
    for name, aliases, problem in [
        ("c", ["a"], "an alias of task \"c\" = 'a': expected a name of its own"),
        ("c", ["old-b"], "is registered under it"),
        ("old-b", [], "is registered under it"),
        ("c", ["c"], "each name once"),
        ("c", ["d", "d"], "each name once"),
        ("c", "d", "a list of the names"),
        ("c", [""], "task name"),
    ]:
        with pytest.raises(InvalidOption, match=re.escape(problem)):
            app.task(name=name, aliases=aliases)(lambda: None)
    assert set(app.tasks) == {"a", "b", "old-b"}


def test_limits_of_a_task_hold_for_the_jobs_of_all_its_names(app: Fairlane) -> None:
    app.task(name="new", aliases=["old"], running=1, limit="shared")(lambda: None)
    found = {(limit.kind, limit.name): limit for limit in app.limits.declared}
    assert found["named", "new"].running == 1
    assert found["named", "new"].types == found["named", "shared"].types == ("new", "old")


def test_an_unknown_task_called_by_its_name_is_warned_of_once_and_enqueued(
    app: Fairlane, caplog: pytest.LogCaptureFixture
) -> None:
    by_name = app.tasks.enqueue
    by_name("shop.sned", {})
    assert caplog.messages == []  # it may be the only way: this application has no tasks of its own
    app.task(name="shop.send")(lambda: None)
    for _ in range(2):
        by_name("shop.send", {})
        by_name("shop.sned", {})
        asyncio.run(app.tasks.aenqueue("billing.charge", {}))
    said = "is unknown here: no task of this application has that name. Does a worker of another run it?"
    assert caplog.messages == [f'task "shop.sned" {said} Nearest: "shop.send".', f'task "billing.charge" {said}']
    assert len(app.jobs.list().jobs) == 7


ELSEWHERE: list[tuple[str, Callable[[Fairlane, Any], Any], str]] = [
    ("enqueue_many of tasks", lambda app, f: app.enqueue_many([f, f]), r"enqueue_many\[0\] = <.*`task\.bind\(…\)`"),
    (
        "enqueue_many of one call",
        lambda app, f: app.enqueue_many(f.bind()),
        r"a list of calls: `enqueue_many\(\[task\.",
    ),
    ("enqueue_many of a task", lambda app, f: app.enqueue_many(f), "a list of calls"),
    ("enqueue_many of nothing", lambda app, f: app.enqueue_many(None), "a list of calls"),
    ("enqueue_many of handles", lambda app, f: app.enqueue_many([f.enqueue()]), r"task\.bind"),
    ("aenqueue_many of tasks", lambda app, f: asyncio.run(app.aenqueue_many([f])), r"task\.bind"),
    ("task.delay", lambda app, f: f.delay(), r"no attribute 'delay': task\.enqueue\(…\) makes a job"),
    ("task.enqueue_many", lambda app, f: f.enqueue_many([(1,), (2,)]), r"app\.enqueue_many\(\[task\.bind"),
    ("task.apply_async", lambda app, f: f.apply_async(args=()), r"task\.using\(delay=30\)\.enqueue"),
    ("task.send", lambda app, f: f.send(), r"task\.enqueue"),
    ("task.s", lambda app, f: f.s(), r"task\.bind"),
    ("bound.enqueue", lambda app, f: f.bind().enqueue(), r"app\.enqueue_many\(\[task\.bind\(…\), …\]\)"),
    ("app.enqueue", lambda app, f: app.enqueue(f), r"task\.enqueue\(…\) enqueues a call"),
    ("app.send_task", lambda app, f: app.send_task("t"), r"task\.enqueue\(…\)"),
    ("app.run", lambda app, f: app.run(), r"`fairlane worker module:app`"),
    ("Retry(attempts=…)", lambda app, f: Retry(attempts=3), 'Nearest: "max_attempts"'),
    ("Retry(3)", lambda app, f: Retry(3), r"Retry = \(3,\): expected options by name, as in max_attempts=…"),
    ("app.task of a name", lambda app, f: app.task("mail"), r"a function; options are given by name, as in @app\.task"),
    ("app.tasks.enqueue of a list", lambda app, f: app.tasks.enqueue("t", [1]), "a dict of the arguments by name"),
    ("QueuePolicy(slot=…)", lambda app, f: QueuePolicy(name="mail", slot=3), 'Nearest: "slots"'),
    ("Breaker(treshold=…)", lambda app, f: Breaker("smtp", treshold=3), 'Nearest: "threshold"'),
]


@pytest.mark.parametrize(("call", "says"), [case[1:] for case in ELSEWHERE], ids=[case[0] for case in ELSEWHERE])
def test_what_other_systems_call_it_says_what_to_call_here(
    app: Fairlane, call: Callable[[Fairlane, Any], Any], says: str
) -> None:
    task = app.task(name="t")(lambda: None)
    with pytest.raises((InvalidOption, AttributeError), match=says) as raised:
        call(app, task)
    assert len(str(raised.value).splitlines()) == 1


def test_an_attribute_that_nobody_knows_is_missing_as_anywhere(app: Fairlane) -> None:
    task = app.task(name="t")(lambda: None)
    for owner in (app, task, task.bind()):
        assert not hasattr(owner, "enqueue") or owner is task
        with pytest.raises(AttributeError, match=r"has no attribute 'colour'$"):
            owner.colour  # type: ignore[attr-defined]  # noqa: B018


def test_an_unknown_queue_is_warned_of_once_with_the_nearest(app: Fairlane, caplog: pytest.LogCaptureFixture) -> None:
    task = app.task(name="t", queue="mailing")(lambda: None)
    task.using(queue="mailing").enqueue()
    assert caplog.messages == []
    for _ in range(2):
        task.using(queue="mailng").enqueue()
    [said] = caplog.messages
    assert said.startswith('queue "mailng" for "t" is unknown here')
    assert said.endswith('Nearest: "mailing".')
