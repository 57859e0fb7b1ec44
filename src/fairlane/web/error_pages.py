"""Problems as pages, for people with a browser: what happened, and what to do next. Programs still get JSON."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from fairlane.api.auth.sessions import forget_cookie
from fairlane.api.problems import Problem
from fairlane.web.page import Page

_TITLES = {
    401: "Log in",
    403: "You may not do this",
    404: "Not found",
    408: "Too slow",
    409: "Not possible now",
    413: "Too large",
    422: "Not accepted",
    423: "Paused",
    429: "Too many requests",
    500: "Something went wrong",
    503: "The store cannot be reached",
}


def shown(request: Request, problem: Problem) -> Response:
    """The problem as a page if a browser asked for one, else as JSON."""
    plain = problem.response(request)
    if not _wants_page(request):
        return plain
    page = Page(request)
    response: Response
    if problem.status == HTTPStatus.UNAUTHORIZED and request.headers.get("sec-fetch-site") == "cross-site":
        # Browsers send our cookie only with requests that our own pages make: this page makes the request again.
        response = page.shown("again.html", None, {}, problem.status)
    elif problem.status == HTTPStatus.UNAUTHORIZED:
        response = page.shown("login.html", None, {"problem": problem.details, "link": None}, problem.status)
    else:
        details = problem.details
        values = {
            "problem": details,
            "title": _TITLES.get(problem.status, details.title),
            "detail": "There is no page at this address." if details.detail == "Not Found" else details.detail,
        }
        response = page.shown("problem.html", None, values, problem.status)
    if "retry-after" in plain.headers:
        response.headers["Retry-After"] = plain.headers["retry-after"]
    if problem.ends_session:
        forget_cookie(request, response)
    return response


def _wants_page(request: Request) -> bool:
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    is_api = path.removeprefix(request.app.state.base_path).startswith("/api/")
    return not is_api and "text/html" in request.headers.get("accept", "")
