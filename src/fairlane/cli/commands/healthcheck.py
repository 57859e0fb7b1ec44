"""`fairlane healthcheck`: reports health by its exit code, for process supervisors."""

from __future__ import annotations

import click

from fairlane.cli.options import at_store, prints
from fairlane.cli.output import Failed, Printer
from fairlane.cli.target import At
from fairlane.core.text import one_line

ANSWER_S = 5.0
LONGEST_ANSWER = 8192
PREFIX = "FAIRLANE_WORKER_PROBE_"


@click.command()
@click.option(
    "--probe-port",
    type=click.IntRange(1, 65_535),
    envvar=f"{PREFIX}PORT",
    show_envvar=True,
    help="Check the worker or dashboard on this port instead of the store.",
)
@click.option(
    "--probe-host",
    default="127.0.0.1",
    show_default=True,
    envvar=f"{PREFIX}HOST",
    show_envvar=True,
    help="Host of the probe.",
)
@click.option("--live", is_flag=True, help="With --probe-port: check only that the worker process is alive.")
@at_store
@prints
def healthcheck(at: At, out: Printer, probe_port: int | None, probe_host: str, live: bool) -> None:
    """Exit with 0 if the store, or a worker's probe, is healthy.

    Store: 69 if unreachable, 1 if its schema does not fit this code. Probe: 1 if it reports failure or does not
    answer. A probe check neither queries the store nor imports the application, so it is cheap to repeat.
    """
    if probe_port is not None:
        said = check_probe(probe_host, probe_port, "/livez" if live else "/readyz")
    elif live:
        raise click.UsageError("--live needs --probe-port", click.get_current_context())
    else:
        said = check_store(at)
    if out.as_json:
        out.data({"ok": True, "says": said})
    else:
        out.line(said)


def check_store(at: At) -> str:
    """Describe the healthy store; raise if it cannot be reached or its schema does not fit."""
    with at.client() as client:
        health, migrator = client.statistics.health(), client.runtime.store.migrator()
        if migrator is not None:
            migrator.require()
    return f"ok: {health.store} answers, schema version {health.schema_version}"


def check_probe(host: str, port: int, path: str) -> str:
    """Describe the healthy probe; raise `Failed` if it reports failure or does not answer."""
    from http.client import HTTPConnection, HTTPException

    place = f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"
    connection = HTTPConnection(host, port, timeout=ANSWER_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        text = one_line(answer.read(LONGEST_ANSWER).decode(errors="replace").strip())
    except (OSError, HTTPException) as error:
        raise Failed(f"{place} does not answer: {str(error) or type(error).__name__}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise Failed(f"{place} says {answer.status}: {text}")
    return f"ok: {place} answers"
