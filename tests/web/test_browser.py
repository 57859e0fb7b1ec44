"""The pages in Chromium: logging in, acting, keys, live updates, no scripts, dark and small screens, hostile names."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect

from fairlane import Fairlane, Retry, step
from fairlane.core.ops import EVENT_KINDS, AddEvents, EventDraft, StatRow
from fairlane.testing import run_due
from fairlane.web import assets
from tests.api.house import EVERY_ROLE, shop
from tests.faults.eventually import eventually
from tests.servers.valkey import ValkeyServer
from tests.web.hostile import HOSTILE
from tests.web.house import DashboardHouse
from tests.web.requests import PAGES, address_of
from tests.web.test_statistics import add

PHONE = {"width": 390, "height": 800}
NO_POLLING = "const soon = setTimeout; window.setTimeout = (act, ms) => (ms > 9000 ? 0 : soon(act, ms));"
"""Drops the reading every ten seconds that goes on without events."""
SOONER = "const soon = setTimeout; window.setTimeout = (act, ms) => soon(act, ms / 5);"
EVERY_RULE = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[DashboardHouse, str]]:
    house = DashboardHouse(shop())
    with house.served() as address:
        yield house, address
    house.app.close()


class Visit:
    """Somebody at a browser; remembers what the browser complained of."""

    def __init__(self, browser: Browser, house: DashboardHouse, address: str) -> None:
        self._browser, self.house, self.address = browser, house, address
        self.complaints: list[str] = []
        self._contexts: list[BrowserContext] = []

    def open(self, path: str = "/", roles: tuple[str, ...] = EVERY_ROLE, script: str = "", **options: Any) -> Page:
        context = self._browser.new_context(**options)
        self._contexts.append(context)
        context.add_init_script(script)
        context.add_init_script(
            "addEventListener('securitypolicyviolation', (e) => console.error('CSP ' + e.blockedURI))"
        )
        page = context.new_page()
        page.on("console", lambda message: self.complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        page.goto(f"{self.address}/login?link={self.house.link(roles)}")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        if path != "/":
            page.goto(self.address + path)
        return page

    def close(self) -> None:
        for context in self._contexts:
            context.close()


@pytest.fixture
def visit(chromium: Browser, served: tuple[DashboardHouse, str]) -> Iterator[Visit]:
    house, address = served
    house.furnish()
    visit = Visit(chromium, house, address)
    yield visit
    visit.close()
    assert visit.complaints == []


def show(page: Page, name: str) -> None:
    """A picture for people, where they want one: SCREENSHOTS=folder."""
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)


def happen(house: DashboardHouse) -> None:
    """What a worker reports while somebody watches."""
    house.app.runtime.access.run(AddEvents(events=(EventDraft(kind="jobs", tenant="acme", data={"completed": 1}),)))


def ready(page: Page) -> None:
    """Its scripts have begun."""
    expect(page.locator("#theme")).to_be_visible()


def until_shown(page: Page, house: DashboardHouse, count: int) -> None:
    """Until so many rows are shown; things happen on the way, since a stream begins some time after its page."""
    for _ in range(40):
        happen(house)
        if page.locator("table.rows tbody tr").count() == count:
            return
        page.wait_for_timeout(250)
    expect(page.locator("table.rows tbody tr")).to_have_count(count)


@pytest.mark.parametrize(("scheme", "rules"), [("light", EVERY_RULE), ("dark", ["color-contrast"])])
def test_every_page_is_accessible_and_fits_in_light_and_dark_and_on_a_phone(
    visit: Visit, scheme: Any, rules: list[str]
) -> None:
    page = visit.open(color_scheme=scheme)
    for name in PAGES:
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto(visit.address + address_of(name, PAGES[name](visit.house, visit.house.own)))
        found = Axe().run(page, options={"runOnly": rules, "resultTypes": ["violations"]})
        assert found.violations_count == 0, f"{name}: {found.generate_report()}"
        show(page, f"{name}-{scheme}-desktop")
        page.set_viewport_size(PHONE)
        show(page, f"{name}-{scheme}-phone")
        if page.locator("nav [aria-current]").count():
            expect(page.locator("nav [aria-current]")).to_be_in_viewport()
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], name
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(19, 20, 22)") == (scheme == "dark")


def test_the_theme_can_be_chosen_and_stays(visit: Visit) -> None:
    page = visit.open(color_scheme="light")
    ready(page)
    page.keyboard.press("t")
    page.goto(f"{visit.address}/jobs")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(19, 20, 22)"


def test_a_person_with_a_keyboard_finds_a_job_and_cancels_it(visit: Visit) -> None:
    page = visit.open()
    ready(page)
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.wait_for_url("**/jobs")
    ready(page)
    page.keyboard.press("/")
    page.keyboard.type("status:pending tenant:acme")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=status*")
    ready(page)
    page.keyboard.press("j")
    expect(page.locator("[data-row]")).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/*")
    page.locator("summary", has_text="Cancel").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("by keyboard")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text(re.compile("cancelled"))
    expect(page).not_to_have_url(re.compile("did="))
    record = visit.house.app.audit.list(limit=1).records[0]
    assert (record.action, record.notes) == ("job_cancel", "by keyboard")
    ready(page)
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keys")).to_be_visible()


def test_without_scripts_people_read_search_and_act(visit: Visit) -> None:
    page = visit.open("/jobs", java_script_enabled=False)
    page.get_by_label("Search jobs").fill("status:pending tenant:acme")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="mail.send").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("mail.send")
    page.locator("summary", has_text="Bury").click()
    page.get_by_label("Reason").locator("visible=true").fill("no scripts")
    page.get_by_role("button", name="Bury the job").click()
    expect(page.get_by_role("status")).to_have_text("The job is with the dead letters.")
    expect(page.locator(".badge").first).to_have_text("dead")
    page.goto(f"{visit.address}/jobs")
    page.get_by_role("combobox", name="Tenant").fill("globex")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**tenant=globex*")
    assert set(page.locator("table.rows tbody td:nth-child(5)").all_inner_texts()) == {"globex"}


def test_rows_are_selected_and_acted_on_after_their_number_is_shown(visit: Visit) -> None:
    page = visit.open("/failures/letters")
    ready(page)
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator("[data-selected]")).to_have_text("1 selected")
    page.get_by_label("Select all rows of this page").check()
    expect(page.locator("[data-selected]")).to_have_text("2 selected")
    page.get_by_label("Act", exact=True).select_option("discard")
    page.get_by_role("button", name="Selected…").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Discard 2 dead letters?")
    page.get_by_label("Reason").fill("spam")
    page.get_by_role("button", name="Discard 2 dead letters").click()
    expect(page.get_by_role("status")).to_have_text("2 dead letters discarded.")
    assert visit.house.app.dead_letters.counts()["discarded"] == 2


def test_a_viewer_is_offered_nothing_to_do(visit: Visit) -> None:
    page = visit.open(f"/jobs/{visit.house.own.ready}", ("viewer",))
    expect(page.get_by_role("heading", level=1)).to_have_text("mail.send")
    expect(page.locator("details.action")).to_have_count(0)


@pytest.mark.requirement("I13")
def test_a_page_follows_what_happens_and_waits_while_somebody_reads(visit: Visit) -> None:
    page = visit.open("/jobs?q=type:mail.send")
    rows = page.locator("table.rows tbody tr")
    count = rows.count()
    expect(page.locator("body")).to_have_attribute("data-stream", "open")
    send = visit.house.app.tasks["mail.send"].using(tenant="acme")
    send.enqueue(user_id=1)
    until_shown(page, visit.house, count + 1)
    page.evaluate("getSelection().selectAllChildren(document.querySelector('table.rows tbody th'))")
    send.enqueue(user_id=2)
    happen(visit.house)
    expect(page.locator("#live")).to_have_text("Waiting", timeout=8_000)
    assert rows.count() == count + 1
    page.evaluate("getSelection().removeAllRanges()")
    until_shown(page, visit.house, count + 2)
    page.keyboard.press("p")
    expect(page.locator("#live")).to_have_text("Paused")


@pytest.mark.requirement("I13")
def test_the_overview_and_the_page_of_a_job_follow_a_real_worker_by_its_events_alone(chromium: Browser) -> None:
    app, may_end = Fairlane("memory://"), threading.Event()

    @app.task(name="mail.slow")
    def slow() -> None:
        assert may_end.wait(60)

    house = DashboardHouse(app)
    with app.running(), house.served() as address:
        visit = Visit(chromium, house, address)
        overview = visit.open(script=NO_POLLING)
        expect(overview.locator("#new")).to_contain_text("No jobs yet.")
        app.queues.pause("default", by="eve")
        job, _ = slow.enqueue(), slow.using(delay=3600).enqueue()
        page = visit.open(f"/jobs/{job.id}", script=NO_POLLING)
        expect(page.locator("#title .badge")).to_have_text("pending")
        expect(page.locator("#why")).to_contain_text('Queue "default" is paused by eve.')
        app.queues.resume("default", by="eve")
        for one in (overview, page):
            expect(one.locator("body")).to_have_attribute("data-stream", "open")
        eventually(lambda: bool(app.events.list(kinds=("watch_started",)).events))  # From now on workers report ends.
        may_end.set()
        expect(page.locator("#title .badge")).to_have_text("completed", timeout=20_000)
        expect(page.locator("#timeline")).to_contain_text("Attempt 1 completed")
        expect(page.locator("#why")).to_have_count(0)
        expect(overview.locator("#new")).to_have_count(0, timeout=20_000)
        visit.close()
    house.close()
    assert visit.complaints == []


@pytest.mark.requirement("I13", "D27")
def test_an_open_page_says_that_its_figures_are_old_while_the_store_is_away_and_heals_by_itself(
    chromium: Browser,
) -> None:
    with ValkeyServer(appendonly="yes", appendfsync="always") as store:
        app = Fairlane(store.url)
        send = app.task(name="mail.send")(charge)
        house = DashboardHouse(app)
        with house.served() as address:
            visit = Visit(chromium, house, address)
            send.enqueue()
            page = visit.open("/jobs", script=SOONER)
            live, stale, age = page.locator("#live"), page.locator("#stale"), page.locator("tbody time").first
            expect(live).to_have_text("Live")
            expect(stale).to_be_hidden()
            store.stop()
            expect(live).to_have_text("Stale", timeout=20_000)
            expect(live).to_have_attribute("aria-pressed", "false")
            expect(stale).to_have_text(
                re.compile(r"The store is away\. These are the figures of [\d:]{8} UTC, \d+ s ago")
            )
            before = age.text_content()
            assert before is not None
            expect(age).not_to_have_text(before)
            show(page, "stale")
            store.start()
            send.enqueue()
            expect(live).to_have_text("Live", timeout=20_000)
            expect(stale).to_be_hidden()
            expect(page.locator("table.rows tbody tr")).to_have_count(2)
        expect(stale).to_contain_text("The server is away.", timeout=20_000)
        visit.close()
        app.close()
    assert [text for text in visit.complaints if "Failed to load resource" not in text] == []


def test_pages_listen_to_kinds_that_there_are() -> None:
    listened = re.search(r"const KINDS = \[(.*?)\]", assets.FILES["live.js"].decode(), re.S)
    assert listened is not None
    assert set(re.findall(r'"(\w+)"', listened[1])) <= set(EVENT_KINDS)


def test_charts_answer_the_pointer_and_a_span_is_chosen_by_dragging(visit: Visit) -> None:
    house = visit.house
    minute = house.clock.now().replace(second=0, microsecond=0) - timedelta(minutes=20)
    add(
        house, StatRow(minute=minute, type="mail.send", queue="default", tenant="acme", completed=7, run_buckets={9: 7})
    )
    page = visit.open("/charts")
    ready(page)
    chart = page.locator("#chart-1 svg")
    box = chart.bounding_box()
    assert box is not None

    def steps() -> list[str]:
        return (chart.get_attribute("data-tips") or "").split("|")

    def point(step: int) -> None:
        page.mouse.move(box["x"] + box["width"] * (step + 0.5) / len(steps()), box["y"] + 60)

    point(40)
    expect(page.locator("#chart-1 .tip")).to_have_text(re.compile(r"completed +7\n?failed +0"))
    page.mouse.down()
    point(46)
    expect(page.locator("#chart-1 .mark.chosen")).to_have_count(1)
    page.mouse.up()
    page.wait_for_url("**since=*")
    assert len(steps()) == 7
    page.mouse.move(0, 0)
    expect(page.locator(".tip, .mark")).to_have_count(0)
    page.get_by_role("link", name="24h").click()
    page.wait_for_url("**range=24h*")


def charge() -> str:
    return step("charge the card", lambda: "paid")


@pytest.mark.requirement("L18")
@pytest.mark.parametrize("has_scripts", [True, False])
def test_a_workflow_is_followed_from_its_graph_to_its_jobs_and_cancelled(visit: Visit, has_scripts: bool) -> None:
    app = visit.house.app
    task = app.task(name=f"shop.charge.{has_scripts}", queue="checkout")(charge)
    flow = app.workflow("checkout")
    flow.chain(task.bind(), app.tasks["mail.send"].bind(user_id=7))
    handle = flow.enqueue()
    with ThreadPoolExecutor(1) as elsewhere:  # Here the browser has an event loop, which a step would block.
        elsewhere.submit(run_due, app, queues=("checkout",)).result()
    page = visit.open("/workflows", java_script_enabled=has_scripts)
    page.get_by_role("link", name="checkout").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("checkout")
    page.locator(".graph a").filter(has_text="completed").click()
    expect(page.locator("#steps")).to_contain_text("charge the card")
    page.get_by_role("link", name=str(handle.id)).click()
    page.locator("#actions summary").filter(has_text="Cancel").click()
    page.get_by_role("button", name="Cancel the workflow").click()
    expect(page.locator("#title .badge")).to_have_text("cancelled")
    expect(page.locator(".said")).to_contain_text("cancelled")


def charge_in_vain() -> None:
    step("charge the card " * 20, lambda: "paid")
    raise OSError("no answer")


def test_what_was_opened_and_scrolled_stays_so_when_a_part_of_the_page_goes(visit: Visit) -> None:
    app = visit.house.app
    job = app.task(name="shop.vain", queue="vain", retry=Retry(delays=(3600,)))(charge_in_vain).enqueue()
    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(run_due, app, queues=("vain",)).result()
    page = visit.open(f"/jobs/{job.id}", viewport=PHONE)
    expect(page.locator("body")).to_have_attribute("data-stream", "open")
    expect(page.locator("#why")).to_have_count(1)
    page.locator("#traceback-1 > summary").click()
    page.evaluate(
        "document.activeElement.blur(); document.querySelector('#steps .scroll').scrollLeft = 40; scrollTo(0, 0)"
    )
    app.jobs.cancel(job, by="eve")
    for _ in range(40):
        happen(visit.house)
        if page.locator("#why").count() == 0:
            break
        page.wait_for_timeout(250)
    expect(page.locator("#title .badge")).to_have_text("cancelled")
    assert page.evaluate("document.querySelector('#steps .scroll').scrollLeft") == 40
    expect(page.locator("#traceback-1")).not_to_have_attribute("open", "")


def test_nothing_that_anybody_writes_is_ever_executed(visit: Visit) -> None:
    app, house = visit.house.app, visit.house
    assert len(HOSTILE) == 300
    send = app.tasks["mail.send"]
    for number, text in enumerate(HOSTILE):
        name = "".join(char for char in f"{number}{text}" if char.isprintable())
        options: Any = {"tenant": name[:128], "correlation_id": name, "idempotency_key": name, "created_by": name}
        job = send.using(**options, headers={"trace": name}).enqueue(user_id=number, note=text)
        app.jobs.bury(job.id, f"{text} {number}", by=name, notes=text)
    app.queues.pause("default", by=HOSTILE[0], notes=HOSTILE[1])
    app.tokens.create(HOSTILE[1], ("viewer",), by=HOSTILE[2])
    names = ["".join(char for char in f"{number}{text}" if char.isprintable()) for number, text in enumerate(HOSTILE)]
    flow = app.workflow(names[0])
    nodes = [flow.add(send.bind(user_id=1), name=name) for name in names[:10]]
    flow.chain(*(send.bind(user_id=1) for _ in range(2)), after=nodes)
    workflow = flow.enqueue().id
    page = visit.open()

    def open_unharmed(path: str) -> None:
        answer = page.goto(visit.address + path)
        assert answer is not None
        assert answer.status in {200, 303}, path
        assert page.evaluate("window.pwned") is None, path
        assert page.url.startswith(visit.address), path

    jobs, letters = app.jobs.list(limit=200).jobs, app.dead_letters.list(limit=200).dead_letters
    paths = [address_of(name, PAGES[name](house, house.own)) for name in PAGES]
    paths += [f"/{place}&cursor={row.seq}" for place in ("jobs?q=",) for row in jobs[::50]]
    paths += [f"/failures/letters?q=&cursor={letter.id}" for letter in letters[::50]]
    paths += [f"/jobs/{job.id}" for job in jobs[::40]] + [f"/failures/letters/{letter.id}" for letter in letters[::40]]
    paths += [f"/jobs?{urlencode({'q': text, 'tenant': 'x'})}" for text in HOSTILE[::60]]
    paths += [f"/login?{urlencode({'link': text})}" for text in HOSTILE[::60]] + [f"/workflows/{workflow}"]
    for path in paths:
        open_unharmed(path)
