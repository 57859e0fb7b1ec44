"""Routes that declare the right they require: each checks its caller, reads a bounded body and renders a response."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterator
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar, get_type_hints

import msgspec
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from fairlane.api.problems import MEDIA_TYPE, MOST_ERRORS, FieldError, Problem
from fairlane.api.request import read_request, state_of
from fairlane.client.context import all_tenants, bound_to
from fairlane.client.rights import Right, holding, right_of
from fairlane.errors import nearest

F = TypeVar("F", bound=Callable[..., Any])

MOST_QUERY_BYTES = 8_192
_DECLARED = "__fairlane_right__"
_MEANINGS = {
    400: "the body is not JSON as we take it",
    401: "not authenticated",
    403: "a role is missing, or the request comes from another site's page",
    404: "not found, or it belongs to another tenant",
    408: "the body did not arrive in time",
    409: "not allowed in the current state, or the key is taken",
    413: "the body is too large",
    414: "the query is too long",
    415: "the body is encoded, or its Content-Type is not JSON",
    422: "a part of the request was not accepted",
    423: "its queue, task or tenant is paused and refuses new jobs",
    429: "too many requests: Retry-After says when to retry",
    503: "the store cannot be used now",
}


class RouteDeclaration(NamedTuple):
    """The right that a route requires, and the type of its response."""

    right: Right
    for_all_tenants: bool
    """The route concerns all tenants: a caller bound to one is refused."""
    answer: Any
    """The type of the response body; None: the route builds its own response."""
    status: int


class UndeclaredRoute(TypeError):
    def __init__(self, route: object) -> None:
        super().__init__(f"{route} declares no right: make it with fairlane.api.router.Routes, which asks for one")


class GatedRoute(APIRoute):
    """Authenticates the caller, reads the body within its limits, and only then parses it."""

    @property
    def declared(self) -> RouteDeclaration:
        found: RouteDeclaration | None = getattr(self.endpoint, _DECLARED, None)
        if found is None:
            raise UndeclaredRoute(self.path)
        return found

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle, declared = super().get_route_handler(), self.declared
        known = frozenset(_query_names(self.dependant))

        async def gated(request: Request) -> Response:
            state = state_of(request)
            caller = await state.authenticator.admit(request, declared.right, for_all_tenants=declared.for_all_tenants)
            request.state.caller = caller
            _refuse_unknown(request, known)
            if self.body_field is not None:
                request = await read_request(request, state.app.runtime.settings.limits)
            scope = all_tenants() if caller is None or caller.tenant is None else bound_to(caller.tenant)
            with scope, holding(None if caller is None else caller.roles):
                return await handle(request)

        return gated


def _query_names(dependant: Dependant) -> Iterator[str]:
    yield from (param.alias for param in dependant.query_params)
    for other in dependant.dependencies:
        yield from _query_names(other)


def _refuse_unknown(request: Request, known: frozenset[str]) -> None:
    """Refuse unknown query parameters: a mistyped filter must not list everything."""
    if len(request.scope["query_string"]) > MOST_QUERY_BYTES:
        raise Problem(HTTPStatus.REQUEST_URI_TOO_LONG, "query_too_long", f"a query may have {MOST_QUERY_BYTES:,} bytes")
    unknown = sorted(set(request.query_params) - known)
    if unknown:
        raise Problem(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "unknown_parameter",
            f"{len(unknown)} of the query's parameters are not known here; there are: "
            f"{', '.join(sorted(known)) or 'none'}",
            errors=[
                FieldError(where=f"query.{name[:100]}", message=f"unknown.{nearest(name[:100], known)}")
                for name in unknown[:MOST_ERRORS]
            ],
        )


Verb = Callable[..., Any]


class Routes:
    """The routes of one resource, collected as they are written: `@routes.get("{id}/", JobAdmin.adetail)`.

    A route names the verb it serves and requires its right; one without a verb names a right. `at_least` is the right
    of every route of the resource, whatever its verb.
    """

    def __init__(self, tag: str, base: str, *, at_least: Right | None = None) -> None:
        self.tag, self.base, self._at_least = tag, base, at_least
        self._written: list[tuple[str, str, Callable[..., Any], dict[str, Any]]] = []

    def get(self, path: str, of: Verb | Right, *, all_tenants: bool = False, **attributes: Any) -> Callable[[F], F]:
        return self._route("GET", path, of, all_tenants, attributes)

    def post(self, path: str, of: Verb | Right, *, all_tenants: bool = False, **attributes: Any) -> Callable[[F], F]:
        return self._route("POST", path, of, all_tenants, attributes)

    def put(self, path: str, of: Verb | Right, *, all_tenants: bool = False, **attributes: Any) -> Callable[[F], F]:
        return self._route("PUT", path, of, all_tenants, attributes)

    def delete(self, path: str, of: Verb | Right, *, all_tenants: bool = False, **attributes: Any) -> Callable[[F], F]:
        return self._route("DELETE", path, of, all_tenants, attributes)

    def add_to(self, api: FastAPI, base_path: str) -> None:
        for method, path, endpoint, attributes in self._written:
            # Built here instead of by include_router, which keeps a route's class only in some versions.
            api.router.add_api_route(
                f"{base_path}{self.base}{path}",
                endpoint,
                methods=[method],
                tags=[self.tag],
                route_class_override=GatedRoute,
                **attributes,
            )

    def _route(
        self, method: str, path: str, of: Verb | Right, all_tenants: bool, attributes: dict[str, Any]
    ) -> Callable[[F], F]:
        right = self._at_least or (of if isinstance(of, Right) else right_of(of))

        def declare(endpoint: F) -> F:
            given = {"status_code": 200, **attributes}
            answer = given.pop("answer", None) or _answer_of(endpoint)
            problems = _problems_of(method, right)
            given["responses"] = {**problems, **attributes.get("responses", {})}
            given["response_model"] = None
            given.setdefault("operation_id", endpoint.__name__)
            given.setdefault("summary", (endpoint.__doc__ or "").strip().partition("\n")[0])
            given.setdefault("description", (endpoint.__doc__ or "").strip().partition("\n")[2].strip())
            declaration = RouteDeclaration(right, all_tenants, answer, given["status_code"])
            self._written.append((method, path, _rendering(endpoint, declaration), given))
            return endpoint

        return declare


def _answer_of(endpoint: Callable[..., Any]) -> Any:
    """The declared return type of an endpoint, unless that is a response."""
    found = get_type_hints(endpoint)["return"]
    return None if inspect.isclass(found) and issubclass(found, Response) else found


def _rendering(endpoint: Callable[..., Any], declaration: RouteDeclaration) -> Callable[..., Any]:
    """Wrap the endpoint: its value becomes a response with exactly the declared fields."""

    @functools.wraps(endpoint)
    async def respond(*args: Any, **given: Any) -> Response:
        found = await endpoint(*args, **given)
        if isinstance(found, Response):
            return found
        return answered(found, declaration.answer, declaration.status)

    setattr(respond, _DECLARED, declaration)
    return respond


def answered(value: object, answer: Any, status: int = 200) -> Response:
    """A response with the fields that the type `answer` has, as JSON."""
    shown = msgspec.convert(value, answer, from_attributes=True)
    return Response(msgspec.json.encode(shown), status, media_type="application/json")


def gated_routes(api: FastAPI) -> list[GatedRoute]:
    """Every route of an API; raises `UndeclaredRoute` for one that declares no right."""
    found: list[GatedRoute] = []
    for route in api.routes:
        if not isinstance(route, GatedRoute):
            raise UndeclaredRoute(route)
        _ = route.declared
        found.append(route)
    return found


def _problems_of(method: str, right: Right) -> dict[int | str, dict[str, Any]]:
    statuses = {414, 422, 429, 503}
    if right is not Right.OPEN:
        statuses |= {401, 403, 404}  # a listing may name another tenant, too
    if method != "GET":
        statuses |= {400, 404, 408, 409, 413, 415, 423}
    schema = {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}
    return {status: {"description": _MEANINGS[status], "content": {MEDIA_TYPE: schema}} for status in sorted(statuses)}
