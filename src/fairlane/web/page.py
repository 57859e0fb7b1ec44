"""Pages and the acts on them, declared like the routes of the API: the verb they call, and the template they show.

    pages = Pages("queues", "/queues", title="Queues", key="q")

    @pages.page("", QueueAdmin.alist, "queues.html")
    async def show_queues(page: CurrentPage) -> Values:
        return {"queues": await page.app.queues.alist(tenant=page.tenant)}

    @pages.act("/{name}/pause", QueueAdmin.apause, done="The queue is paused.")
    async def pause_queue(page: CurrentPage, name: Name, form: Form) -> str:
        await page.app.queues.apause(name, by=page.by, notes=form.words("notes"))
        return page.url("show_queues")

A page returns the values of its template. An act returns where to go, and `done` is shown there. Both require the right
of their verb; templates show an act only to those who may do it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from fastapi import Depends, Query
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from fairlane.api.auth.admission import Caller
from fairlane.api.fields import Name, TenantName
from fairlane.api.request import RequestContext, state_of
from fairlane.api.router import Routes, Verb
from fairlane.client.rights import Right, may, right_of
from fairlane.web.assets import THEME_HASH
from fairlane.web.formats import without_tenant
from fairlane.web.html_templates import rendered

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
Values = Mapping[str, Any]
"""What a template shows."""

HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; script-src 'self' 'sha256-{THEME_HASH}'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "same-origin",  # With no-referrer, browsers would hide from us where a form comes from.
}

NOT_KEPT = frozenset({"tenant", "cursor", "after", "did", "n", "refused", "verb"})
"""Fields of a query that are about the tenant shown before: a place in its rows, and what was done."""
KEPT_ELSEWHERE = frozenset({"q", "range", "since", "until"})
"""Fields of a query that the first page about the same noun takes, too."""


class DeclaredPage(NamedTuple):
    """A page or an act, under the name of its function."""

    path: str
    right: Right
    for_all_tenants: bool
    done: str = ""
    """What an act says when it is done; `{n}` and `{verb}` are those of its `Done`, `{s}` makes a plural."""


class Done(NamedTuple):
    """Where an act on many leads, and what it did."""

    where: str
    n: int
    """To how many it was done."""
    refused: int = 0
    """Those whose state did not allow it."""
    verb: str = ""


class Part(NamedTuple, Generic[T]):
    """Some rows of a list that the store returns whole, so that a page of very many stays small."""

    rows: Sequence[T]
    first: int
    """How many rows precede them."""
    total: int

    @property
    def last(self) -> int:
        return self.first + len(self.rows)


def part_at(cursor: str | None, rows: Sequence[T], size: int) -> Part[T]:
    """The rows from this place on, or the last ones if there are fewer now."""
    first = min(int(cursor or 0), max(len(rows) - 1, 0) // size * size)
    return Part(rows[first : first + size], first, len(rows))


DECLARED: dict[str, DeclaredPage] = {}


class Pages(Routes):
    """The pages and acts about one noun. With a `title` the first page is in the navigation; `key` goes there."""

    def __init__(self, noun: str, base: str, *, title: str = "", key: str = "") -> None:
        super().__init__(noun, base)
        self.title, self.key, self.first = title, key, ""

    def page(
        self,
        path: str,
        of: Verb | Right,
        template: str,
        *,
        all_tenants: bool = False,
        of_one_tenant: bool = False,
        status: int = 200,
    ) -> Callable[[F], F]:
        """Declare a page. With `of_one_tenant` it shows things of one tenant, and choosing another one leaves it."""

        def declare(endpoint: F) -> F:
            self.first = self.first or self._declare(endpoint, path, of, all_tenants)
            self._declare(endpoint, path, of, all_tenants)

            @functools.wraps(endpoint)
            async def show(*, page: Page, **given: Any) -> Response:
                values = await endpoint(page=page, **given)
                if isinstance(values, Response):
                    return values
                return page.shown(template, self, values, status, of_one_tenant=of_one_tenant)

            show.__annotations__ = {**endpoint.__annotations__, "return": Response}
            self.get(path, of, all_tenants=all_tenants, include_in_schema=False, response_class=HTMLResponse)(show)
            return endpoint

        return declare

    def act(self, path: str, of: Verb | Right, *, done: str, all_tenants: bool = False) -> Callable[[F], F]:
        def declare(endpoint: F) -> F:
            name = self._declare(endpoint, path, of, all_tenants, done)

            @functools.wraps(endpoint)
            async def do(*, page: Page, **given: Any) -> Response:
                answer = await endpoint(page=page, **given)
                if isinstance(answer, Response):
                    return answer
                where = answer.where if isinstance(answer, Done) else answer
                about = {"n": answer.n, "refused": answer.refused, "verb": answer.verb} if where is not answer else {}
                said = urlencode({"did": name, **{key: value for key, value in about.items() if value}})
                return RedirectResponse(f"{where}{'&' if '?' in where else '?'}{said}", 303)

            do.__annotations__ = {**endpoint.__annotations__, "return": Response}
            self.post(path, of, all_tenants=all_tenants, include_in_schema=False)(do)
            return endpoint

        return declare

    def _declare(self, endpoint: Any, path: str, of: Verb | Right, all_tenants: bool, done: str = "") -> str:
        right = of if isinstance(of, Right) else right_of(of)
        name: str = endpoint.__name__
        DECLARED[name] = DeclaredPage(f"{self.base}{path}", right, all_tenants, done)
        return name


class Page:
    """One request for a page: its application and caller, the tenant it is about, and the addresses of other pages."""

    def __init__(self, request: Request, tenant: str | None = None, said: str = "") -> None:
        self.request = request
        self.app = state_of(request).app
        self.caller: Caller | None = getattr(request.state, "caller", None)
        self._began_s = self.app.runtime.clock.monotonic()
        own = None if self.caller is None else self.caller.tenant
        self.tenant = tenant or own
        """The tenant that was chosen, or to whom the caller is bound; None: all of them."""
        self.is_bound = own is not None
        self.said = said
        """What the act before this page did."""

    @property
    def by(self) -> str:
        """The actor recorded in the audit."""
        assert self.caller is not None
        return RequestContext(state_of(self.request), self.caller).by

    @property
    def environment(self) -> str:
        """The name of this installation, beside the product's."""
        settings = self.app.runtime.settings
        return settings.environment or settings.profile

    @property
    def now(self) -> datetime:
        return self.app.runtime.clock.now()

    def may(self, what: str | Right) -> bool:
        """Whether the caller may see a page, do an act, or has a right."""
        if self.caller is None:
            return False
        if isinstance(what, Right):
            return may(self.caller.roles, what)
        declared = DECLARED[what]
        return may(self.caller.roles, declared.right) and not (declared.for_all_tenants and self.is_bound)

    def url(self, name: str, /, **values: object) -> str:
        """The address of a page or an act by the name of its function; values that its path lacks are its query.

        Relative, so that it is right behind a proxy that adds a prefix. The chosen tenant is kept.
        """
        path = DECLARED[name].path
        if not self.is_bound:
            values = {"tenant": self.tenant, **values}
        query = {}
        for key, value in values.items():
            if f"{{{key}}}" in path or f"{{{key}:" in path:
                kept = "/" if f"{{{key}:path}}" in path else ""
                path = _without_kind(path, key).replace(f"{{{key}}}", quote(str(value), safe=kept))
            elif value is not None:
                query[key] = value
        return f"{self.root}{path.lstrip('/')}" + (f"?{urlencode(query, doseq=True)}" if query else "")

    @functools.cached_property
    def root(self) -> str:
        """The dashboard's own address, relative to this page."""
        scope = self.request.scope
        path = scope["path"].removeprefix(scope.get("root_path", "")).removeprefix(self.request.app.state.base_path)
        return "../" * (path.count("/") - 1) or "./"

    def shown(
        self,
        template: str,
        pages: Pages | None,
        values: Values,
        status: int = 200,
        *,
        of_one_tenant: bool = False,
    ) -> HTMLResponse:
        places = [
            (place.title, self.url(place.first), place.key, place is pages)
            for place in self.request.app.state.navigation
            if self.may(place.first)
        ]
        switch = self._tenant_switch(pages, of_one_tenant)
        body = rendered(template, page=self, places=places, switch=switch, url=self.url, may=self.may, **values)
        took = {"Server-Timing": f"page;dur={(self.app.runtime.clock.monotonic() - self._began_s) * 1000:.1f}"}
        return HTMLResponse(body, status, headers={**HEADERS, **took})

    def _tenant_switch(self, pages: Pages | None, of_one_tenant: bool) -> tuple[str, list[tuple[str, str]]]:
        """Where another tenant is shown, and the fields of this page's query that stay as they are."""
        given = self.request.query_params.multi_items()
        query = [(name, without_tenant(value) if name == "q" else value) for name, value in given]
        if pages is None or not pages.title:
            return self.url("show_overview", tenant=None), []
        if of_one_tenant:
            return self.url(pages.first, tenant=None), [field for field in query if field[0] in KEPT_ELSEWHERE]
        return "", [field for field in query if field[0] not in NOT_KEPT]


def _without_kind(path: str, key: str) -> str:
    for kind in ("path", "uuid", "int"):
        path = path.replace(f"{{{key}:{kind}}}", f"{{{key}}}")
    return path


async def _page(
    request: Request,
    tenant: TenantName | Annotated[str, Query(max_length=0)] | None = None,
    did: Name | None = None,
    n: Annotated[int, Query(ge=0, le=10**9)] = 0,
    refused: Annotated[int, Query(ge=0, le=10**9)] = 0,
    verb: Annotated[str, Query(pattern="^[a-z ]{1,40}$")] | None = None,
) -> Page:
    act = DECLARED.get(did or "")
    said = "" if act is None else act.done.format(n=f"{n:,}", s="" if n == 1 else "s", verb=verb or "changed")
    if refused:
        said += f" {refused:,} are gone, or in a state that does not allow it."
    return Page(request, tenant or None, said)


CurrentPage = Annotated[Page, Depends(_page)]
