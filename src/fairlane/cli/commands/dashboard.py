"""`fairlane dashboard`: serve the pages and the API over HTTP."""

from __future__ import annotations

import gc
import ipaddress
import socket
from typing import TYPE_CHECKING

import click

from fairlane.cli.options import acts, one_application
from fairlane.cli.output import USAGE, Failed
from fairlane.cli.target import At, without_fallback
from fairlane.extras import needed_for

if TYPE_CHECKING:
    from fairlane.client.app import Fairlane

DEFAULT_PORT = 8650


@click.command()
@click.argument("application", required=False, metavar="[MODULE:NAME]")
@click.option("--app", metavar="MODULE:NAME", help="The application, like the argument.  [env var: FAIRLANE_APP]")
@click.option("--url", help="The store, if no application is given.  [env var: FAIRLANE_URL]")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=DEFAULT_PORT, show_default=True, help="0: any free port."
)
@acts
def dashboard(
    application: str | None, app: str | None, url: str | None, host: str, port: int, by: str, notes: str | None
) -> None:
    """Serve the dashboard and the HTTP API.

    On a loopback address it prints a one-time link to log in. On any other address it starts only if a credential
    exists: `fairlane tokens create` creates one. Put a proxy with TLS in front of it.
    """
    with needed_for("`fairlane dashboard`", "dashboard"):
        from fairlane.cli.server import ApiServer  # isort: skip - names the first package that is missing
        from fairlane.web import create_dashboard

    served = _application(At(url, one_application(application, app)))
    is_local = _is_loopback(host)
    try:
        if not is_local and not _has_credentials(served):
            raise Failed(
                f"no credential exists, so nobody could log in on {host}: create one first with "
                "`fairlane tokens create NAME --role …`, or leave --host out"
            )
        listening = _listening(host, port)
        place = f"http://{_in_a_url(host)}:{listening.getsockname()[1]}"
        click.echo(f"fairlane: serving {served.runtime.settings.url.partition(':')[0]} at {place}", err=True)
        if is_local:
            click.echo(f"fairlane: log in within ten minutes: {place}/login?link={_link(served, by, notes)}", err=True)
        server = ApiServer(create_dashboard(served))
        gc.collect()
        gc.freeze()  # Objects that exist now stay alive; scanning them in every full collection costs a request 60 ms.
        server.run(sockets=[listening])
    finally:
        served.close()


def _application(at: At) -> Fairlane:
    """The application with its tasks; without one, a client that can read and act but not enqueue."""
    from fairlane.client.app import Fairlane

    found = at.application()
    if found is not None and at.url is None:
        return found
    return Fairlane(settings=without_fallback(at.settings()))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _has_credentials(app: Fairlane) -> bool:
    return bool(app.tokens.list("token", limit=1).credentials or app.tokens.list("link", limit=1).credentials)


def _link(app: Fairlane, by: str, notes: str | None) -> str:
    from fairlane.client.rights import ROLES

    return app.tokens.create_link(by, ROLES, by=by, notes=notes or "printed by fairlane dashboard").secret


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        raise Failed(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another --port", USAGE
        ) from error


def _in_a_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
