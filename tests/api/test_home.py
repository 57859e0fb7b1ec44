"""Where one arrives after logging in."""

from __future__ import annotations

import re

import pytest

from fairlane.api.routes.session import PLACES
from tests.api.house import EVERY_ROLE, OWN, ROLE_SETS, ShopHouse
from tests.api.test_matrix import OPERATIONS


def landed(house: ShopHouse, roles: tuple[str, ...], tenant: str | None = None, below: str = "") -> tuple[str, str]:
    """Log in by a link as a browser does: the page it ends at, and the cookie it has then."""
    answer = house.call("POST", f"{below}/login?link={house.link(roles, tenant)}")
    assert (answer.status_code, answer.headers["location"]) == (303, "./")
    cookie = answer.headers["set-cookie"].partition(";")[0]
    page = house.call("GET", f"{below}/", headers={"Cookie": cookie, "Accept": "text/html"})
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    return page.text, cookie


def links(page: str) -> list[str]:
    return re.findall(r'href="([^"]*)"', page)


@pytest.mark.parametrize("tenant", [None, OWN])
@pytest.mark.parametrize("who", [*ROLE_SETS, "every role"])
def test_logging_in_leads_to_a_page_whose_every_link_works(house: ShopHouse, who: str, tenant: str | None) -> None:
    roles = ROLE_SETS.get(who, EVERY_ROLE)
    page, cookie = landed(house, roles, tenant)
    assert "<b>lea</b>" in page
    assert all(role in page for role in roles)
    assert (OWN in page) == (tenant is not None)
    for link in links(page):
        assert house.call("GET", f"/{link}", headers={"Cookie": cookie}).status_code == 200, link


def test_who_may_see_everything_finds_everything(house: ShopHouse) -> None:
    page, _ = landed(house, EVERY_ROLE)
    assert links(page) == [place.path for place in PLACES]


def test_every_place_asks_what_its_route_declares() -> None:
    declared = {
        route.path: (route.declared.right, route.declared.for_all_tenants)
        for route in OPERATIONS.values()
        if route.methods == {"GET"}
    }
    assert {f"/{place.path}": (place.right, place.for_all_tenants) for place in PLACES}.items() <= declared.items()


def test_the_page_holds_no_mark_up_out_of_names(house: ShopHouse) -> None:
    token = house.token(("viewer",), tenant="<script>1", name="<img src=x>")
    page = house.call("GET", "/", token).text
    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;img src=x&gt;" in page


def test_nobody_is_told_only_how_to_get_in(house: ShopHouse) -> None:
    answer = house.call("GET", "/")
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert "`fairlane tokens link " in answer.json()["detail"]
