"""Queues, lanes and limits on pages: what waits and why, who serves it, paused and limited by those who may."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape

from fairlane.core.ids import WorkerId
from fairlane.core.ops import AddStats, Renew, StatRow
from tests.api.house import EVERY_ROLE, LIVE, OWN
from tests.web.house import DashboardHouse


def work(house: DashboardHouse, *queues: str, name: str = "host-7") -> WorkerId:
    """A worker that serves these queues with a lane of four slots, half of them in use."""
    worker = WorkerId(house.app.runtime.new_job_id())
    figures = {"lane.fast.slots": 4.0, "lane.fast.utilisation": 0.5}
    house.app.runtime.access.run(Renew(worker=worker, lease_s=600.0, name=name, queues=queues, figures=figures))
    return worker


def row_of(page: str, queue: str) -> str:
    [row] = [row for row in re.findall(r"<tr>.*?</tr>", page, re.S) if f"queues/{queue}" in row]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", row)).strip()


def test_queues_show_what_waits_how_long_it_took_and_who_serves_them(house: DashboardHouse) -> None:
    app = house.app
    worker = work(house, "reports")
    figures = StatRow(
        minute=house.clock.now().replace(second=0, microsecond=0) - timedelta(minutes=1),
        type="mail.send",
        queue="reports",
        tenant=OWN,
        completed=3,
        wait_buckets={4: 3},
        run_buckets={8: 3},
    )
    app.runtime.access.run(AddStats(worker=worker, batch=1, rows=(figures,)))
    app.limits.set(queue="reports", running=2, rate="300/min", by="eve")
    app.tasks["mail.send"].using(tenant=OWN, queue="later", delay=600).enqueue(user_id=1)
    cookie = house.session()
    page = house.get("/queues", cookie).text
    assert row_of(page, "reports").startswith("reports idle 0 0 0 – 3 ")
    assert "2 running at once, 300/min started" in row_of(page, "reports")
    assert row_of(page, "later").startswith("later idle 0 0 1")
    assert row_of(page, "bulk").startswith("bulk paused")
    assert re.search(r'<th scope="row">fast</th>.*?50%.*?<td class="num">2.0</td><td class="num">4</td>', page, re.S)
    one = house.get("/queues/reports", cookie).text
    assert "host-7" in one
    assert "1 worker serves it" in one, "jobs of other queues are claimed by hand"
    assert re.search(r'<th scope="row"><a [^>]*>acme</a></th><td class="num">3</td>', one)


def test_a_paused_queue_says_who_why_and_whether_it_is_drained(house: DashboardHouse) -> None:
    cookie = house.session()
    page = house.get("/queues/bulk", cookie).text
    assert "Paused by <b>eve</b>" in page
    assert LIVE in page
    assert LIVE not in house.get("/queues/bulk", house.session(("viewer",))).text
    assert "it is drained" in page
    bound = house.get("/queues/bulk", house.session(EVERY_ROLE, OWN)).text
    assert ("<b>eve</b>" in bound, LIVE in bound, "Paused. Jobs wait" in bound) == (False, False, False)
    house.post("/queues/default/pause", cookie, {"refuse": "yes", "notes": "moving house"})
    [pause] = [pause for pause in house.app.pauses.list() if pause.name == "default"]
    assert (pause.refuse, pause.notes) == (True, "moving house")
    running = house.get("/queues/default", cookie).text
    assert ("New jobs are refused." in running, "2 jobs still run." in running) == (True, True)
    house.post("/queues/default/resume", cookie)
    house.post("/queues/default/pause", cookie, {"notes": "only claims"})
    [pause] = [pause for pause in house.app.pauses.list() if pause.name == "default"]
    assert pause.refuse is False


def test_limits_are_set_and_cleared_and_a_wrong_one_changes_nothing(house: DashboardHouse) -> None:
    cookie, before = house.session(), house.facts()
    for wrong, why in (
        ({"kind": "queue", "name": "default"}, "at least one figure"),
        ({"kind": "queue", "name": "default", "running": "many"}, "a whole number"),
        ({"kind": "queue", "name": "default", "rate": "often"}, "50/min"),
        ({"kind": "queue", "name": "default", "waiting": "5"}, "tenant"),
        ({"kind": "colour", "name": "red", "running": "5"}, "one of queue, tenant, type, named"),
        ({"kind": "queue", "running": "5"}, "fill it in"),
    ):
        refused = house.post("/limits", cookie, wrong)
        assert (refused.status_code, why in refused.text) == (422, True), wrong
    assert house.facts() == before
    about = {"kind": "queue", "name": "default", "from": "queue"}
    done = house.post("/limits", cookie, {**about, "running": "3", "rate": "100/h"})
    assert "queues/default" in done.headers["location"]
    one = house.get("/queues/default", cookie).text
    assert "3 running at once, 100/h started" in one
    assert 'type="number" value="3"' in one, "what is set stands in the form"
    house.post("/limits/clear", cookie, about)
    assert "3 running at once" not in house.get("/limits", cookie).text
    tenant = {"kind": "tenant", "name": "*", "queue": "mail", "waiting": "9", "when_full": "hold"}
    house.post("/limits", cookie, tenant)
    page = house.get("/limits", cookie).text
    assert "every tenant in queue mail" in page
    assert "9 unfinished in a queue, more are held back" in page


def test_limits_of_others_are_hidden_from_who_is_bound_to_a_tenant(house: DashboardHouse) -> None:
    house.app.limits.set(queue="default", running=4, by="eve")
    page = house.get("/limits", house.session(EVERY_ROLE, OWN)).text
    assert "500 unfinished in a queue" in page
    assert "4 running at once" not in page
    assert "4 running at once" not in house.get("/queues", house.session(EVERY_ROLE, OWN)).text


def warnings_of(house: DashboardHouse, cookie: str, path: str = "/") -> list[str]:
    return re.findall(r'<li class="(?:bad|warn)"><a [^>]*>([^<]*)</a>', house.get(path, cookie).text)


def reasons_of(house: DashboardHouse, cookie: str, job: object) -> list[str]:
    page = house.get(f"/jobs/{job}", cookie).text
    return [unescape(reason) for reason in re.findall(r"<li>([^<]*?) ?<", page.partition('id="why"')[2])]


def test_the_overview_warns_of_queues_that_no_worker_serves_and_a_job_says_why_it_waits(house: DashboardHouse) -> None:
    app = house.app
    app.jobs.purge()
    cookie = house.session()
    send = app.tasks["mail.send"].using(tenant=OWN, queue="lonely")
    job = send.enqueue(user_id=1).id
    assert "No worker is running" in warnings_of(house, cookie)
    unserved = 'No live worker serves queue "lonely".'
    assert unserved in reasons_of(house, cookie, job)
    work(house, "reports")
    assert "No worker serves queue lonely" in warnings_of(house, cookie)
    assert row_of(house.get("/queues", cookie).text, "lonely").startswith("lonely no worker 1")
    assert unserved in reasons_of(house, cookie, job)
    assert warnings_of(house, house.session(EVERY_ROLE, OWN)) == []  # Workers are not a tenant's business.
    work(house, "lonely", name="host-8")
    assert warnings_of(house, cookie) == []
    assert unserved not in reasons_of(house, cookie, job)
    app.queues.pause("lonely", by="eve")
    assert warnings_of(house, cookie) == ["Queue lonely is paused"]
    assert 'Queue "lonely" is paused by eve.' in reasons_of(house, cookie, job)
    later = send.using(tenant=OWN, queue="other", delay=600).enqueue(user_id=2).id
    assert any("scheduled" in reason.lower() for reason in reasons_of(house, cookie, later))
