"""What an interactive user sees: signatures, help, and objects that show themselves."""

from __future__ import annotations

import inspect
import pydoc

import pytest

from fairlane import Fairlane, NonRetryable
from fairlane.client.steps import Verbs
from fairlane.testing import run_due


@pytest.fixture
def app() -> Fairlane:
    app = Fairlane("memory://")

    @app.task(name="mail.send")
    def send(to: str) -> None:
        raise NonRetryable(f"<b>{to}</b> does not exist")

    send.using(tenant="acme").enqueue("bob")
    run_due(app)
    return app


def verbs(app: Fairlane) -> list[tuple[str, object]]:
    groups = [value for value in vars(app).values() if isinstance(value, Verbs)]
    assert len(groups) > 10
    return [
        (f"{type(group).__name__}.{name}", getattr(group, name))
        for group in (app, *groups)
        for name in dir(type(group))
        if not name.startswith("_") and f"a{name}" in dir(type(group))
    ]


def test_every_verb_has_its_real_signature(app: Fairlane) -> None:
    for name, verb in verbs(app):
        shown = str(inspect.signature(verb))  # type: ignore[arg-type]
        assert "Steps" not in shown, name
        assert "Unpack" not in shown, name
        assert verb.__name__ == name.rpartition(".")[2]  # type: ignore[attr-defined]
        assert "._" not in verb.__qualname__, name  # type: ignore[attr-defined]


def test_help_shows_what_a_verb_takes_and_returns(app: Fairlane) -> None:
    said = " ".join(pydoc.render_doc(app.jobs.cancel, renderer=pydoc.plaintext).split())
    # From Python 3.13 on it stands in several lines.
    assert "job: JobLike, *, by: str = ..., notes: str | None = ..., tenant: str | int | None = ..." in said
    assert "-> Job method" in said
    assert "Cancel a waiting job; ask a running one to stop." in said
    bound = inspect.signature(app.jobs.fail).bind("x", "because", by="olga")
    assert bound.arguments == {"job": "x", "reason": "because", "by": "olga"}
    with pytest.raises(TypeError, match="unexpected keyword argument 'buy'"):
        inspect.signature(app.jobs.cancel).bind("x", buy="olga")
    assert list(inspect.signature(type(app.jobs).acancel).parameters)[:2] == ["self", "job"]


def test_objects_say_what_they_are(app: Fairlane) -> None:
    assert "cancel" in repr(app.jobs)
    [job] = app.jobs.list().jobs
    assert repr(job) == f"<Job 1 {job.id} mail.send of acme: dead, 1 of 5 attempts failed, NonRetryable>"
    [letter] = app.dead_letters.list().dead_letters
    assert repr(letter).startswith("<DeadLetter 1 mail.send of acme: pending_review, NonRetryable: <b>bob</b>")
    assert "1 exceptions of jobs" in repr(app.runtime.last_exceptions)
    assert "mail.send of acme: NonRetryable" in repr(app.runtime.last_exceptions)


def test_listings_are_tables_in_a_notebook(app: Fairlane) -> None:
    html = app.jobs.list()._repr_html_()
    assert "<th>status</th>" in html
    assert "<td>mail.send</td>" in html
    assert "&lt;b&gt;bob&lt;/b&gt;" in html
    assert "<b>" not in html
    app.jobs.list(limit=1)
    for page in (app.dead_letters.list(), app.tenants.list(), app.workers.list(), app.events.list(), app.audit.list()):
        assert page._repr_html_().startswith("<table>")
