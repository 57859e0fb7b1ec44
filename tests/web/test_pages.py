"""Every page × every caller, without a browser: who may sees it, who may not learns nothing and changes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from fastapi import FastAPI
from msgspec.structs import replace

from bench.pages import PAGES as MEASURED
from fairlane.api.router import gated_routes
from fairlane.client.rights import Right, may
from fairlane.core.ids import WorkerId
from fairlane.core.limits import Limit
from fairlane.core.ops import LOG_LINES, Alert, Renew, SaveAlerts, SetLimit
from fairlane.errors import StoreUnavailable
from fairlane.web import assets, create_dashboard
from fairlane.web.page import DECLARED
from tests.api.house import CANARY, DEAD, EVERY_ROLE, LIVE, OWN, ROLE_SETS, Mine
from tests.web.house import BROWSER, DashboardHouse
from tests.web.requests import ACTS, PAGES, address_of, path_of

OPEN = {name for name, declared in DECLARED.items() if declared.right is Right.OPEN}
GATED = sorted(PAGES.keys() - OPEN)


def test_every_page_and_act_has_a_request_here(house: DashboardHouse) -> None:
    assert PAGES.keys() | ACTS.keys() == DECLARED.keys()
    assert not PAGES.keys() & ACTS.keys()
    ours = {route.operation_id for route in gated_routes(house.api) if not route.include_in_schema}
    assert ours == DECLARED.keys() | {"show_asset"}


def test_the_benchmark_measures_every_page_that_people_read() -> None:
    def shape(path: str) -> str:
        return re.sub(r"\{.*?\}|(?<=/queues/)\w+", "*", path.partition("?")[0]).rstrip("/")

    left_out = {"show_login", "verify_chain"}  # One shows nothing of the store; the other reads all records, on demand.
    measured = {shape(path) for path in MEASURED.values()}
    assert {name for name in PAGES.keys() - left_out if shape(DECLARED[name].path) not in measured} == set()


def page_of(house: DashboardHouse, name: str, mine: Mine, cookie: str | None) -> httpx.Response:
    return house.get(address_of(name, PAGES[name](house, mine)), cookie)


def act_on(house: DashboardHouse, name: str, mine: Mine, cookie: str, **headers: str) -> httpx.Response:
    asked = ACTS[name](house, mine)
    return house.post(path_of(name, asked), cookie, asked.fields, **headers)


def granted(name: str, roles: tuple[str, ...], tenant: str | None) -> bool:
    declared = DECLARED[name]
    return may(roles, declared.right) and not (declared.for_all_tenants and tenant is not None)


def offered(page: str) -> set[str]:
    """The acts that a page has a form for."""
    actions = re.findall(r'<form method="post" action="([^"?]*)', page)
    paths = {act: re.sub(r"{[^}]*}", "[^/]+", DECLARED[act].path.lstrip("/")) + "$" for act in ACTS}
    return {act for act, path in paths.items() if any(re.search(f"^[./]*{path}", action) for action in actions)}


def links(page: str) -> list[str]:
    return [unescape(link) for link in re.findall(r'<a [^>]*href="([^"#]*)"', page) if link]


@pytest.mark.parametrize("tenant", [None, OWN])
@pytest.mark.parametrize("who", [*ROLE_SETS, "every role"])
def test_who_may_sees_a_page_and_every_link_of_the_overview_works(
    house: DashboardHouse, who: str, tenant: str | None
) -> None:
    roles = ROLE_SETS.get(who, EVERY_ROLE)
    cookie = house.session(roles, tenant)
    for name in GATED:
        answer = page_of(house, name, house.own, cookie)
        assert answer.headers["content-type"].startswith("text/html")
        assert answer.status_code == (200 if granted(name, roles, tenant) else 403), name
        assert tenant is None or CANARY not in answer.text, name
        for act in offered(answer.text):
            assert granted(act, roles, tenant), (name, act)
    if may(roles, Right.READ):
        for link in links(house.get("/", cookie).text):
            assert house.get(f"/{link.removeprefix('./')}", cookie).status_code == 200, link


def test_pages_offer_every_act_to_those_who_may_do_everything(house: DashboardHouse) -> None:
    cookie, own = house.session(), house.own
    pages = [page_of(house, name, own, cookie).text for name in GATED]
    house.app.breakers.reset("smtp", by="eve")
    now = house.clock.now()
    alert = Alert(rule="queue_backlog", about="default", state="firing", since=now, fired_at=now, resolved_at=None,
                  value=1.0, severity="warning", version=1)  # fmt: skip
    house.app.runtime.access.run(SaveAlerts(alerts=(alert,)))
    paused = f"/schedules/{house.paused_schedule(own)}"
    jobs = (f"/jobs/{own.running}", f"/jobs/{own.dead}")
    others = (*jobs, "/breakers", "/alerts", "/queues/bulk", "/tenants/one?name=initech", paused)
    pages += [house.get(path, cookie).text for path in others]
    assert set().union(*map(offered, pages)) == ACTS.keys()


@pytest.mark.requirement("W13")
@pytest.mark.parametrize("name", ACTS)
def test_an_act_is_done_by_those_who_may_and_refused_to_all_others(house: DashboardHouse, name: str) -> None:
    refused = [house.session(roles) for roles in ROLE_SETS.values() if not granted(name, roles, None)]
    everyone, bound = house.session(), house.session(EVERY_ROLE, OWN)
    before = house.facts()
    for cookie in refused:
        answer = act_on(house, name, house.own, cookie)
        assert (answer.status_code, "<h1>You may not do this</h1>" in answer.text) == (403, True)
    for site in ("cross-site", "same-site"):
        assert act_on(house, name, house.own, everyone, **{"Sec-Fetch-Site": site}).status_code == 403
    if not DECLARED[name].for_all_tenants:
        foreign = act_on(house, name, house.foreign, bound)
        is_many = name.startswith("act_on_")  # Those that are not there are counted as refused.
        learned = foreign.text
        for asked in ACTS[name](house, house.foreign).path.values():
            learned = learned.replace(str(asked), "")
        assert (foreign.status_code, CANARY in learned) == (303 if is_many else 404, False)
    assert house.facts() == before
    done = act_on(house, name, house.own, everyone)
    assert (done.status_code, f"did={name}" in done.headers["location"]) == (303, True), done.text
    assert house.facts() != before


@pytest.mark.parametrize("who", ROLE_SETS)
def test_contents_are_for_those_who_may_see_them(house: DashboardHouse, who: str) -> None:
    roles = ROLE_SETS[who]
    cookie = house.session(roles)
    for name in GATED:
        text = page_of(house, name, house.own, cookie).text
        assert LIVE not in text or may(roles, Right.CONTENTS), name
        assert DEAD not in text or may(roles, Right.MANAGE), name
    text = "".join(house.get(f"/jobs/{job}", cookie).text for job in (house.own.dead, house.own.done))
    assert (LIVE in text, DEAD in text) == (may(roles, Right.CONTENTS), may(roles, Right.MANAGE))


def test_nobody_gets_a_page_that_says_how_to_log_in_and_programs_get_json(house: DashboardHouse) -> None:
    for name in GATED:
        answer = page_of(house, name, house.own, None)
        assert answer.status_code == 401
        assert "fairlane tokens link NAME --role viewer" in answer.text
        assert CANARY not in answer.text
        assert house.own.note not in answer.text
    for path in ("/jobs", "/api/jobs/"):
        assert house.call("GET", path).headers["content-type"] == "application/problem+json"
    assert house.get("/api/jobs/").headers["content-type"] == "application/problem+json"


def test_a_link_from_elsewhere_is_followed_again_by_our_own_page(house: DashboardHouse) -> None:
    """Browsers send a strict cookie only with requests that our own pages make."""
    answer = house.get("/jobs", headers={"Sec-Fetch-Site": "cross-site"})
    assert (answer.status_code, '<meta http-equiv="refresh" content="0">' in answer.text) == (401, True)
    assert "refresh" not in house.get("/jobs").text


def test_a_link_logs_in_once_and_then_says_so(house: DashboardHouse) -> None:
    link = house.link(("viewer",))
    for _ in range(2):
        page = house.get(f"/login?link={link}")
        assert (page.status_code, f'action="./login?link={link}"' in page.text) == (200, True)
    assert house.call("POST", f"/login?link={link}", headers=BROWSER).status_code == 303
    used = house.call("POST", f"/login?link={link}", headers=BROWSER)
    assert used.status_code == 401
    assert "This link was used already, has expired or is not known." in used.text
    pasted = house.get("/login", params={"link": f"http://127.0.0.1:8650/login?link={link}"})
    assert f'action="./login?link={link}"' in pasted.text


def test_logging_out_leads_to_the_log_in_page(house: DashboardHouse) -> None:
    cookie = house.session(("viewer",))
    assert "logout" in house.get("/", cookie).text
    left = house.post("/logout", cookie)
    assert (left.status_code, left.headers["location"]) == (303, "login")
    assert house.get("/", cookie).status_code == 401
    token = house.call("GET", "/", house.token(("viewer",)), headers=BROWSER)
    assert (token.status_code, "logout" in token.text) == (200, False)


def test_what_is_not_there_and_what_breaks_are_pages(house: DashboardHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    cookie = house.session()
    for path in ("/nowhere", "/jobs/nowhere", "/nowhere/at/all", f"/jobs/{house.own.letter}"):
        answer = house.get(path, cookie)
        assert (answer.status_code, "There is no page at this address." in answer.text) == (404, True)
    gone = house.get("/jobs/00000000-0000-4000-8000-000000000000", cookie)
    assert (gone.status_code, "<h1>Not found</h1>" in gone.text) == (404, True)
    refused = house.get("/jobs?limit=5", cookie)
    assert (refused.status_code, "<h1>Not accepted</h1>" in refused.text) == (422, True)

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret of the house")

    monkeypatch.setattr("fairlane.web.pages.jobs.search", broken)
    answer = house.get("/jobs", cookie)
    assert (answer.status_code, "<h1>Something went wrong</h1>" in answer.text) == (500, True)
    assert "secret of the house" not in answer.text


def test_without_a_store_a_page_says_so_and_tries_again_by_itself(
    house: DashboardHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    cookie = house.session()

    async def gone(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("memory", "it is away")

    monkeypatch.setattr(type(house.app.tokens), "afind", gone)
    answer = house.get("/jobs", cookie)
    assert (answer.status_code, "<h1>The store cannot be reached</h1>" in answer.text) == (503, True)
    assert '<meta http-equiv="refresh" content="5">' in answer.text
    act = house.post(f"/jobs/{house.own.ready}/cancel", cookie)
    assert (act.status_code, "refresh" in act.text) == (503, False)


def test_an_act_that_is_not_possible_says_why_and_changes_nothing(house: DashboardHouse) -> None:
    cookie, before = house.session(), house.facts()
    late = house.post(f"/jobs/{house.own.done}/cancel", cookie)
    assert (late.status_code, "<h1>Not possible now</h1>" in late.text) == (409, True)
    blank = house.post(f"/jobs/{house.own.ready}/bury", cookie, {"reason": " "})
    assert (blank.status_code, "Reason: expected fill it in" in blank.text) == (422, True)
    wrong = house.call(
        "POST", f"/jobs/{house.own.ready}/cancel", headers={**BROWSER, "Cookie": cookie}, json={"notes": "x"}
    )
    assert wrong.status_code == 415
    assert house.facts() == before


def test_pages_hold_no_inline_script_but_the_theme_and_no_style_and_forbid_them(house: DashboardHouse) -> None:
    cookie = house.session()
    for name in PAGES:
        answer = page_of(house, name, house.own, cookie)
        policy = answer.headers["content-security-policy"]
        assert re.match(r"default-src 'none'; script-src 'self' 'sha256-[^']+'; style-src 'self'; img-src", policy)
        assert "unsafe" not in policy
        text = answer.text.replace(f"<script>{assets.THEME}</script>", "", 1)  # Its hash is in the policy.
        assert re.findall(r"<script(?![^>]* src=)|<style|\sstyle=|\son[a-z]+=|javascript:", text) == [], name
        assert answer.headers["cache-control"] == "no-store"


def test_scripts_are_small_and_ours_and_cached_for_ever(house: DashboardHouse) -> None:
    assert sum(len(text) for name, text in assets.FILES.items() if name.endswith(".js")) + len(assets.THEME) <= 30_000
    page = house.get("/login").text
    for path in re.findall(r'(?:src|href)="\./(static/[^"]+)"', page):
        answer = house.get(f"/{path}")
        assert (answer.status_code, "immutable" in answer.headers["cache-control"]) == (200, True)
    assert house.get("/static/000000000000/main.js").status_code == 404


def test_mounted_anywhere_every_address_is_right(house: DashboardHouse) -> None:
    web = FastAPI()
    web.mount("/fairlane", create_dashboard(house.app, base_path="/ops/"))
    token = house.token(EVERY_ROLE)

    async def ask(path: str) -> httpx.Response:
        transport = httpx.ASGITransport(web)
        headers = {**BROWSER, "Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(transport=transport, base_url="https://shop.example") as http:
            return await http.get(path, headers=headers)

    for path in ("/fairlane/ops/", f"/fairlane/ops/jobs/{house.own.ready}", "/fairlane/ops/nowhere/at/all"):
        page = house.runner.run(ask(path))
        assert (page.status_code, "<nav" in page.text) == (404 if "nowhere" in path else 200, "nowhere" not in path)
        found = [unescape(link) for link in re.findall(r'(?:src|href)="([^"]*)"', page.text)]
        for address in {str(page.url.join(link).copy_with(fragment=None)) for link in found}:
            assert house.runner.run(ask(address)).status_code in ({200, 404} if "nowhere" in path else {200}), address


@pytest.mark.parametrize(
    ("q", "shown"),
    [
        ("", {"done", "dead", "running", "ready"}),
        ("state:dead", {"dead"}),
        ("status:pending,processing", {"running", "ready"}),
        ("type:mail.bounce", {"dead"}),
        ('correlation_id:"note-of-acme-correlation" status:completed', {"done"}),
        ("idempotency_key:note-of-acme-ready", {"ready"}),
        ("enqueued_from:1h queue:default", {"done", "dead", "running", "ready"}),
        ("enqueued_before:2020-01-01", set()),
        ("tenant:acme status:pending", {"ready"}),
        ("args.user_id:1", {"done"}),
        ("args.user_id:3 status:pending", {"ready"}),
        ("args.user_id:3 status:completed", set()),
        ("args.user_id.more:3", set()),
        ('error:"NO SUCH address"', {"dead"}),
        ("error:nonretryable args.note:elsewhere", set()),
    ],
)
def test_a_search_is_in_the_address_and_shows_what_matches(house: DashboardHouse, q: str, shown: set[str]) -> None:
    page = house.get("/jobs", house.session(EVERY_ROLE, OWN), params={"q": q})
    ids = {name: str(getattr(house.own, name)) for name in ("done", "dead", "running", "ready")}
    assert {name for name, job in ids.items() if f"jobs/{job}" in page.text} == shown
    assert ("No job matches." in page.text) == (not shown)


def test_the_number_or_a_part_of_the_id_of_a_job_leads_to_it(house: DashboardHouse) -> None:
    cookie, job = house.session(), str(house.own.ready)
    number = house.app.jobs.get(job).seq
    for text in (number, f" {number} ", job, job.rpartition("-")[2], job[:-4].upper()):
        found = house.get(f"/jobs?q={text}", cookie)
        assert (found.status_code, found.headers["location"]) == (303, f"./jobs/{job}"), text
    assert "no job &#34;99999&#34;" in house.get("/jobs?q=99999", cookie).text
    assert f"{number} ({job})" in house.get(f"/jobs?q={job[:6]}", cookie).text
    foreign = house.get(f"/jobs?q={number}", house.session(tenant="globex"))
    assert (foreign.status_code, "no job" in foreign.text) == (200, True)
    letter = house.get(f"/failures/letters?q={house.own.letter}", cookie)
    assert (letter.status_code, letter.headers["location"]) == (303, f"../failures/letters/{house.own.letter}")


def test_a_search_of_contents_is_for_those_who_may_see_them_and_acts_on_what_it_found(house: DashboardHouse) -> None:
    viewer = house.get("/jobs", house.session(("viewer",)), params={"q": "args.user_id:1"}).text
    assert "your roles do not show what they look into" in viewer
    operator = house.session(("operator",), OWN)
    for q in ("error:address", "args.note:x"):  # Those of dead jobs are for managers.
        assert "No job matches." in house.get("/jobs", operator, params={"q": q}).text
    asked = house.get("/jobs/many", operator, params={"act": "cancel", "q": "args.user_id:3", "all": "1"}).text
    assert "Cancel 1 job?" in asked
    assert f'name="id" value="{house.own.ready}"' in asked
    assert house.post("/jobs/many", operator, {"act": "cancel", "q": "args.user_id:3"}).status_code == 422


@pytest.mark.parametrize("text", ['say "hi"', "it's", "back\\slash", "a b:c", "<svg onload=x>", "status:dead"])
def test_jobs_of_one_correlation_are_a_link_away_whatever_it_is_called(house: DashboardHouse, text: str) -> None:
    send, cookie = house.app.tasks["mail.send"].using(tenant=OWN, correlation_id=text), house.session()
    one, other = (send.enqueue(user_id=number).id for number in (1, 2))
    [link] = [link for link in links(house.get(f"/jobs/{one}", cookie).text) if "correlation_id" in link]
    listed = house.get(f"/{link.removeprefix('../')}", cookie).text
    assert set(re.findall(r"jobs/([0-9a-f-]{36})", listed)) == {str(one), str(other)}


@pytest.mark.parametrize("q", ["status:funny", "colour:red", "failed", 'type:"', "enqueued_from:soon", "tenant:"])
def test_a_wrong_search_says_what_is_wrong_and_lists_nothing(house: DashboardHouse, q: str) -> None:
    page = house.get("/jobs", house.session(), params={"q": q})
    assert page.status_code == 200
    assert 'role="alert"' in page.text
    assert str(house.own.done) not in page.text


def test_the_chosen_tenant_stays_chosen(house: DashboardHouse) -> None:
    cookie = house.session()
    page = house.get("/?tenant=acme", cookie).text
    assert all("tenant=acme" in link for link in links(page) if "login" not in link), links(page)
    jobs = house.get("/jobs?tenant=acme", cookie).text
    assert str(house.own.ready) in jobs
    assert str(house.foreign.ready) not in jobs
    assert house.get("/jobs?tenant=", cookie).status_code == 200
    assert house.get("/jobs?tenant=globex", house.session(EVERY_ROLE, OWN)).status_code == 404


def limits(house: DashboardHouse, count: int) -> None:
    for number in range(count):
        limit = Limit(kind="tenant", name=f"name-{number:04}", running=1)
        house.app.runtime.access.run(SetLimit(limit=limit, by="eve"))


def workers(house: DashboardHouse, count: int) -> None:
    for number in range(count):
        worker = WorkerId(house.app.runtime.new_job_id())
        house.app.runtime.access.run(Renew(worker=worker, lease_s=600.0, name=f"name-{number:04}"))


def breakers(house: DashboardHouse, count: int) -> None:
    for number in range(count):
        house.app.breakers.reset(f"name-{number:04}", by="eve")


@pytest.mark.parametrize("fill", [limits, workers, breakers])
def test_a_page_of_very_many_stays_small_and_leads_to_the_rest(
    house: DashboardHouse, fill: Callable[[DashboardHouse, int], None]
) -> None:
    fill(house, 120)
    cookie, path, seen = house.session(), f"/{fill.__name__}", list[str]()
    while path:
        page = house.get(path, cookie)
        rows = re.findall(r"name-\d{4}(?=</th>)", page.text)
        assert (page.status_code, len(rows) <= 50, " of 12" in page.text) == (200, True, True)
        seen += rows
        path = next((f"/{link.removeprefix('./')}" for link in links(page.text) if "cursor=" in link), "")
    assert sorted(seen) == [f"name-{number:04}" for number in range(120)]
    beyond = house.get(f"/{fill.__name__}?cursor=99999", cookie).text  # Some are gone since: the last ones are shown.
    assert re.search(r"101 to (12\d) of \1<", beyond)


@pytest.mark.parametrize(
    ("named", "badge"),
    [
        (None, '<span class="environment">development</span>'),
        ("staging", '<span class="environment">staging</span>'),
        ("Production", '<span class="environment production">Production</span>'),
    ],
)
def test_the_header_names_the_environment_or_else_the_profile(
    house: DashboardHouse, monkeypatch: pytest.MonkeyPatch, named: str | None, badge: str
) -> None:
    monkeypatch.setattr(house.app.runtime, "settings", replace(house.app.runtime.settings, environment=named))
    assert badge in house.get("/", house.session()).text
    assert "environment" not in house.get("/login").text


def switched(house: DashboardHouse, path: str, cookie: str, tenant: str) -> httpx.Response:
    """The page that the tenant field of the header leads to, as a browser submits it."""
    page = house.get(path, cookie)
    [(action, inside)] = re.findall(r'<form class="tenant" method="get" action="([^"]*)"(.*?)</form>', page.text, re.S)
    fields = [
        (name, unescape(value)) for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', inside)
    ]
    address = page.url.join(unescape(action)) if action else page.url
    query = urlencode([*fields, ("tenant", tenant)])
    return house.get(f"{address.path}?{query}", cookie)


@pytest.mark.parametrize("name", GATED)
def test_another_tenant_can_be_chosen_on_every_page(house: DashboardHouse, name: str) -> None:
    page = switched(house, address_of(name, PAGES[name](house, house.own)), house.session(), "globex")
    assert (page.status_code, 'value="globex" placeholder="all tenants"' in page.text) == (200, True)


@pytest.mark.parametrize(
    ("path", "leads_to"),
    [
        ("/jobs?q=status:dead+type:%22a+b%22&cursor=9", "/jobs?q=status:dead+type:%22a+b%22"),
        ("/failures?q=status:discarded", "/failures?q=status:discarded"),
        ("/failures?q=tenant:acme", "/failures?q="),
        ("/jobs?q=tenant:acme+status:dead+type:%22a+b%22", "/jobs?q=status:dead+type:%22a+b%22"),
        ("/jobs?q=tenant:acme+%22", "/jobs?q=tenant:acme+%22"),
        ("/failures/letters?q=status:discarded&did=act_on_jobs&n=3", "/failures/letters?q=status:discarded"),
        ("/charts?by=queue&range=6h", "/charts?by=queue&range=6h"),
        ("/tenants/one?name=acme&range=6h", "/tenants?range=6h"),
        ("/jobs/many?act=cancel&all=1&q=status:pending", "/jobs?q=status:pending"),
        ("/failures/many?act=discard&all=1&q=status:discarded", "/failures?q=status:discarded"),
        ("/jobs/many?act=dance", "/"),
    ],
)
def test_the_search_of_a_page_outlasts_the_choice_of_another_tenant(
    house: DashboardHouse, path: str, leads_to: str
) -> None:
    url = switched(house, path, house.session(), "globex").url
    wanted = httpx.URL(leads_to)
    assert (url.path, url.params) == (wanted.path, wanted.params.set("tenant", "globex"))


def test_a_job_says_what_its_figures_mean_and_that_its_log_was_cut(house: DashboardHouse) -> None:
    cookie = house.session(EVERY_ROLE, OWN)
    page = house.get(f"/jobs/{house.own.done}", cookie).text
    assert "<dt>Failed attempts</dt><dd>0 of" in page
    assert "<progress" not in page
    assert "older ones are not kept" not in page
    for number in range(LOG_LINES + 1):
        house.log(house.own.running, f"line {number}")
    page = house.get(f"/jobs/{house.own.running}", cookie).text
    assert ("The newest 100 lines; older ones are not kept." in page, "line 0<" in page) == (True, False)
