"""`fairlane worker`: run an application's jobs."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fairlane.cli.options import one_application, read_span
from fairlane.cli.output import DENIED, USAGE, Failed, outage
from fairlane.errors import NotAdmitted, RoleLacksRights, StoreUnavailable

if TYPE_CHECKING:
    from fairlane.core.profiles import Lane
    from fairlane.worker.config import WorkerConfig

F = TypeVar("F", bound=Callable[..., Any])

PREFIX = "FAIRLANE_WORKER_"
PROMPT = "prompt"
_MEMORY = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*(|m|mb|mib|g|gb|gib)", re.ASCII | re.IGNORECASE)


def option(*names: str, **attributes: Any) -> Callable[[F], F]:
    """An option with its environment variable: `--max-jobs`, FAIRLANE_WORKER_MAX_JOBS."""
    own = PREFIX + names[0].lstrip("-").replace("-", "_").upper()
    others: tuple[str, ...] = attributes.pop("also", ())
    return click.option(*names, envvar=[own, *others], show_envvar=True, **attributes)


def memory(text: str) -> float:
    """Megabytes: `512`, `512MB`, `2GB`."""
    found = _MEMORY.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise click.BadParameter(f"{text!r}: expected an amount such as 512MB or 2GB")
    return float(found[1]) * (1024 if found[2].lower().startswith("g") else 1)


def names(text: str) -> tuple[str, ...]:
    """`a,b,c`."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def lane(text: str) -> Lane:
    """`NAME:SLOTS:QUEUE,QUEUE:prompt`; without queues, all of them."""
    from fairlane.core.profiles import ANY, Lane
    from fairlane.core.queues import read_slots
    from fairlane.errors import BadInput

    name, slots, queues, *words = [*text.split(":"), "", ""][: max(3, text.count(":") + 1)]
    if not slots[:1].isdecimal() or words not in ([], [PROMPT]):
        expected = f"NAME:SLOTS:QUEUE,QUEUE as in fast:3:critical, and :{PROMPT} behind it for a prompt lane"
        raise click.BadParameter(f"{text!r}: expected {expected}")
    try:
        count, per_process = read_slots(slots, f'slots of lane "{name}"')
        return Lane(name, count, names(queues) or (ANY,), bool(words), per_process)
    except BadInput as error:
        raise click.BadParameter(str(error)) from error


def slots(text: str) -> int | str:
    """`8`, shared by the processes, or `100/process`."""
    from fairlane.core.queues import read_slots
    from fairlane.errors import BadInput

    try:
        count, per_process = read_slots(text, "slots")
    except BadInput as error:
        raise click.BadParameter(str(error)) from error
    return text.strip() if per_process else count


def slots_or_none(text: str) -> int | str:
    """The same, and `0`."""
    return 0 if text.strip() == "0" else slots(text)


@click.command()
@click.argument("application", required=False, metavar="[MODULE:NAME]")
@click.option("--app", metavar="MODULE:NAME", help="The application, like the argument.  [env var: FAIRLANE_APP]")
@option(
    "--processes",
    "-p",
    type=click.IntRange(1, 1024),
    help="Worker processes; one per core by default, but no more than slots.",
)
@option(
    "--slots",
    "-s",
    type=slots,
    metavar="COUNT",
    help="One lane of this many jobs at once, which the processes share; 100/process: each runs as many.",
)
@option(
    "--lane",
    "lanes",
    type=lane,
    multiple=True,
    metavar="NAME:SLOTS:QUEUES[:prompt]",
    help="Slots kept for certain queues, as in fast:3:critical:prompt or bulk:20/process:bulk; may be repeated. A "
    "prompt lane claims no job ahead of a free slot, and jobs over 30 s on it are reported.",
)
@option(
    "--fast-slots",
    type=slots_or_none,
    metavar="COUNT",
    also=("WORKER_FAST_THREADS",),
    help="Slots of the profile's fast lane, which serves the queue critical; 3/process: in each process; 0: none.",
)
@option(
    "--general-slots",
    type=slots,
    metavar="COUNT",
    also=("WORKER_GENERAL_THREADS",),
    help="Slots of the profile's general lane, which serves every queue; 5/process: in each process.",
)
@option("--queues", "-q", type=names, metavar="A,B", help="Serve only these queues, in this order.")
@option("--types", "-t", type=names, metavar="A,B", help="Run only these tasks.")
@option(
    "--profile",
    type=click.Choice(["development", "production", "isolation"]),
    help="The profile, for an application that names none in its code.",
)
@option("--batch", type=click.IntRange(1, 10_000), help="Most jobs claimed at once for a lane.")
@option(
    "--poll", type=read_span, metavar="SPAN", help="How long an idle worker waits between polls when nothing wakes it."
)
@option("--lease", type=read_span, metavar="SPAN", help="How long the jobs of a lost host wait; 15s by default.")
@option(
    "--grace",
    type=read_span,
    metavar="SPAN",
    help="How long running jobs may take to end after a stop; 25s by default.",
)
@option("--drain", is_flag=True, help="Exit when no job is ready or running.")
@option("--max-jobs", type=click.IntRange(1), help="Replace a worker process after this many jobs.")
@option("--max-memory", type=memory, metavar="SIZE", help="Replace a worker process that uses more: 512MB, 2GB.")
@option("--isolated-memory", type=memory, metavar="SIZE", help="Memory that an isolated task may use.")
@option("--probe-port", type=click.IntRange(0, 65_535), help="Serve /livez and /readyz on this port; 0: any free port.")
@option("--probe-host", default="127.0.0.1", show_default=True, help="Address of the probes.")
@option("--reload", is_flag=True, help="Restart on changed code, for development.")
@option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Log level for stderr, unless the application configures logging itself.",
)
def worker(application: str | None, app: str | None, processes: int | None, log_level: str, **options: Any) -> None:
    """Run an application's jobs.

    A foreman starts the worker processes, keeps their heartbeats and restarts dead ones. SIGTERM or Ctrl-C
    stops claims and gives running jobs the grace period; a second one stops at once. SIGHUP replaces the processes,
    SIGUSR1 writes heap dumps.
    """
    import asyncio
    import logging

    from fairlane.client.logs import configure_logging
    from fairlane.client.settings.load import load
    from fairlane.worker.foreman.foreman import CannotRun, Foreman, ForemanConfig

    settings = load()
    reference = one_application(application, app) or settings.app
    if reference is None:
        raise Failed("no application: give it as module:name, or set FAIRLANE_APP or app in fairlane.toml", USAGE)
    level = logging.getLevelNamesMapping()[log_level.upper()]
    configure_logging(level)
    config = ForemanConfig(
        app=reference,
        worker=chosen(reference, options),
        profile=options["profile"],
        processes=processes or cores(),
        reload=options["reload"],
        probe_host=options["probe_host"],
        probe_port=options["probe_port"],
        hangup="stop" if sys.stdin is not None and sys.stdin.isatty() else "replace",
        log_level=level,
    )

    async def run() -> None:
        await Foreman(config).run()

    try:
        asyncio.run(run())
    except CannotRun as error:
        if error.code in (StoreUnavailable.code, NotAdmitted.code):
            raise outage(str(error), is_mistaken=error.code == NotAdmitted.code, is_service=True) from error
        raise Failed(str(error), DENIED if error.code == RoleLacksRights.code else USAGE) from error


def chosen(reference: str, options: dict[str, Any]) -> WorkerConfig:
    """What the options ask for; the application's profile decides the rest."""
    from fairlane.worker.config import WorkerConfig

    if options["lanes"]:
        for name in ("slots", "queues"):
            if options[name]:
                raise click.UsageError(
                    f"--lane sets slots and queues itself; omit --{name}", click.get_current_context()
                )
    given = {
        "lanes": options["lanes"],
        "slots": options["slots"],
        "queues": options["queues"],
        "fast_slots": options["fast_slots"],
        "general_slots": options["general_slots"],
        "types": options["types"],
        "batch": options["batch"],
        "poll_s": _seconds(options["poll"]),
        "lease_s": _seconds(options["lease"]),
        "grace_s": _seconds(options["grace"]),
        "max_jobs": options["max_jobs"],
        "max_memory_mb": options["max_memory"],
        "isolated_memory_mb": options["isolated_memory"],
    }
    return WorkerConfig(
        app=reference, drain=options["drain"], **{name: value for name, value in given.items() if value is not None}
    )


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _seconds(length: timedelta | None) -> float | None:
    return None if length is None else length.total_seconds()
