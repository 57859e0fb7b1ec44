"""Schedules on pages: in words, with next and last runs; acted on, and added with what was wrong said."""

from __future__ import annotations

import re
from datetime import timedelta

from fairlane import Fairlane
from fairlane.client.admin.schedules import scheduled_job
from fairlane.core.ops import Fire
from tests.api.house import EVERY_ROLE, OWN
from tests.web.house import DashboardHouse


def test_a_schedule_is_shown_in_words_with_its_next_times_in_its_zone(house: DashboardHouse) -> None:
    task = house.app.tasks["mail.send"].using(tenant=OWN)
    house.app.schedules.add(
        "digest", task.bind(user_id=2**60 + 1), cron="0 9 * * MON-FRI", tz="Europe/Prague", by="eve"
    )
    cookie = house.session()
    listed = house.get("/schedules", cookie).text
    assert "At 09:00 on Monday through Friday (Europe/Prague)" in listed
    page = house.get("/schedules/digest", cookie).text
    assert len(re.findall(r'<li class="waiting"><span>\w{3} \d\d \w{3} \d{4} 09:00 CES?T</span>', page)) == 5
    assert "It has not fired yet" in page
    assert str(2**60 + 1) in page
    assert str(2**60 + 1) not in house.get("/schedules/digest", house.session(("viewer",))).text


def test_an_interval_is_added_on_the_page_and_shown_with_its_times(house: DashboardHouse) -> None:
    cookie = house.session(EVERY_ROLE, OWN)
    poll = {"name": "poll", "task": "mail.send", "every": "10", "jitter": "2.5", "arguments": '{"user_id": 7}'}
    for wrong, why in (
        ({"cron": "@daily"}, "one of the two"),
        ({"every": "0.5"}, "Every: expected"),
        ({"jitter": "11"}, "Jitter: expected"),
    ):
        refused = house.post("/schedules", cookie, {**poll, **wrong})
        assert (refused.status_code, why in refused.text) == (422, True), refused.text
    house.post("/schedules", cookie, poll)
    assert "every 10 s, up to 2.5 s later" in house.get("/schedules", cookie).text
    page = house.get("/schedules/poll", cookie).text
    assert "begin up to 2.5 s later" in page
    assert len(re.findall(r'<li class="waiting"><span>[^<]* \d\d:\d\d(?::[1-5]0)?</span>', page)) == 5


def test_a_run_by_hand_leads_to_its_job_and_stands_among_the_last_runs(house: DashboardHouse) -> None:
    cookie = house.session()
    ran = house.post(f"/schedules/{house.own.schedule}/run", cookie, {"notes": "month end"})
    [job] = re.findall(r"jobs/([0-9a-f-]{36})", ran.headers["location"])
    assert "in addition to the timetable" in house.get(f"/jobs/{job}?did=run_schedule", cookie).text
    page = house.get(f"/schedules/{house.own.schedule}", cookie).text
    assert f"jobs/{job}" in page
    assert "<td>by hand</td>" in page
    assert house.app.audit.list(limit=1).records[0].notes == "month end"


def test_a_paused_schedule_has_no_next_run_until_it_is_resumed(house: DashboardHouse) -> None:
    name, cookie = house.paused_schedule(house.own), house.session()
    assert "None while it is paused." in house.get(f"/schedules/{name}", cookie).text
    house.post(f"/schedules/{name}/resume", cookie)
    page = house.get(f"/schedules/{name}", cookie).text
    assert "None while it is paused." not in page
    assert page.count('<li class="waiting">') == 5
    house.post(f"/schedules/{name}/remove", cookie)
    assert house.get(f"/schedules/{name}", cookie).status_code == 404


def test_a_schedule_is_added_on_the_page_and_a_wrong_one_is_refused(house: DashboardHouse) -> None:
    cookie, before = house.session(EVERY_ROLE, OWN), house.facts()
    good = {"name": "weekly", "task": "mail.send", "cron": "0 9 * * MON", "arguments": '{"user_id": 7}'}
    for wrong, why in (
        ({"cron": "soon"}, "five fields"),
        ({"task": "mail.sent"}, "mail.send"),
        ({"arguments": '{"user": 7}'}, "user"),
        ({"arguments": '{"user_id": 7, "user_id": 8}'}, "comes twice"),
        ({"tz": "Europe/Prag"}, "Europe/Prague"),
        ({"overlap": "never"}, "allow, skip, queue"),
        ({"name": ""}, "fill it in"),
        ({"name": "a b"}, "chedule name"),
        ({"queue": "critical"}, "&#34;default&#34;"),
    ):
        refused = house.post("/schedules", cookie, {**good, **wrong})
        assert (refused.status_code, why in refused.text) == (422, True), (wrong, refused.text)
    foreign = house.post("/schedules", cookie, {**good, "of_tenant": "globex"})
    assert foreign.status_code == 404
    assert house.facts() == before
    made = house.post("/schedules", cookie, good)
    assert "schedules/weekly" in made.headers["location"]
    assert house.app.schedules.get("weekly").spec.tenant == OWN


def test_a_queue_of_others_is_refused_where_the_task_is_unknown_as_well() -> None:
    app = Fairlane("memory://", api_tenant_queues=("bulk",))  # As `fairlane dashboard --url` without an application.
    house = DashboardHouse(app)
    try:
        bound, free = house.session(("operator",), OWN), house.session(("operator",))
        asked = {"name": "weekly", "task": "mail.send", "cron": "0 9 * * MON"}
        refused = house.post("/schedules", bound, {**asked, "queue": "critical"})
        assert (refused.status_code, "&#34;bulk&#34; or &#34;default&#34;" in refused.text) == (422, True)
        assert app.schedules.list() == ()
        for cookie, queue in ((bound, "default"), (bound, "bulk"), (free, "critical")):
            assert house.post("/schedules", cookie, {**asked, "name": queue, "queue": queue}).status_code == 303
    finally:
        house.close()


def test_schedules_of_one_tenant_are_shown_alone_and_a_full_page_leads_on(house: DashboardHouse) -> None:
    cookie = house.session()
    mine = house.get("/schedules?tenant=acme", cookie).text
    assert (house.own.schedule in mine, house.foreign.schedule in mine) == (True, False)
    task = house.app.tasks["mail.send"].using(tenant=OWN)
    for number in range(101):
        house.app.schedules.add(f"a.{number:03}", task.bind(user_id=1), cron="@daily", by="eve")
    first = house.get("/schedules", cookie).text
    [more] = re.findall(r'href="\./(schedules\?after=[^"]*)" rel="next"', first)
    assert ("a.099" in first, "a.100" in first) == (True, False)
    assert "a.100" in house.get(f"/{more}", cookie).text


def test_a_firing_stands_with_the_time_it_is_for(house: DashboardHouse) -> None:
    schedule = house.app.schedules.get(house.own.schedule)
    assert schedule.next_at is not None
    job = scheduled_job(house.app.runtime, schedule.spec, schedule.next_at)
    fire = Fire(
        name=house.own.schedule,
        expected_at=schedule.next_at,
        jobs=(job,),
        fired_at=schedule.next_at,
        next_at=schedule.next_at + timedelta(days=1),
    )
    assert house.app.runtime.access.run(fire).outcome == "fired"
    cookie = house.session()
    page = house.get(f"/schedules/{house.own.schedule}", cookie).text
    assert f"<td>{schedule.next_at:%Y-%m-%d} 03:00:00 UTC</td>" in page
    assert f"jobs/{job.id}" in house.get("/schedules", cookie).text
