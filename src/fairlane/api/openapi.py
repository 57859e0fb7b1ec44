"""The OpenAPI description, with the schemas of problems and the right each operation asks for."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from fairlane.api.auth.rights import Right
from fairlane.api.auth.sessions import COOKIE
from fairlane.api.problems import FieldError, ProblemDetails
from fairlane.api.router import gated_routes

_TEMPLATE = "#/components/schemas/{model}"


def describe(api: FastAPI) -> None:
    """Let `api.openapi()` say more than FastAPI knows by itself."""

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
    schemas = components.setdefault("schemas", {})
    for model in (ProblemDetails, FieldError):
        schema = model.model_json_schema(ref_template=_TEMPLATE)
        schema.pop("$defs", None)
        schemas[model.__name__] = schema
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "A token made by `fairlane tokens create`."},
        "session": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": "Given by POST /login."},
    }
    for route in gated_routes(api):
        right, is_house_wide = route.declared
        for method in route.methods or ():
            operation = document["paths"][route.path_format][method.lower()]
            operation["x-right"] = right.value
            operation["x-house-wide"] = is_house_wide
            if right is not Right.OPEN:
                operation["security"] = [{"token": []}, {"session": []}]
    return document
