"""Tenants on pages: shares of slot time against weights, what throttles them; paused, weighted and limited."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from fairlane.core.ids import WorkerId
from fairlane.core.ops import AddStats, Renew, StatRow
from tests.api.house import EVERY_ROLE, LIVE, OWN
from tests.web.house import DashboardHouse


def run_for(house: DashboardHouse, **seconds: float) -> None:
    """Slot time that tenants used a minute ago."""
    worker = WorkerId(house.app.runtime.new_job_id())
    minute = house.clock.now().replace(second=0, microsecond=0) - timedelta(minutes=1)
    rows = tuple(
        StatRow(
            minute=minute,
            type="mail.send",
            queue="default",
            tenant=tenant,
            completed=10,
            run_us=int(used_s * 1e6),
            wait_buckets={6: 10},
            run_buckets={9: 10},
        )
        for tenant, used_s in seconds.items()
    )
    house.app.runtime.access.run(Renew(worker=worker, lease_s=600.0, name="host-7"))
    house.app.runtime.access.run(AddStats(worker=worker, batch=1, rows=rows))


def rows_of(page: str, label: str) -> dict[str, str]:
    """The rows of a table as text, by their tenant."""
    table = page.partition(f'aria-label="{label}"')[2].partition("</table>")[0]
    rows = re.findall(r'<tr><th scope="row"><a [^>]*>(.*?)</a>(.*?)</tr>', table.replace("\n", " "), re.S)
    return {name: re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", rest)).strip() for name, rest in rows}


def test_shares_of_slot_time_stand_against_what_the_weights_give(house: DashboardHouse) -> None:
    run_for(house, acme=10.0, globex=60.0, initech=30.0)
    house.app.tenants.set("globex", weight=1.0, by="eve")
    house.app.tenants.set("initech", weight=1.0, by="eve")  # acme has 2.
    page = house.get("/tenants", house.session()).text
    shares = rows_of(page, "Fair shares")
    assert list(shares) == ["globex", "initech", "acme"], "the largest first"
    assert shares["globex"].startswith("60% 25% 1 1 m")
    assert shares["initech"].startswith("30% 25%")
    assert shares["acme"].startswith("below its share 10% 50% 2 10 s"), "it has a job ready, and got less"
    assert 'aria-label="globex used 60%; its weight gives 25%"' in page
    assert '<line x1="25.0" x2="25.0"' in page
    one = house.get("/tenants/one?name=globex", house.session()).text
    assert "gives 25% among the busiest" in one
    assert "Queues" in one


def test_who_is_bound_to_a_tenant_learns_nothing_of_the_others(house: DashboardHouse) -> None:
    run_for(house, acme=10.0, globex=60.0)
    cookie = house.session(EVERY_ROLE, OWN)
    page = house.get("/tenants", cookie).text
    assert list(rows_of(page, "Tenants")) == [OWN]
    assert "Fair shares" not in page
    assert "among the busiest" not in house.get("/tenants/one?name=acme", cookie).text
    assert house.get("/tenants/one?name=globex", cookie).status_code == 404
    assert list(rows_of(house.get("/tenants?tenant=globex", house.session()).text, "Tenants")) == ["globex"]


def test_a_tenant_at_its_limit_is_throttled_and_says_why(house: DashboardHouse) -> None:
    cookie = house.session()
    assert rows_of(house.get("/tenants", cookie).text, "Tenants")["acme"].startswith("busy 1 1")
    about = {"kind": "tenant", "name": OWN, "from": "tenant"}
    done = house.post("/limits", cookie, {**about, "running": "1"})
    assert "tenants/one?" in done.headers["location"]
    assert rows_of(house.get("/tenants", cookie).text, "Tenants")["acme"].startswith("throttled 1 1")
    page = house.get("/tenants/one?name=acme", cookie).text
    assert "Its newest job waits</a>" in page
    assert "1 running at once" in page
    house.post("/limits/clear", cookie, about)
    assert rows_of(house.get("/tenants", cookie).text, "Tenants")["acme"].startswith("busy")


def test_a_tenant_is_paused_weighted_and_refused_what_is_wrong(house: DashboardHouse) -> None:
    cookie, before = house.session(), house.facts()
    for fields, why in (
        ({"name": OWN, "weight": "0"}, "0.001 to 1000"),
        ({"name": OWN, "weight": "heavy"}, "a number"),
        ({"name": OWN}, "at least one of them"),
        ({"weight": "2"}, "fill it in"),
    ):
        refused = house.post("/tenants/set", cookie, fields)
        assert (refused.status_code, why in refused.text) == (422, True), fields
    assert house.facts() == before
    house.post("/tenants/set", cookie, {"name": OWN, "weight": "7.5", "tier": "gold", "notes": "a good customer"})
    found = house.app.tenants.get(OWN)
    assert (found.weight, found.tier) == (7.5, "gold")
    assert 'value="7.5"' in house.get("/tenants/one?name=acme", cookie).text
    house.post("/tenants/pause", cookie, {"name": OWN, "refuse": "yes", "notes": "unpaid"})
    page = house.get("/tenants/one?name=acme", cookie).text
    assert "New jobs are refused. 1 still run." in page
    paused = house.get("/tenants/one?name=initech", cookie).text
    assert LIVE in paused
    assert LIVE not in house.get("/tenants/one?name=initech", house.session(("viewer",))).text
    bound = house.session(EVERY_ROLE, OWN)
    assert house.post("/tenants/resume", bound, {"name": OWN}).status_code == 303
    assert house.app.tenants.is_paused(OWN) is False


@pytest.mark.parametrize("name", ["a/b", "..", "a/../b", "50% & more?", "<b>bold</b>", "#1"])
def test_any_name_of_a_tenant_is_a_good_address(house: DashboardHouse, name: str) -> None:
    house.app.tenants.set(name, weight=2.0, by="eve")
    cookie = house.session()
    links = re.findall(r'href="\./(tenants/one\?name=[^"]*)" data-row', house.get("/tenants", cookie).text)
    found = [house.get(f"/{link.replace('&amp;', '&')}", cookie) for link in links]
    assert all(page.status_code == 200 for page in found)
    assert any(f'name="name" value="{escaped(name)}"' in page.text for page in found)


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
