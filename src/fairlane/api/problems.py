"""Errors as problem details (RFC 9457), with the stable codes of `fairlane.errors`.

A problem never contains a value of a payload: it names the field and what was expected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from msgspec import Meta, Struct, json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from fairlane import errors
from fairlane.api.auth.sessions import forget_cookie

MEDIA_TYPE = "application/problem+json"
MOST_ERRORS = 20

_STATUSES: tuple[tuple[type[errors.FairlaneError], int], ...] = (
    (errors.ConfigError, 500),
    (errors.BadInput, 422),
    (errors.DuplicateJob, 409),
    (errors.IdConflict, 409),
    (errors.QueueFull, 429),
    (errors.QueuePaused, 423),
    (errors.RoleMissing, 403),
    (errors.PermissionDenied, 404),
    (errors.NotFound, 404),
    (errors.InvalidState, 409),
    (errors.StillRunning, 409),
    (errors.StoreRefused, 422),
    (errors.StoreError, 503),
)


class FieldError(Struct, frozen=True):
    """One error in a request."""

    where: str
    """The part of the request, as in `body.payload`."""
    message: str


class ProblemDetails(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a request was refused. Nothing was changed."""

    type: Annotated[str, Meta(examples=["urn:fairlane:problem:job_not_found"])]
    title: str
    status: int
    code: str
    """Stable identifier for programs."""
    detail: str
    errors: list[FieldError] | None = None
    """Each error in the request, if there are several."""
    existing_job_id: str | None = None
    """409 for a taken key: the job that holds it."""
    retry_after_s: float | None = None
    """429 and 503: when to try again, as in the header Retry-After."""
    role: str | None = None
    """403: the role that is missing."""


class Problem(Exception):
    """Ends a request with problem details."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: Sequence[FieldError] | None = None,
        existing_job_id: str | None = None,
        retry_after_s: float | None = None,
        role: str | None = None,
        ends_session: bool = False,
    ) -> None:
        super().__init__(detail)
        detail = detail if len(detail) <= 2000 else detail[:1999] + "…"
        self.status, self.ends_session = status, ends_session
        self.details = ProblemDetails(
            type=f"urn:fairlane:problem:{code}",
            title=HTTPStatus(status).phrase,
            status=status,
            code=code,
            detail=detail,
            errors=None if errors is None else list(errors)[:MOST_ERRORS],
            existing_job_id=existing_job_id,
            retry_after_s=retry_after_s,
            role=role,
        )

    def response(self, request: Request) -> Response:
        headers = {}
        if self.status == HTTPStatus.UNAUTHORIZED:
            headers["WWW-Authenticate"] = "Bearer"
        if self.details.retry_after_s is not None:
            headers["Retry-After"] = str(max(math.ceil(self.details.retry_after_s), 1))
        response = Response(json.encode(self.details), self.status, headers=headers, media_type=MEDIA_TYPE)
        if self.ends_session:
            # A browser that keeps sending an ended session would be counted as guessing.
            forget_cookie(request, response)
        return response


def problem_of(error: errors.FairlaneError) -> Problem:
    """One of Fairlane's errors as a problem."""
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    match error:
        case errors.DuplicateJob():
            return Problem(status, error.code, str(error), existing_job_id=str(error.existing_id))
        case errors.TenantLimitReached(cause="payload_bytes"):
            return Problem(413, error.code, str(error))
        case errors.QueueFull():
            return Problem(status, error.code, str(error), retry_after_s=error.retry_after_s)
        case errors.InvalidPayload() | errors.UnreadablePayload():
            found = [FieldError(where="payload", message=problem) for problem in error.problems]
            return Problem(status, error.code, f'the payload of "{error.task}" was not accepted', errors=found)
        case errors.InvalidArguments():
            detail = f'arguments do not fit task "{error.task}"; it is called as {error.task}{error.signature}'
            return Problem(
                status, error.code, detail, errors=[FieldError(where="payload", message=_without_value(error.problem))]
            )
        case errors.InvalidOption():
            return Problem(status, error.code, f"{error.option}: expected {error.expected}")
        case errors.StoreRefused():
            return Problem(status, error.code, "the store cannot keep this data; nothing was changed")
        case errors.StoreError():
            return Problem(status, error.code, "the store cannot be used now", retry_after_s=5.0)
        case errors.RoleMissing():
            return Problem(status, error.code, str(error), role=error.roles[0])
        case errors.PermissionDenied():
            # Objects of another tenant are reported as missing: any other answer would reveal that they exist.
            return Problem(status, "tenant_not_found", "no such tenant here; nothing was changed")
        case errors.ConfigError():
            return Problem(status, error.code, "the application's settings do not allow this")
        case _:
            return Problem(status, error.code, str(error))


def handle_problems(api: FastAPI, shown: Callable[[Request, Problem], Response] | None = None) -> None:
    """Make every error of this application a problem; `shown` makes it a response, JSON unless given."""
    respond = shown or (lambda request, problem: problem.response(request))

    async def of_ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return respond(request, error)

    async def of_fairlane(request: Request, error: Exception) -> Response:
        assert isinstance(error, errors.FairlaneError)
        return respond(request, problem_of(error))

    async def of_the_request(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        found = [_field_error(one) for one in error.errors()]
        return respond(request, Problem(422, "invalid_request", "the request was not accepted", errors=found))

    async def of_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        phrase = HTTPStatus(error.status_code).phrase
        response = respond(request, Problem(error.status_code, phrase.lower().replace(" ", "_"), phrase))
        for name, value in (error.headers or {}).items():
            response.headers[name] = value
        return response

    async def of_anything(request: Request, _: Exception) -> Response:
        problem = Problem(500, "internal_error", "internal error; the server's log has the details")
        return respond(request, problem)

    api.add_exception_handler(Problem, of_ours)
    api.add_exception_handler(errors.FairlaneError, of_fairlane)
    api.add_exception_handler(RequestValidationError, of_the_request)
    api.add_exception_handler(HTTPException, of_http)
    api.add_exception_handler(Exception, of_anything)


def _without_value(problem: str) -> str:
    """Describe an invalid argument without its value, which errors of enums and models would include."""
    where, _, what = problem.rpartition(": ")
    harmless = problem.startswith(("missing: ", "unknown: ")) or what.startswith(("Expected ", "Object "))
    return problem[:500] if harmless else f"{where[:200]}: not accepted" if where else "not accepted"


def _field_error(found: dict[str, Any]) -> FieldError:
    # Location and message only: pydantic's `input` and `ctx` contain the values.
    return FieldError(where=".".join(str(part)[:80] for part in found["loc"]), message=str(found["msg"])[:200])
