"""`app.jobs.search`: what no index helps to find, in bounded steps."""

from __future__ import annotations

import pytest

from fairlane import Fairlane, FakeClock
from fairlane.client.admin import jobs
from fairlane.client.rights import holding
from fairlane.core.chance import FixedChance
from fairlane.errors import InvalidOption, RoleMissing


def shop() -> Fairlane:
    app = Fairlane("memory://", clock=FakeClock(), chance=FixedChance(7), profile="development")

    @app.task(name="mail.send")
    def send(user: dict[str, int | str | bool], tags: list[str], big: int = 0) -> None: ...

    for number in range(450):
        send.using(tenant="acme" if number % 2 else "globex").enqueue(
            user={"id": number % 10, "name": f"Ada {number}", "vip": number == 7, "of.dots": 1},
            tags=["a", f"t{number}"],
            big=2**70 + number,
        )
    return app


@pytest.mark.parametrize(
    ("args", "count"),
    [
        ({"user.id": "3"}, 45),
        ({"user.id": "3", "user.name": "Ada 13"}, 1),
        ({"user.vip": "true"}, 1),
        ({"tags.1": "t44"}, 1),
        ({"tags.9": "t44"}, 0),
        ({"user": "3"}, 0),
        ({"big": str(2**70 + 5)}, 1),
        ({"user.name": "3"}, 0),
        ({"user.id": "03"}, 0),
    ],
)
def test_arguments_are_found_by_their_path(args: dict[str, str], count: int) -> None:
    found = shop().jobs.search(args=args, limit=200)
    assert (len(found.jobs), found.looked_at) == (count, 450)


def test_a_search_looks_at_a_bounded_number_and_says_where_to_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    app = shop()
    monkeypatch.setattr(jobs, "SEARCHED_JOBS", 200)
    found, before, calls = [], None, 0
    while calls == 0 or before is not None:
        page = app.jobs.search(args={"user.id": "3"}, before=before, limit=7)
        found += page.jobs
        before, calls = page.next, calls + 1
        assert page.looked_at <= 400
        assert len(page.jobs) <= 7
    assert [job.seq for job in found] == sorted({job.seq for job in found}, reverse=True)
    assert len(found) == 45
    monkeypatch.setattr(jobs, "SEARCHED_BYTES", 10)
    assert app.jobs.search(args={"user.id": "3"}).looked_at == 200


def test_errors_are_found_by_a_part_of_them_and_only_by_those_who_may_see_them() -> None:
    app = shop()
    job = app.jobs.list(tenant="acme", limit=1).jobs[0]
    app.jobs.fail(job.id, "Connection REFUSED by host", retry_delay=60, by="eve")
    assert [one.id for one in app.jobs.search(error="refused").jobs] == [job.id]
    assert [one.id for one in app.jobs.search(error="failedbyhand", tenant="acme").jobs] == [job.id]
    assert app.jobs.search(error="refused", tenant="globex").jobs == ()
    with holding(("viewer",)), pytest.raises(RoleMissing):
        app.jobs.search(error="refused")
    app.jobs.bury(job.id, "refused again", by="eve")
    with holding(("operator",)):
        assert app.jobs.search(error="refused").jobs == ()
    with pytest.raises(InvalidOption):
        app.jobs.search(error=7)  # type: ignore[arg-type]
