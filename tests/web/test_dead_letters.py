"""Failures on pages: grouped, one by one with edited arguments, many at once with their number first."""

from __future__ import annotations

import re
from html import unescape

import httpx
import pytest

from fairlane.testing import run_due
from tests.api.house import EVERY_ROLE, OWN
from tests.web.house import DashboardHouse

BIG = 2**63 + 12_345


def bounce(house: DashboardHouse, count: int) -> list[int]:
    """So many more dead letters that failed alike, newest first."""
    task = house.app.tasks["mail.bounce"].using(tenant=OWN)
    for number in range(count):
        task.enqueue(note=f"to {number}")
    run_due(house.app, limit=count + 50)
    return [letter.id for letter in house.app.dead_letters.list(tenant=OWN).dead_letters][:count]


def test_failures_that_are_alike_stand_together_and_lead_to_their_letters(
    house: DashboardHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounce(house, 3)
    job = house.app.tasks["mail.send"].using(tenant=OWN).enqueue(user_id=1)
    house.app.jobs.bury(job.id, "full", by="eve")
    cookie = house.session(EVERY_ROLE, OWN)
    groups = house.get("/failures", cookie).text
    assert sorted(re.findall(r'data-row>(\w+)</a>.*?class="num">(\d+)<', groups, re.S)) == [
        ("Buried", "1"),
        ("NonRetryable", "1"),
        ("NonRetryable", "3"),
    ]
    first = re.findall(r'href="(\./failures/letters[^"]*fingerprint[^"]*)" data-row', groups)[0].replace("&amp;", "&")
    letters = house.get(first.removeprefix("."), cookie).text
    assert len(re.findall(r"data-row", letters)) == 3
    assert "Buried" not in letters
    assert "3 jobs failed alike:" in letters
    for verb in ("reprocess", "discard"):
        [all_alike] = re.findall(rf'href="(\.\./failures/many\?[^"]*act={verb}[^"]*)"', letters)
        asked = house.get("/" + all_alike.replace("&amp;", "&").removeprefix("../"), cookie).text
        assert f"{verb.capitalize()} 3 dead letters?" in asked
    assert "The largest" not in groups
    monkeypatch.setattr("fairlane.web.pages.dead_letters.MOST_GROUPS", 2)
    assert "The largest 2 groups" in house.get("/failures", cookie).text
    assert "Nothing to review." in house.get("/failures?q=status:pending_review&tenant=nobody", house.session()).text


def test_arguments_may_be_edited_for_another_run_and_large_numbers_survive(house: DashboardHouse) -> None:
    job = house.app.tasks["mail.send"].using(tenant=OWN).enqueue(user_id=BIG)
    house.app.jobs.bury(job.id, "wrong user", by="eve")
    [letter] = [one for one in house.app.dead_letters.list(tenant=OWN).dead_letters if one.job.id == job.id]
    cookie = house.session()
    assert str(BIG) in house.get(f"/failures/letters/{letter.id}", cookie).text
    path, before = f"/failures/letters/{letter.id}/reprocess", house.facts()
    for wrong, why in (
        ("{", "JSON"),
        ("[1]", "a JSON object"),
        ('{"user_id": "x"}', "mail.send"),
        ('{"user_id": 7, "user_id": 8}', "comes twice"),
        ('{"user_id": NaN}', "JSON"),
        ("[" * 100_000, "JSON"),
    ):
        refused = house.post(path, cookie, {"payload": wrong})
        assert (refused.status_code, why in refused.text) == (422, True), wrong
    assert house.facts() == before
    made = house.post(path, cookie, {"payload": f'{{"user_id": {BIG + 1}}}', "delay_s": "60"})
    job_id = re.findall(r"jobs/([0-9a-f-]{36})", made.headers["location"])[0]
    new = house.app.jobs.get(job_id)
    assert new is not None
    assert (new.payload.replace(" ", ""), new.status) == (f'{{"user_id":{BIG + 1}}}', "pending")
    assert f"{BIG + 1}" in house.get(f"/jobs/{job_id}", cookie).text


def test_many_are_counted_before_they_are_acted_on(house: DashboardHouse) -> None:
    ids, cookie = bounce(house, 5), house.session()
    found = house.app.dead_letters.get(ids[0])
    assert found is not None
    q = f"fingerprint:{found.dead_letter.fingerprint} status:pending_review"
    nothing = house.get("/failures/many", cookie, params={"act": "discard", "q": q})
    assert "Nothing is selected" in nothing.text
    asked = house.get("/failures/many", cookie, params={"act": "discard", "q": q, "all": "1", "tenant": OWN})
    assert "Discard 5 dead letters?" in asked.text
    some = house.get("/failures/many", cookie, params={"act": "discard", "id": ids[:2]})
    assert "Discard 2 dead letters?" in some.text
    assert house.post("/failures/many", cookie, {"act": "discard", "q": q}).status_code == 422  # Without a reason.
    done = house.post("/failures/many", cookie, {"act": "discard", "id": ids[:2], "q": q, "notes": "spam"})
    page = house.get("/failures/" + done.headers["location"].partition("failures/")[2], cookie)
    assert "2 dead letters discarded." in page.text
    again = house.post("/failures/many", cookie, {"act": "reprocess", "id": ids[:3], "per_second": "0.1"})
    page = house.get("/failures/" + again.headers["location"].partition("failures/")[2], cookie)
    assert "1 dead letter reprocessed. 2 are gone, or in a state that does not allow it." in page.text
    rest = house.post("/failures/many?tenant=acme", cookie, {"act": "reprocess", "q": q, "per_second": "0.1"})
    assert "n=2" in rest.headers["location"]
    made = house.app.jobs.list(tenant=OWN, status="pending", type="mail.bounce").jobs
    assert len({job.run_at for job in made}) == 3, "ten seconds apart"


def test_an_act_on_all_jobs_that_match_counts_those_that_it_can_change(house: DashboardHouse) -> None:
    cookie = house.session(EVERY_ROLE, OWN)
    asked = house.get("/jobs/many", cookie, params={"act": "cancel", "q": "type:mail.send", "all": "1"})
    assert "Cancel 2 jobs?" in asked.text  # One is ready, one runs; the completed one is not counted.
    none = house.get("/jobs/many", cookie, params={"act": "reset", "q": "status:dead", "all": "1"})
    assert "Nothing to change" in none.text
    assert "These stay as they are: 1 dead." in none.text
    everybody = house.session()
    assert house.post("/jobs/many", everybody, {"act": "cancel", "q": ""}).status_code == 422  # All has to be said.
    done = house.post("/jobs/many", cookie, {"act": "cancel", "q": "type:mail.send"})
    assert "n=2" in done.headers["location"]
    wrong = house.post("/jobs/many", cookie, {"act": "cancel", "q": "status:funny"})
    assert (wrong.status_code, "nothing was changed" in wrong.text) == (422, True)
    operator = house.session(("operator",), OWN)
    assert 'value="retry"' not in house.get("/jobs", operator).text
    assert house.post("/jobs/many", operator, {"act": "retry", "q": "status:dead"}).status_code == 403


def answered(house: DashboardHouse, cookie: str, page: str, **fields: str) -> httpx.Response:
    """The confirmation that a page asks for, submitted with everything that it contains."""
    [(action, inside)] = re.findall(r'<form method="post" action="([^"]*)" class="stacked">(.*?)</form>', page, re.S)
    given: dict[str, list[str] | str] = {}
    for name, value in re.findall(r'<input [^>]*name="(\w+)"[^>]*value="([^"]*)"', inside):
        given[name] = [*given.get(name, ()), unescape(value)]
    return house.post("/" + unescape(action).lstrip("./"), cookie, {**given, **fields})


def followed(house: DashboardHouse, cookie: str, answer: httpx.Response) -> str:
    assert answer.status_code == 303
    return house.get("/" + answer.headers["location"].lstrip("./"), cookie).text


@pytest.mark.parametrize("act", ["acknowledge", "reprocess"])
def test_very_many_are_asked_for_part_by_part_and_each_is_acted_on_once(
    house: DashboardHouse, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    bounce(house, 1_005)
    cookie, jobs = house.session(EVERY_ROLE, OWN), house.app.jobs
    before = {job.id for job in jobs.list(tenant=OWN, status="pending", limit=200).jobs}
    asked = {"act": act, "q": "type:mail.bounce status:pending_review", "all": "1"}
    first = house.get("/failures/many", cookie, params=asked).text
    assert f"{act.capitalize()} 1,006 dead letters?" in first
    assert "1,000 now, the newest first; then you are asked again." in first
    with monkeypatch.context() as patch:
        patch.setattr("fairlane.web.pages.dead_letters.COUNT_CAP", 1_006)  # Counting ended here: there may be more.
        assert (
            f"{act.capitalize()} 1,006 or more dead letters?" in house.get("/failures/many", cookie, params=asked).text
        )
    more = {} if act == "acknowledge" else {"per_second": "100"}
    again = followed(house, cookie, answered(house, cookie, first, **more))
    assert f"1,000 dead letters {act.removesuffix('e')}" in again
    if act == "reprocess":  # Submitted twice, the first part does not become the second one.
        again = followed(house, cookie, answered(house, cookie, first, **more))
        assert "0 dead letters reprocessed" in again
    assert f"{act.capitalize()} 6 dead letters?" in again
    assert "The rest of all that match" in again
    assert "6 dead letters" in followed(house, cookie, answered(house, cookie, again))
    if act == "acknowledge":
        assert house.app.dead_letters.list(type="mail.bounce", tenant=OWN, acknowledged=False).dead_letters == ()
    else:
        made = [job for job in jobs.list(tenant=OWN, status="pending", limit=200).jobs if job.id not in before]
        now = house.clock.now()
        assert max((job.run_at - now).total_seconds() for job in made) == pytest.approx(10.05)


def test_a_list_of_very_many_counts_only_some_of_them(house: DashboardHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("fairlane.web.pages.dead_letters", "fairlane.client.admin.dead_letters"):
        monkeypatch.setattr(f"{module}.ROUGH_CAP", 5)
    cookie = house.session(EVERY_ROLE, OWN)
    bounce(house, 3)
    assert "4 in all" in house.get("/failures/letters", cookie).text
    [first, *_] = bounce(house, 3)
    assert "5 or more in all" in house.get("/failures/letters", cookie).text
    found = house.app.dead_letters.get(first)
    assert found is not None
    alike = f"fingerprint:{found.dead_letter.fingerprint} status:pending_review"
    assert "5 or more jobs failed alike:" in house.get("/failures/letters", cookie, params={"q": alike}).text


def test_acts_on_very_many_jobs_are_asked_for_part_by_part(house: DashboardHouse) -> None:
    send, cookie = house.app.tasks["mail.send"].using(tenant=OWN, correlation_id="flood"), house.session()
    for number in range(1_003):
        send.enqueue(user_id=number)
    asked = {"act": "cancel", "q": "correlation_id:flood", "all": "1", "tenant": OWN}
    first = house.get("/jobs/many", cookie, params=asked).text
    assert "Cancel 1,000 or more jobs?" in first
    again = followed(house, cookie, answered(house, cookie, first))
    assert "1,000 jobs cancelled." in again
    again = followed(house, cookie, answered(house, cookie, first))
    assert "0 jobs cancelled." in again  # Submitted twice, the first part does not become the second one.
    assert "Cancel 3 jobs?" in again
    assert "3 jobs cancelled." in followed(house, cookie, answered(house, cookie, again))
    assert house.app.jobs.list(tenant=OWN, status="pending", correlation_id="flood").jobs == ()


def test_acts_on_all_jobs_whose_contents_match_say_how_many_were_looked_at_and_lead_to_the_rest(
    house: DashboardHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane.web.pages.jobs.MAX_PAGE", 3)  # matches of a part
    monkeypatch.setattr("fairlane.client.admin.jobs.MAX_PAGE", 10)
    monkeypatch.setattr("fairlane.client.admin.jobs.SEARCHED_JOBS", 10)
    send, cookie = house.app.tasks["mail.send"].using(tenant=OWN, correlation_id="flood"), house.session()
    for number in (7, 7, 7, 7, *range(100, 112), 7):
        send.enqueue(user_id=number)
    asked = {"act": "cancel", "q": "args.user_id:7 correlation_id:flood", "all": "1", "tenant": OWN}
    first = house.get("/jobs/many", cookie, params=asked).text
    assert "Cancel 1 or more jobs?" in first
    assert "among 10 jobs that were looked into" in first
    assert "Older ones may match, too: then you are asked again." in first
    again = followed(house, cookie, answered(house, cookie, first))
    assert "1 job cancelled." in again
    assert "Cancel 3 or more jobs?" in again
    last = followed(house, cookie, answered(house, cookie, again))
    assert ("3 jobs cancelled." in last, "Cancel 1 job?" in last, "Older" in last) == (True, True, False)
    assert "1 job cancelled." in followed(house, cookie, answered(house, cookie, last))
    left = house.app.jobs.list(tenant=OWN, status="pending", correlation_id="flood").jobs
    assert len(left) == 12
    none = house.get("/jobs/many", cookie, params=asked).text
    assert "None of 10 jobs that were looked into" in none
    [further] = re.findall(r'href="([^"]*)">Look further', none)
    rest = house.get("/" + unescape(further).lstrip("./"), cookie).text
    assert ("None of 2 jobs" in rest, "Look further" in rest) == (True, False)


@pytest.mark.parametrize("field", ["behind", "cursor", "down_to"])
@pytest.mark.parametrize("number", ["9" * 400, "9" * 5000, "x"])
def test_a_place_that_is_none_is_refused(house: DashboardHouse, field: str, number: str) -> None:
    cookie, before = house.session(EVERY_ROLE, OWN), house.facts()
    fields = {"act": "reprocess", "q": "status:pending_review", field: number}
    assert house.post("/failures/many", cookie, fields).status_code == 422
    assert house.facts() == before


@pytest.mark.parametrize("rate", ["0", "-1", "nan", "1001", "fast"])
def test_a_rate_that_is_none_is_refused(house: DashboardHouse, rate: str) -> None:
    cookie, before = house.session(), house.facts()
    fields = {"act": "reprocess", "id": str(house.own.letter), "per_second": rate}
    refused = house.post("/failures/many", cookie, fields)
    assert (refused.status_code, "Per_second: expected a number" in refused.text) == (422, True)
    assert house.facts() == before
