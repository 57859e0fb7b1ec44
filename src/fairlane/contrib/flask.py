"""Flask: tasks run in the application's context, and requests enqueue for their tenant.

jobs = Fairlane()
init_app(site, jobs)    # in the application factory
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from weakref import WeakKeyDictionary

from fairlane import CurrentJob, Fairlane, no_tenant, tenant
from fairlane.extras import needed_for

with needed_for("fairlane.contrib.flask", "flask"):
    from flask import Flask, g

EXTENSION = "fairlane"
TenantOf = Callable[[], Any]
"""Returns a name, a number, `SYSTEM` or None."""
_sites: WeakKeyDictionary[Fairlane, Flask] = WeakKeyDictionary()
"""The site whose context an application's tasks run in: the one made last, for factories that tests call often."""


def init_app(site: Flask, jobs: Fairlane, *, tenant_of: TenantOf | None = None) -> None:
    """Connect a Flask application and a Fairlane.

    Each attempt runs inside `site.app_context()`: `current_app`, extensions and `db.session` work as in a request, and
    what is registered with `teardown_appcontext` runs after it. `tenant_of` returns the tenant of the current request:
    jobs that the request enqueues belong to it. None: nobody is known, and what the request asks of Fairlane is
    refused. `SYSTEM`: the application itself, which sees all tenants.
    """
    site.extensions[EXTENSION] = jobs
    if jobs not in _sites:

        @jobs.around_job
        def in_context(job: CurrentJob) -> Iterator[None]:
            with _sites[jobs].app_context():
                yield

    _sites[jobs] = site
    if tenant_of is not None:
        _bind_requests(site, tenant_of)


def _bind_requests(site: Flask, tenant_of: TenantOf) -> None:
    def bind() -> None:
        name, stack = tenant_of(), ExitStack()
        stack.enter_context(no_tenant() if name is None else tenant(name))
        g.fairlane_tenant = stack

    def unbind(error: BaseException | None) -> None:
        stack: ExitStack | None = g.pop("fairlane_tenant", None)
        if stack is not None:
            stack.close()

    site.before_request(bind)
    site.teardown_request(unbind)
