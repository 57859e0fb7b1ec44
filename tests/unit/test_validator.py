"""The strict rules of payloads, as the document on workers and queues prints them."""

from __future__ import annotations

from typing import Any, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from fairlane.core.payload.json_scan import ScanLimits
from fairlane.core.payload.validator import PayloadValidator
from fairlane.core.queues import CATEGORIES

CORRELATION = "550e8400-e29b-41d4-a716-446655440000"


def a_payload(**fields: Any) -> dict[str, Any]:
    return PayloadValidator.create_payload(
        tenant_id=123,
        correlation_id=UUID(CORRELATION),
        idempotency_key="email_fetch_conn_456_msg_789",
        **{"connection_id": 456, "external_message_id": "msg_789"} | fields,
    )


def errors_of(payload: object, category: Any = "ingestion", required: list[str] | None = None) -> list[str]:
    ok, errors = PayloadValidator.validate_payload(payload=payload, category=category, additional_required=required)
    assert ok == (not errors)
    return errors


@pytest.mark.requirement("W2")
def test_a_payload_refers_to_an_object() -> None:
    bare = PayloadValidator.create_payload(123, UUID(CORRELATION), "k")
    assert errors_of(bare) == ["no object is referred to: expected a field named …_id or …_ids, such as document_id"]
    both = errors_of({**bare, "idempotency_key": None})
    assert [error.split()[0] for error in both] == ["idempotency_key", "no"], "all problems at once"
    for field in ({"document_id": 7}, {"document_ids": [7]}):
        assert errors_of({**bare, **field}) == []
    for field in ({"document_id": None}, {"document_ids": []}, {"document": 7}):
        assert len(errors_of({**bare, **field})) == 1
    assert errors_of({**bare, "report": 7}, required=["report"]) == []
    assert errors_of(bare, required=["report"]) == ["report is missing"]


@pytest.mark.requirement("W4")
def test_the_documents_own_example_is_created_and_accepted() -> None:
    payload = a_payload()
    assert payload == {
        "tenant_id": 123,
        "correlation_id": CORRELATION,
        "idempotency_key": "email_fetch_conn_456_msg_789",
        "connection_id": 456,
        "external_message_id": "msg_789",
    }
    assert PayloadValidator.validate_payload(payload, "ingestion", ["connection_id"]) == (True, [])


@pytest.mark.requirement("W2", "W15")
@pytest.mark.parametrize("field", ["tenant_id", "correlation_id", "idempotency_key"])
@pytest.mark.parametrize("absent", ["missing", "none"])
def test_each_required_field_is_demanded(field: str, absent: str) -> None:
    payload = a_payload()
    if absent == "missing":
        del payload[field]
    else:
        payload[field] = None
    assert errors_of(payload) == [f"{field} is missing"]


@pytest.mark.requirement("W2")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tenant_id", True),
        ("tenant_id", 1.5),
        ("tenant_id", ""),
        ("tenant_id", "x" * 129),
        ("tenant_id", "a\nb"),
        ("correlation_id", "not-a-uuid"),
        ("correlation_id", 7),
        ("correlation_id", "550e8400e29b41d4a716446655440000"),
        ("idempotency_key", ""),
        ("idempotency_key", 7),
        ("idempotency_key", "a\x00b"),
        ("connection_id", {"id": 7}),
        ("connection_id", True),
    ],
)
def test_an_ill_typed_field_is_named_with_its_value_and_what_was_expected(field: str, value: object) -> None:
    errors = errors_of(a_payload(**{field: value}) if field == "connection_id" else a_payload() | {field: value})
    assert errors
    assert errors[0].startswith(f"{field} = ")
    assert "expected" in errors[0]


@pytest.mark.parametrize("tenant", [0, -5, 123, "acme", "Ümläut GmbH"])
def test_a_tenant_is_a_number_or_a_text(tenant: int | str) -> None:
    assert errors_of(a_payload() | {"tenant_id": tenant}) == []


@pytest.mark.requirement("W2", "W4", "W15")
def test_all_problems_come_at_once() -> None:
    payload = {"tenant_id": 1.5, "password": "x", "pad": "x" * 2_000_000}
    errors = errors_of(payload, "ingest", ["connection_id"])
    for part in ("category", "tenant_id", "correlation_id", "idempotency_key", "connection_id", "password", "bytes"):
        assert any(part in error for error in errors), part


@pytest.mark.requirement("W3", "W15")
@pytest.mark.parametrize("field", ["password", "apiToken", "EMAIL_BODY", "document_content"])
def test_sensitive_content_is_detected_also_when_nested(field: str) -> None:
    assert any(field in error for error in errors_of(a_payload(**{field: "x"})))
    assert any(f"deep.er.{field}" in error for error in errors_of(a_payload(deep={"er": {field: "x"}})))


def test_sensitive_content_is_left_to_others_where_the_policy_allows_it() -> None:
    lenient = PayloadValidator(sensitive="allow")
    assert lenient.validate_payload(a_payload(password="x"), "ingestion") == (True, [])


@pytest.mark.requirement("W1", "W15")
@pytest.mark.parametrize("category", CATEGORIES)
def test_every_category_of_the_document_is_known(category: str) -> None:
    assert errors_of(a_payload(), category) == []


@pytest.mark.requirement("W1")
@pytest.mark.parametrize("category", ["ingest", "", None, 5])
def test_an_unknown_category_is_refused_and_the_known_ones_are_named(category: Any) -> None:
    (error,) = errors_of(a_payload(), category)
    assert "ingestion" in error


@pytest.mark.requirement("W1", "W4")
def test_an_application_has_its_own_categories_and_required_fields() -> None:
    validator = PayloadValidator(
        categories=("billing", "mail"), required={"billing": ["invoice_id"], "billing.charge": ["amount"]}
    )
    assert validator.validate_payload(a_payload(), "mail") == (True, [])
    assert validator.validate_payload(a_payload(), "billing") == (False, ["invoice_id is missing"])
    assert validator.validate_payload(a_payload(), "billing", task="billing.charge") == (
        False,
        ["invoice_id is missing", "amount is missing"],
    )
    assert validator.validate_payload(a_payload(), "ingestion")[0] is False
    assert PayloadValidator.validate_payload(a_payload(), "ingestion")[0] is True, "the class keeps to the defaults"


class FetchStruct(msgspec.Struct):
    connection_id: int
    limit: int


class FetchModel(pydantic.BaseModel):
    connection_id: int
    limit: int


class FetchDict(TypedDict):
    connection_id: int
    limit: int


@pytest.mark.requirement("W4", "L3")
@pytest.mark.parametrize("schema", [FetchStruct, FetchModel, FetchDict])
@pytest.mark.parametrize("registered_for", ["ingestion", "email.fetch"])
def test_a_schema_is_checked_by_category_or_by_task(schema: Any, registered_for: str) -> None:
    validator = PayloadValidator(schemas={registered_for: schema})
    assert validator.validate_payload(a_payload(limit=5), "ingestion", task="email.fetch") == (True, [])
    ok, errors = validator.validate_payload(a_payload(limit="many"), "ingestion", task="email.fetch")
    assert not ok
    assert f'does not fit the schema of "{registered_for}"' in errors[0]
    assert "limit" in errors[0]


@pytest.mark.requirement("W3", "W15")
def test_a_heavy_payload_is_warned_about_and_one_past_the_limit_refused() -> None:
    heavy = PayloadValidator().review(a_payload(pad="x" * 20_000), "ingestion")
    assert heavy.errors == []
    assert "more than the recommended 10,240" in heavy.warnings[0]
    assert PayloadValidator().review(a_payload(), "ingestion").warnings == []
    small = PayloadValidator(limits=ScanLimits(max_bytes=1_000))
    assert "more than the 1,000 allowed" in small.validate_payload(a_payload(pad="x" * 1_000), "ingestion")[1][0]


@pytest.mark.parametrize("payload", [None, [], "text", 5])
def test_what_is_no_object_at_all_is_one_clear_problem(payload: object) -> None:
    (error,) = errors_of(payload)
    assert "expected a dict of named values" in error


def test_what_json_cannot_hold_is_a_problem_like_the_others() -> None:
    assert "$.when: nan has no place in JSON" in errors_of(a_payload(when=float("nan")))[0]
