"""The OpenAPI description: FastAPI's, plus response schemas made from Structs and the right of each operation."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any, get_args

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from fairlane.api.auth.sessions import COOKIE
from fairlane.api.problems import ProblemDetails
from fairlane.api.router import gated_routes
from fairlane.client.rights import Right

_TEMPLATE = "#/components/schemas/{name}"

EXAMPLES: dict[str, Any] = {
    "about": "bulk",
    "action": "job_dlq_reprocess_requested",
    "attempt_count": 1,
    "by": "ada",
    "category": "ingestion",
    "code": "job_not_found",
    "count": 12,
    "created_by": "ada",
    "cron": "0 3 * * *",
    "dlq_id": 123,
    "done": 11,
    "error_message": "invalid payload",
    "error_type": "ValidationError",
    "idempotency_key": "email_fetch_conn_456_msg_789",
    "job_type": "email_ingestion_fetch",
    "kind": "job_limit_warning",
    "link": "fl_…",
    "matched": 12,
    "pending": 42,
    "prefix": "fl_3Nq9ZkWb",
    "priority": 5,
    "processing": 3,
    "queue": "default",
    "reason": "invalid payload",
    "refs": {"connection_id": 456},
    "roles": ["staff", "manager"],
    "rule": "queue_backlog",
    "seq": 41,
    "target": "dead_letter:123",
    "tenant": "acme",
    "timezone": "Europe/Prague",
    "token": "fl_…",
    "total_count": 1,
    "type": "email_ingestion_fetch",
    "weight": 1.0,
}
"""An example value for each response field of that name, if its type allows it."""


def describe(api: FastAPI) -> None:
    """Make `api.openapi()` return the extended description."""

    def openapi() -> dict[str, Any]:
        if api.openapi_schema is None:
            api.openapi_schema = _described(api)
        return api.openapi_schema

    api.openapi = openapi  # type: ignore[method-assign]


def _described(api: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=api.title, version=api.version, openapi_version="3.1.0", description=api.description, routes=api.routes
    )
    components = document.setdefault("components", {})
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "A token created by `fairlane tokens create`."},
        "session": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": "Set by POST /login."},
    }
    routes = [route for route in gated_routes(api) if route.include_in_schema]
    answers = [route.declared.answer for route in routes if route.declared.answer is not None]
    schemas, components["schemas"] = _schemas([ProblemDetails, *answers], components.get("schemas", {}))
    for route in routes:
        declared = route.declared
        for method in route.methods or ():
            operation = document["paths"][route.path_format][method.lower()]
            operation["x-right"] = declared.right.value
            operation["x-all-tenants"] = declared.for_all_tenants
            if declared.right is not Right.OPEN:
                operation["security"] = [{"token": []}, {"session": []}]
            if declared.answer is not None:
                content = {"application/json": {"schema": schemas[declared.answer]}}
                for status, response in operation["responses"].items():
                    if status.startswith("2"):
                        response["content"] = content
    return document


def _schemas(answers: list[Any], of_requests: dict[str, Any]) -> tuple[dict[Any, Any], dict[str, Any]]:
    """The schema of each response, and all named schemas, including those of requests."""
    found, named = msgspec.json.schema_components(answers, ref_template=_TEMPLATE)
    types = {struct.__name__: struct for struct in _structs(answers)}
    for name, schema in named.items():
        if name in types and "properties" in schema:
            _complete(schema, types[name])
    return dict(zip(answers, found, strict=True)), dict(sorted({**of_requests, **named}.items()))


def _structs(types: list[Any]) -> Iterator[type[msgspec.Struct]]:
    """Every Struct inside these types, at any depth."""
    seen: set[Any] = set()
    waiting = list(types)
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        if inspect.isclass(one) and issubclass(one, msgspec.Struct):
            yield one
            waiting += [field.type for field in msgspec.structs.fields(one)]
        else:
            waiting += getattr(one, "__args__", ())


def _complete(schema: dict[str, Any], struct: type[msgspec.Struct]) -> None:
    """Add descriptions and examples to a schema, and require every field: responses omit none."""
    docs = _field_docs(struct)
    types = {field.name: field.type for field in msgspec.structs.fields(struct)}
    for name, field in schema["properties"].items():
        field.pop("default", None)
        if datetime in {types[name], *get_args(types[name])}:
            next(part for part in field.get("anyOf", [field]) if part["type"] == "string")["format"] = "date-time"
        if name in docs and "$ref" not in field:
            field.setdefault("description", docs[name])
        if name in EXAMPLES and _fits(EXAMPLES[name], field):
            field.setdefault("examples", [EXAMPLES[name]])
    if not struct.__struct_config__.omit_defaults:
        schema["required"] = list(schema["properties"])


def _fits(value: Any, schema: dict[str, Any]) -> bool:
    kinds = {option.get("type") for option in schema.get("anyOf", [schema])}
    kind = {str: "string", int: "integer", float: "number", dict: "object", list: "array"}[type(value)]
    return kind in kinds and "enum" not in str(schema)


def _field_docs(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The docstring below each field of a Struct; empty if the source is not installed."""
    docs: dict[str, str] = {}
    origin = struct.__dict__.get("__selected_from__") or struct
    for kind in reversed(origin.__mro__):
        if kind is msgspec.Struct or not issubclass(kind, msgspec.Struct):
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
        except (OSError, TypeError, SyntaxError):
            continue
        for field, below in pairwise(getattr(tree.body[0], "body", ())):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
                text = getattr(below.value, "value", None)
                if isinstance(text, str):
                    docs[field.target.id] = " ".join(text.split())
    return docs
