"""Django's users on the dashboard and the HTTP API: authenticated, staff, manager.

application = with_dashboard(get_asgi_application())    # asgi.py; the dashboard is at /fairlane/
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.db import close_old_connections
from django.http import HttpRequest

from fairlane import InvalidOption
from fairlane.contrib.django.project import application, person_hook

if TYPE_CHECKING:
    from fairlane.api import Person, UsersHook

Scope = MutableMapping[str, Any]
Asgi = Callable[[Scope, Any, Any], Awaitable[None]]


def roles_of(user: Any) -> tuple[str, ...]:
    """The roles of a Django user; none for those who are not active members of the staff.

    The permission `fairlane.manage_jobs` makes a manager, `fairlane.operate_jobs` an operator; superusers are all.
    """
    if not (user.is_authenticated and user.is_active and user.is_staff):
        return ()
    if user.is_superuser:
        return ("staff", "manager", "operator", "admin")
    roles = ["staff"]
    if user.has_perm("fairlane.manage_jobs"):
        roles.append("manager")
    if user.has_perm("fairlane.operate_jobs"):
        roles.append("operator")
    return tuple(roles)


def person(user: Any) -> Person:
    """What a Django user may do on the dashboard, over all tenants. The option `person` names another function."""
    from fairlane.api import Person

    return Person(name=user.get_username(), roles=roles_of(user), all_tenants=True)


def users(alias: str = "default") -> UsersHook:
    """A `users` hook for `create_api` and `create_dashboard`: who is logged in to Django."""
    find = person_hook(alias)

    def known(session_key: str) -> Person | None:
        request = HttpRequest()
        request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
        close_old_connections()
        try:
            user = get_user(request)
            return find(user) if user.is_authenticated and user.is_active else None
        finally:
            close_old_connections()

    async def who(request: Any) -> Person | None:
        key = request.cookies.get(settings.SESSION_COOKIE_NAME)
        return await sync_to_async(known)(key) if key else None

    return who


def with_dashboard(site: Asgi, path: str = "/fairlane", *, api_path: str | None = None, alias: str = "default") -> Asgi:
    """An ASGI application that serves the dashboard and the HTTP API under `path`, and `site` elsewhere.

    With `api_path="/"` the API is at `/api/jobs/` of the site, too.
    """
    from fairlane.web import create_dashboard

    base = "/" + path.strip("/")
    if base == "/":
        expected = 'a path beside those of the site, such as /fairlane; api_path="/" puts the API at /api/jobs/'
        raise InvalidOption("path", path, expected)
    dashboard = create_dashboard(application(alias), users=users(alias))
    roots = {f"{base}/": base}
    if api_path is not None:
        root = ("/" + api_path.strip("/")).rstrip("/")
        roots[f"{root}/api/jobs/"] = root

    async def serve(scope: Scope, receive: Any, send: Any) -> None:
        place = f"{scope.get('path', '')}/"
        root = next((root for prefix, root in roots.items() if place.startswith(prefix)), None)
        if scope["type"] == "lifespan":
            await dashboard(scope, receive, send)  # Django's own knows none
        elif scope["type"] == "http" and root is not None:
            await dashboard({**scope, "root_path": scope.get("root_path", "") + root}, receive, send)
        else:
            await site(scope, receive, send)

    return serve
