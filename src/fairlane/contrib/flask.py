"""Flask: tasks run in the application's context, and requests enqueue for their tenant.

jobs = Fairlane()
init_app(site, jobs)    # in the application factory
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from weakref import WeakKeyDictionary

from fairlane import CurrentJob, Fairlane, all_tenants, tenant
from fairlane.extras import needed_for

with needed_for("fairlane.contrib.flask", "flask"):
    from flask import Flask, g

EXTENSION = "fairlane"
_sites: WeakKeyDictionary[Fairlane, Flask] = WeakKeyDictionary()
"""The site whose context an application's tasks run in: the one made last, for factories that tests call often."""


def init_app(site: Flask, jobs: Fairlane, *, tenant_of: Callable[[], str | int | None] | None = None) -> None:
    """Connect a Flask application and a Fairlane.

    Each attempt runs inside `site.app_context()`: `current_app`, extensions and `db.session` work as in a request, and
    what is registered with `teardown_appcontext` runs after it. `tenant_of` returns the tenant of the current request,
    or None: jobs that the request enqueues belong to it.
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


def _bind_requests(site: Flask, tenant_of: Callable[[], str | int | None]) -> None:
    def bind() -> None:
        # Without a tenant it is cleared: a thread may still have that of a request whose end it did not see.
        name, stack = tenant_of(), ExitStack()
        stack.enter_context(all_tenants() if name is None else tenant(name))
        g.fairlane_tenant = stack

    def unbind(error: BaseException | None) -> None:
        stack: ExitStack | None = g.pop("fairlane_tenant", None)
        if stack is not None:
            stack.close()

    site.before_request(bind)
    site.teardown_request(unbind)
