"""`fairlane healthcheck`: one question, answered by the exit code, for whoever keeps processes alive."""

from __future__ import annotations

import click

from fairlane.cli.options import at_store, prints
from fairlane.cli.output import Failed, Printer, one_line
from fairlane.cli.target import At

ANSWER_S = 5.0
LONGEST_ANSWER = 8192
PREFIX = "FAIRLANE_WORKER_PROBE_"


@click.command()
@click.option(
    "--probe-port",
    type=click.IntRange(1, 65_535),
    envvar=f"{PREFIX}PORT",
    show_envvar=True,
    help="Ask the worker or dashboard that answers there, not the store.",
)
@click.option(
    "--probe-host",
    default="127.0.0.1",
    show_default=True,
    envvar=f"{PREFIX}HOST",
    show_envvar=True,
    help="Where it listens.",
)
@click.option("--live", is_flag=True, help="With --probe-port: only whether the worker itself is alive.")
@at_store
@prints
def healthcheck(at: At, out: Printer, probe_port: int | None, probe_host: str, live: bool) -> None:
    """Exit with 0 if the store, or a worker's probe, is well.

    The store: 69 if it cannot be reached, 1 if this code cannot run on its schema. A probe: 1 if it says no or does
    not answer; the store is not asked and no application is imported, so that it can be asked often.
    """
    if probe_port is not None:
        said = asked(probe_host, probe_port, "/livez" if live else "/readyz")
    elif live:
        raise click.UsageError("--live asks a worker: give its --probe-port", click.get_current_context())
    else:
        said = looked_at(at)
    if out.as_json:
        out.data({"ok": True, "says": said})
    else:
        out.line(said)


def looked_at(at: At) -> str:
    """What the store answers; raises what is wrong with it."""
    with at.client() as client:
        health, migrator = client.statistics.health(), client.runtime.store.migrator()
        if migrator is not None:
            migrator.require()
    return f"ok: {health.store} answers, schema version {health.schema_version}"


def asked(host: str, port: int, path: str) -> str:
    """What a probe answers; raises when that is no."""
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
