"""The keys at which most jobs wait, below the limits; and what the page of a job says of its key."""

from __future__ import annotations

import html
import re

import pytest

from tests.api.house import CANARY, EVERY_ROLE, OWN
from tests.web.house import DashboardHouse

pytestmark = pytest.mark.requirement("D24")


def keys_of(page: str) -> list[str]:
    """The rows of the table of keys, as text without their acts."""
    table = page.partition('aria-label="Keys"')[2].partition("</table>")[0].partition("<tbody>")[2]
    rows = [re.sub(r"<details.*?</details>", "", row, flags=re.S) for row in re.findall(r"<tr>(.*?)</tr>", table, re.S)]
    return [re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", row))).strip() for row in rows]


def test_the_busiest_keys_stand_below_the_limits_with_who_has_their_places(house: DashboardHouse) -> None:
    cookie = house.session()
    assert 'id="job-keys"' not in house.get("/limits", cookie).text
    own = house.own
    assert own.held
    running = house.app.jobs.get(own.running)
    assert running is not None
    page = house.get("/limits", cookie).text
    assert keys_of(page) == [f"{own.key} {OWN} 1 at a time 1 1 {running.seq} running for 0.0 s"]
    assert f'href="./jobs/{own.running}"' in page
    bound = house.get("/limits", house.session(EVERY_ROLE, OWN)).text
    assert keys_of(bound) == keys_of(page)
    assert house.foreign.held
    assert len(keys_of(house.get("/limits", cookie).text)) == 2
    assert CANARY not in house.get("/limits", house.session(EVERY_ROLE, OWN)).text


def test_a_place_is_freed_where_it_is_shown(house: DashboardHouse) -> None:
    cookie, own = house.session(), house.own
    assert own.held
    why = html.unescape(house.get(f"/jobs/{own.held}", cookie).text)
    assert f"It is next at {own.key}, which runs 1 at a time; job " in why
    done = house.post(f"/jobs/{own.running}/free-place", cookie, {"from": "limits", "notes": "it hangs"})
    assert (done.status_code, "limits?did=free_place" in done.headers["location"]) == (303, True)
    assert house.app.limits.keys()[0].in_use == 0
    again = house.post(f"/jobs/{own.running}/free-place", cookie)
    assert (again.status_code, "Not possible now" in again.text) == (409, True)
    [record] = [record for record in house.app.audit.list().records if record.action == "job_place_free"]
    assert (record.by.partition(" ")[0], record.notes) == ("lea", "it hangs")


def test_each_key_of_a_name_is_limited_where_limits_are(house: DashboardHouse) -> None:
    cookie = house.session()
    house.post("/limits", cookie, {"kind": "key", "name": "order", "running": "3"})
    page = house.get("/limits", cookie).text
    assert "3 running at once" in page
    assert house.own.held
    assert keys_of(house.get("/limits", cookie).text)[0].startswith(f"{house.own.key} {OWN} 3 at a time")
