"""Workflows on pages and in the API: drawn within bounds, listed by state, cancelled and run again."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from uuid import uuid4

import pytest

from fairlane.client.admin.workflows import WorkflowGraph
from fairlane.core.ids import JobId, Seq
from fairlane.core.workflows import Node, Tally, Workflow, WorkflowId
from fairlane.errors import NotFound
from fairlane.testing import run_due
from fairlane.web.workflow_graph import MOST_ABREAST, MOST_LAYERS, draw
from tests.api.house import CANARY, EVERY_ROLE, OWN
from tests.web.hostile import HOSTILE
from tests.web.house import DashboardHouse

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def graph(parents: dict[str, tuple[str, ...]], task: str = "shop.work") -> WorkflowGraph:
    nodes = tuple(
        Node(
            n=n,
            name=name,
            gate=None,
            counts_for=(),
            waiting=bool(parents[name]),
            job_id=JobId(uuid4()),
            job_seq=Seq(n),
            type=task,
            status="pending",
            attempts=0,
            enqueued_at=NOON,
            started_at=None,
            finished_at=None,
            last_error=None,
        )
        for n, name in enumerate(parents)
    )
    tally = Tally(total=len(nodes), waiting=0, completed=0, dead=0, cancelled=0, skipped=0)
    workflow = Workflow(
        id=WorkflowId(uuid4()),
        seq=Seq(1),
        name="w",
        tenant=OWN,
        status="running",
        tally=tally,
        idempotency_key=None,
        correlation_id="c",
        created_by=None,
        enqueued_at=NOON,
        cancelled_at=None,
    )
    return WorkflowGraph(workflow=workflow, dead=(), nodes=nodes, parents=parents)


def layered(count: int, abreast: int) -> dict[str, tuple[str, ...]]:
    """Layers of so many nodes, each after all of the layer before it."""
    names = [[f"n{layer}-{place}" for place in range(abreast)] for layer in range(count)]
    behind = [(), *map(tuple, names)]
    return {name: behind[layer] for layer in range(count) for name in names[layer]}


def test_a_fan_is_drawn_from_left_to_right_with_a_line_for_each_parent() -> None:
    drawing = draw(graph({"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}))
    at = {box.label: (box.x, box.y) for box in drawing.boxes}
    assert at["a"][0] < at["b"][0] == at["c"][0] < at["d"][0]
    assert at["a"][1] == at["d"][1] == (at["b"][1] + at["c"][1]) / 2
    assert (drawing.lines.count("M"), drawing.is_folded) == (4, False)
    assert [box.says for box in drawing.boxes] == ["pending", "waiting", "waiting", "waiting"]


def test_a_long_chain_is_drawn_downwards_and_boxes_stand_in_the_order_of_their_parents() -> None:
    drawing = draw(graph(layered(10, 1)))
    assert len({box.x for box in drawing.boxes}) == 1
    assert [box.y for box in drawing.boxes] == sorted(box.y for box in drawing.boxes)
    crossed = draw(graph({"a": (), "b": (), "of b": ("b",), "of a": ("a",)}))
    at = {box.label: box.y for box in crossed.boxes}
    assert (at["a"] < at["b"], at["of a"] < at["of b"]) == (True, True)


@pytest.mark.parametrize(("count", "abreast"), [(100, 100), (3, 2000), (2000, 1), (100, 12), (1, 1)])
def test_a_drawing_stays_small_however_large_its_workflow(count: int, abreast: int) -> None:
    drawing = draw(graph(layered(count, abreast)))
    assert len(drawing.boxes) <= MOST_LAYERS * MOST_ABREAST
    assert drawing.lines.count("M") <= 1_000
    assert sum(len(box.names) for box in drawing.boxes) == count * abreast
    assert drawing.width <= 3_000
    assert drawing.height <= 5_000


@pytest.mark.requirement("L18")
def test_workflows_are_listed_by_state_and_shown_with_their_nodes(house: DashboardHouse) -> None:
    cookie, mine = house.session(), house.own
    assert mine.workflow != house.foreign.workflow
    listed = house.get("/workflows?status=running", cookie).text
    assert re.findall(r"data-row>([^<]+)<", listed) == [f"onboard.{CANARY}", "onboard.note-of-acme"]
    assert "No workflow matches." in house.get("/workflows?status=completed", cookie).text
    assert "No workflow matches." in house.get("/workflows?name=none", cookie).text
    page = house.get(f"/workflows/{mine.workflow}", cookie).text
    assert re.findall(r'<text x="12" y="20">([^<]+)<', page) == ["first", "last"]
    assert re.findall(r"data-row>([^<]+)<", page) == ["first", "last"]
    nodes = house.app.workflows.handle(mine.workflow).nodes()
    assert page.count(f"jobs/{nodes[0].job_id}") == 2
    job = house.get(f"/jobs/{nodes[1].job_id}", cookie).text
    assert f"workflows/{mine.workflow}" in job
    assert ", node last" in job
    assert house.get(f"/workflows/{house.foreign.workflow}", house.session(EVERY_ROLE, OWN)).status_code == 404


def test_a_status_is_looked_for_further_back_page_by_page(
    house: DashboardHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane.client.admin.workflows.MAX_PAGE", 1)
    monkeypatch.setattr("fairlane.client.admin.workflows.MOST_LISTS", 1)
    admin = house.app.workflows
    assert house.own.workflow != house.own.ended  # The newest one is cancelled.
    newest = admin.list(status="running", limit=1)
    assert (newest.workflows, newest.next is not None) == ((), True)
    older = admin.list(status="running", limit=1, before=newest.next)
    assert [workflow.id for workflow in older.workflows] == [house.own.workflow]
    assert "Look at older ones" in house.get("/workflows?status=running", house.session()).text


def test_nodes_come_in_pages_where_a_workflow_is_too_large_to_draw(
    house: DashboardHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("web.pages.workflows", "api.routes.workflows"):
        monkeypatch.setattr(f"fairlane.{place}.MOST_DRAWN", 1)
    monkeypatch.setattr("fairlane.web.pages.workflows.NODES_A_PAGE", 1)
    page = house.get(f"/workflows/{house.own.workflow}", house.session()).text
    assert "is not drawn" in page
    assert 'rel="next">More' in page
    token = house.token(EVERY_ROLE)
    path = f"/api/jobs/workflows/{house.own.workflow}/?limit=1"
    first = house.call("GET", path, token).json()
    second = house.call("GET", f"{path}&cursor={first['next_cursor']}", token).json()
    names = [node["name"] for answer in (first, second) for node in answer["nodes"]]
    assert (names, second["next_cursor"], first["nodes"][0]["after"]) == (["first", "last"], None, None)


def test_a_workflow_is_cancelled_and_run_again_from_a_node(house: DashboardHouse) -> None:
    token = house.token(EVERY_ROLE)
    path = f"/api/jobs/workflows/{house.own.workflow}/"
    shown = house.call("GET", path, token).json()
    assert [(node["name"], node["after"], node["waiting"]) for node in shown["nodes"]] == [
        ("first", [], False),
        ("last", ["first"], True),
    ]
    assert "last_error" not in shown["nodes"][0]
    assert house.call("POST", f"{path}cancel/", token).json()["status"] == "cancelled"
    assert house.call("POST", f"{path}retry/", token, json={"node": "none"}).status_code == 404
    again = house.call("POST", f"{path}retry/", token, json={"node": "first", "notes": "because"}).json()
    assert (again["status"], again["tally"]["waiting"]) == ("running", 1)
    run_due(house.app)
    assert house.call("GET", path, token).json()["workflow"]["status"] == "completed"


@pytest.mark.requirement("W13")
@pytest.mark.parametrize("roles", [("viewer",), EVERY_ROLE], ids=["viewer", "bound"])
def test_a_workflow_is_hidden_from_other_tenants_and_its_acts_from_those_who_may_only_look(
    house: DashboardHouse, roles: tuple[str, ...]
) -> None:
    """By its id, by its number and by a part of its id, on pages and in the API; what is posted changes nothing."""
    cookie, token = house.session(roles, OWN), house.token(roles, OWN)
    own, foreign = (house.app.workflows.get(mine.workflow).workflow for mine in (house.own, house.foreign))
    assert CANARY not in house.get("/workflows", cookie).text
    before = house.facts()
    with pytest.raises(NotFound):
        house.app.workflows.id_of(str(foreign.id).rpartition("-")[2], tenant=OWN)
    for meant in (foreign.id, foreign.seq):
        assert house.call("GET", f"/api/jobs/workflows/{meant}/", token).status_code == 404, meant
        for act in ("cancel", "retry"):
            refused = house.call("POST", f"/api/jobs/workflows/{meant}/{act}/", token)
            assert refused.status_code == (403 if roles == ("viewer",) else 404), (meant, act)
            assert CANARY not in refused.text
    page = house.get(f"/workflows/{own.id}", cookie)
    assert (page.status_code, page.text.count('<details class="action')) == (200, 0 if roles == ("viewer",) else 1 + 1)
    for workflow in (foreign, own) if roles == ("viewer",) else (foreign,):
        for act in ("cancel", "retry"):
            answer = house.post(f"/workflows/{workflow.id}/{act}", cookie, {"node": "first"})
            assert answer.status_code == (403 if roles == ("viewer",) else 404)
    for node in house.app.workflows.handle(foreign.id).nodes():
        assert house.get(f"/jobs/{node.job_id}", cookie).status_code == 404
    assert house.get(f"/workflows?tenant={foreign.tenant}", cookie).status_code == 404
    assert house.facts() == before


class Elements(HTMLParser):
    """The names and attributes of a page's elements, as a browser would read them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes.update(name for name, _ in attrs)
        assert not [value for name, value in attrs if name in ("href", "action") and value and value.startswith("java")]


def test_names_of_workflows_and_nodes_are_never_markup_in_page_and_graph(house: DashboardHouse) -> None:
    send, cookie = house.app.tasks["mail.send"].using(tenant=OWN), house.session()
    plain = Elements(house.get(f"/workflows/{house.own.workflow}", cookie).text)
    listed = Elements(house.get("/workflows", cookie).text)
    texts = ["".join(char for char in f"{n}{text}" if char.isprintable()) for n, text in enumerate(HOSTILE)]
    for first in range(0, len(texts), 10):
        flow = house.app.workflow(texts[first])
        nodes = [flow.add(send.bind(user_id=1), name=text) for text in texts[first : first + 10]]
        flow.add(send.bind(user_id=1), after=nodes[:5], name="last")
        workflow = flow.enqueue().id
        page = house.get(f"/workflows/{workflow}", cookie).text
        assert page.count('class="box ') == 11
        found = Elements(page)
        assert (found.names - plain.names, found.attributes - plain.attributes) == (set(), set())
    found = Elements(house.get("/workflows", cookie).text)
    assert (found.names - listed.names, found.attributes - listed.attributes) == (set(), set())
