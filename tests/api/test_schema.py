"""The description of the API, tried by machine: no request it allows, or does not, leads to an answer it does not describe."""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from fairlane import Fairlane
from fairlane.api import create_api
from tests.api.house import EVERY_ROLE, OWN, ROLE_SETS, ShopHouse
from tests.api.requests import REQUESTS
from tests.api.test_matrix import MAY, RIGHT_OF

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
DOCUMENT = create_api(Fairlane("memory://")).openapi()
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
OPERATIONS = {
    result.ok().definition.raw["operationId"]: result.ok()
    for result in SCHEMA.get_all_operations()
    if result.ok().definition.raw["operationId"] != "watch_events"  # it never ends
}
CALLERS = [(who, tenant) for who in ("nobody", *ROLE_SETS, "every role") for tenant in (None, OWN)]
EXAMPLES, SENDERS, LONG = 6, 6, 20
"""Examples of each operation in both ways, and callers that send each, in turn: over five thousand requests in all, by every
caller to every operation. `make test-long` sends twenty times as many."""


def test_the_description_is_openapi_3_1_with_examples_and_rights() -> None:
    assert DOCUMENT["openapi"].startswith("3.1")
    assert len(OPERATIONS) == 78
    problem = DOCUMENT["components"]["schemas"]["ProblemDetails"]["properties"]["type"]
    assert problem["examples"] == ["urn:fairlane:problem:job_not_found"]
    for methods in DOCUMENT["paths"].values():
        for operation in methods.values():
            assert operation["summary"].endswith(".")
            assert operation["x-right"] in {"open", "known", "metrics", "read", "act", "manage", "tokens"}
            assert operation["x-right"] == "open" or operation["security"]
    examples = [schema for schema in DOCUMENT["components"]["schemas"].values() if "examples" in str(schema)]
    assert len(examples) > 30


def examples() -> int:
    is_long = settings.default.max_examples > 1000  # type: ignore[union-attr]
    return EXAMPLES * LONG if is_long else EXAMPLES


def test_enough_is_tried() -> None:
    assert 2 * len(CALLERS) <= EXAMPLES * SENDERS, "every caller sends every operation more than once"
    assert 2 * len(OPERATIONS) * EXAMPLES * SENDERS > 5_000
    assert 2 * len(OPERATIONS) * EXAMPLES * SENDERS * LONG > 100_000


def aimed(case: schemathesis.Case, name: str, house: ShopHouse, number: int) -> schemathesis.Case:
    """Every other case is about things that are there, every fourth with a good body, too: else all would end at 404."""
    if number % 2:
        good = REQUESTS[name](house, house.own)
        case.path_parameters = {
            **(case.path_parameters or {}),
            **{name: str(value) for name, value in good.path.items()},
        }
        if number % 4 == 1:
            case.query = dict(good.query)
            if good.json is not None:
                case.body, case.media_type = good.json, "application/json"
    return case


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["as described", "otherwise"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_answer_is_as_described(house: ShopHouse, name: str, mode: GenerationMode) -> None:
    operation = OPERATIONS[name]
    if mode is GenerationMode.NEGATIVE and not (operation.path_parameters or operation.query or operation.body):
        mode = GenerationMode.POSITIVE  # nothing can be wrong with a request that says nothing
    roles = {**ROLE_SETS, "every role": EVERY_ROLE}
    tokens = [None if who == "nobody" else house.token(roles[who], tenant) for who, tenant in CALLERS]
    allowed = {"every role", *MAY[RIGHT_OF[name]], *(["nobody"] if RIGHT_OF[name] == "open" else [])}
    numbers = count()
    statuses: Counter[int] = Counter()

    @settings(max_examples=examples(), database=None, suppress_health_check=list(HealthCheck))
    @hypothesis.seed(11)
    @given(case=operation.as_strategy(generation_mode=mode))
    def tried(case: schemathesis.Case) -> None:
        number = next(numbers)
        case = aimed(case, name, house, number)
        sent: dict[str, Any] = case.as_transport_kwargs(base_url="https://jobs.example")
        headers = {
            key: value
            for key, value in (sent.get("headers") or {}).items()
            if key.lower() not in {"authorization", "cookie"}
        }
        for turn in range(SENDERS):
            sender = (number * SENDERS + turn) % len(tokens)
            answer = house.call(
                sent["method"],
                sent["url"],
                tokens[sender],
                # Links that are made up are guesses: each of them comes from somebody else.
                client=(f"10.{turn}.{number >> 8 & 255}.{number & 255}", 1),
                params=sent.get("params"),
                json=sent.get("json"),
                content=sent.get("data"),
                headers=headers,
            )
            case.validate_response(answer, checks=CHECKS)
            if mode is GenerationMode.POSITIVE:  # A wrong path may lead to another operation.
                assert CALLERS[sender][0] in allowed or answer.status_code in {401, 403}, (CALLERS[sender], answer.text)
            statuses[answer.status_code] += 1

    tried()
    assert any(status < 400 for status in statuses), f"nobody ever got further than {statuses}"
