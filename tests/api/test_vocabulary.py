"""One vocabulary: a thing has the same field names for the client, on the command line (`--json`) and in the HTTP API.

Only the routes for dead letters below `admin/` have names of their own, those of the documents they were asked for in.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec import Struct

from fairlane.cli.main import cli
from fairlane.core import job, ops, workflows
from fairlane.core.ids import JobId
from fairlane.core.ops import CaughtException, Listing, ReportExceptions
from tests.api.house import EVERY_ROLE, OWN, ShopHouse
from tests.api.test_schema import DOCUMENT

DOCUMENTS_NAMES = {"job_type", "job_method", "dlq_id", "dlq_items", "attempt_count", "original_created_at"}
"""Names of seed documents for `type`, `id`, `attempts` and `enqueued_at`."""
OPEN_ENDED = {"payload", "result", "headers", "refs", "figures", "data", "before", "after", "value"}
"""Fields that hold whatever an application or an act put there."""

# Of each thing: how the client is asked, the command, the path of the API, and the name of the list in their answers.
LISTINGS: dict[str, tuple[str, str, str, str]] = {
    "jobs": ("jobs.list", "jobs list", "", "jobs"),
    "schedules": ("schedules.list", "schedules list", "schedules/", "schedules"),
    "pauses": ("pauses.list", "pauses", "pauses/", "pauses"),
    "limits": ("limits.list", "limits list", "limits/", "limits"),
    "keys": ("limits.keys", "limits list --keys", "limits/keys/", "keys"),
    "breakers": ("breakers.list", "breakers list", "breakers/", "breakers"),
    "tenants": ("tenants.list", "tenants list", "tenants/", "tenants"),
    "workers": ("workers.list", "workers list", "workers/", "workers"),
    "exceptions": ("workers.exceptions", "workers exceptions", "workers/exceptions/", "exceptions"),
    "workflows": ("workflows.list", "workflows list", "workflows/", "workflows"),
    "audit": ("audit.list", "audit list", "audit/", "records"),
    "tokens": ("tokens.list", "tokens list", "tokens/", "credentials"),
    "dead letter groups": ("dead_letters.groups", "dead-letters groups", "admin/dlq/groups/", "groups"),
}
OF_THE_API_ALONE = {"priority_label"}
"""What the client has as a property."""


@pytest.fixture
def house(built_on_sqlite: ShopHouse) -> ShopHouse:
    house = built_on_sqlite.furnish()
    house.app.queues.pause("bulk", by="eve")
    flow = house.app.workflow("onboard")
    flow.add(house.app.tasks["mail.send"].bind(user_id=1))
    flow.enqueue()
    assert house.own.held
    caught = CaughtException(
        id=JobId(house.own.dead),
        task="mail.send",
        tenant=OWN,
        attempt=1,
        type="OSError",
        error="no route",
        error_class="transient",
        is_final=False,
        at=house.clock.now(),
    )
    worker = house.app.workers.list().workers[0]
    house.app.runtime.store.run(ReportExceptions(worker=worker.id, exceptions=(caught,)))
    return house


def names_in(value: object) -> Iterator[str]:
    """The names of fields, also of what is nested in them."""
    if isinstance(value, Struct):
        value = {name: getattr(value, name) for name in value.__struct_fields__}
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            if name not in OPEN_ENDED:
                yield from names_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from names_in(inner)


def asked_of_the_client(house: ShopHouse, verb: str, name: str) -> Any:
    noun, _, method = verb.partition(".")
    answer = getattr(getattr(house.app, noun), method)()
    return answer if isinstance(answer, tuple) else getattr(answer, name)


@pytest.mark.parametrize("thing", LISTINGS)
def test_a_thing_has_the_same_names_for_client_command_line_and_api(house: ShopHouse, thing: str) -> None:
    verb, command, path, name = LISTINGS[thing]
    given = asked_of_the_client(house, verb, name)
    ran = CliRunner().invoke(cli, [*command.split(), "--json", "--url", house.app.runtime.settings.url])
    assert ran.exit_code == 0, ran.output
    answer = house.call("GET", f"/api/jobs/{path}", house.token(EVERY_ROLE))
    assert answer.status_code == 200, answer.text
    of_client, of_command = set(names_in(given)), set(names_in(json.loads(ran.stdout)[name]))
    of_api = set(names_in(answer.json()[name])) - OF_THE_API_ALONE
    assert given
    assert of_command == of_client
    assert of_api <= of_client
    assert not of_client & DOCUMENTS_NAMES


def test_a_job_has_an_id_a_type_and_when_it_was_enqueued_wherever_it_is_shown(house: ShopHouse) -> None:
    job_id, token = str(house.own.ready), house.token(EVERY_ROLE)
    ran = CliRunner().invoke(cli, ["jobs", "show", job_id, "--json", "--url", house.app.runtime.settings.url])
    detail = house.app.jobs.detail(job_id)
    assert detail is not None
    answer = house.call("GET", f"/api/jobs/{job_id}/", token).json()
    assert set(json.loads(ran.stdout)) == set(detail.__struct_fields__) == set(answer) - {"children"}
    of_faces = [
        json.loads(ran.stdout)["job"],
        answer["job"],
        house.call("GET", f"/api/jobs/{job_id}/why/", token).json()["job"],
    ]
    for shown in of_faces:
        assert (shown["id"], shown["type"], shown["enqueued_at"][:4]) == (
            job_id,
            "mail.send",
            str(house.clock.now().year),
        )
    table = CliRunner().invoke(cli, ["jobs", "list", "--url", house.app.runtime.settings.url]).stdout
    assert table.split("\n")[0].split()[:4] == ["NUMBER", "ID", "TYPE", "STATUS"]


def test_a_jobs_number_is_accepted_wherever_its_id_is(house: ShopHouse) -> None:
    token, found = house.token(EVERY_ROLE), house.app.jobs.get(house.own.ready)
    assert found is not None
    for path in (f"{found.seq}/", f"admin/queue/{found.seq}/"):
        assert house.call("GET", f"/api/jobs/{path}", token).json()["job"]["id"] == str(found.id)
    assert house.call("GET", f"/api/jobs/{found.seq}/why/", token).json()["job"]["id"] == str(found.id)
    bound = house.call("GET", f"/api/jobs/{found.seq}/", house.token(EVERY_ROLE, tenant="globex"))
    assert (bound.status_code, bound.json()["code"]) == (404, "not_found")
    assert house.call("POST", f"/api/jobs/{found.seq}/cancel/", token).json()["status"] == "cancelled"
    assert house.call("GET", "/api/jobs/99999/", token).status_code == 404
    [workflow] = house.app.workflows.list(name="onboard", limit=1).workflows
    shown = house.call("GET", f"/api/jobs/workflows/{workflow.seq}/", token).json()["workflow"]
    assert (shown["id"], shown["seq"]) == (str(workflow.id), workflow.seq)


def test_names_of_the_documents_are_on_the_admin_routes_alone() -> None:
    schemas = DOCUMENT["components"]["schemas"]

    def reached(node: Any, seen: set[str]) -> set[str]:
        if isinstance(node, dict):
            name = str(node.get("$ref", "")).rpartition("/")[2]
            if name and name not in seen:
                seen.add(name)
                reached(schemas[name], seen)
            for inner in node.values():
                reached(inner, seen)
        elif isinstance(node, list):
            for inner in node:
                reached(inner, seen)
        return seen

    for path, methods in DOCUMENT["paths"].items():
        if not path.startswith("/api/jobs/admin/dlq/"):
            names = {name for schema in reached(methods, set()) for name in schemas[schema].get("properties", {})}
            assert not names & DOCUMENTS_NAMES, path
    for module in (job, ops, workflows):
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Struct) and not issubclass(value, Listing):
                assert not set(value.__struct_fields__) & DOCUMENTS_NAMES, value
