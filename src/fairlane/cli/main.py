"""The command `fairlane`: its subcommands, and how their errors become exit codes."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import click

from fairlane.cli.options import SuggestingGroup
from fairlane.cli.output import INTERRUPTED, USAGE, explained, one_line
from fairlane.errors import FairlaneError


class Entry(NamedTuple):
    """The module of a command, and its line in the help of the group."""

    place: str
    """`module:name`."""
    help: str


COMMANDS = {
    "demo": Entry("fairlane.cli.commands.demo:demo", "Watch jobs of three tenants run, fail, retry and die."),
    "worker": Entry("fairlane.cli.commands.worker:worker", "Run an application's jobs."),
    "dashboard": Entry("fairlane.cli.commands.dashboard:dashboard", "Serve the HTTP API."),
    "enqueue": Entry("fairlane.cli.commands.enqueue:enqueue", "Enqueue one job and print its id."),
    "jobs": Entry("fairlane.cli.commands.jobs:jobs", "List and show jobs, and act on them."),
    "dead-letters": Entry(
        "fairlane.cli.commands.dead_letters:dead_letters",
        "Review dead letters (dlq): jobs that failed and are not retried.",
    ),
    "queues": Entry(
        "fairlane.cli.commands.queues:queues", "Count jobs by queue and status; pause, resume or drain one."
    ),
    "tasks": Entry("fairlane.cli.commands.tasks:tasks", "Pause, resume or drain the jobs of a task."),
    "schedules": Entry(
        "fairlane.cli.commands.schedules:schedules", "List, show, add, pause, run and remove schedules."
    ),
    "pauses": Entry("fairlane.cli.commands.pauses:pauses", "List what is paused, by whom and why."),
    "tenants": Entry(
        "fairlane.cli.commands.tenants:tenants", "List and show tenants, set their share, pause, resume or drain one."
    ),
    "limits": Entry(
        "fairlane.cli.commands.limits:limits", "List and set limits on waiting, running and starting jobs."
    ),
    "breakers": Entry("fairlane.cli.commands.breakers:breakers", "List, open and reset circuit breakers."),
    "alerts": Entry("fairlane.cli.commands.alerts:alerts", "List alerts, and silence a rule for a while."),
    "workers": Entry("fairlane.cli.commands.workers:workers", "List the registered workers."),
    "tokens": Entry(
        "fairlane.cli.commands.tokens:tokens", "Create, list and revoke tokens and log-in links for the HTTP API."
    ),
    "audit": Entry("fairlane.cli.commands.audit:audit", "List and verify the audit of operators' acts."),
    "snapshot": Entry("fairlane.cli.commands.snapshot:snapshot", "Count the jobs in the store."),
    "migrate": Entry("fairlane.cli.commands.migrate:migrate", "Bring the store's schema up to date."),
    "healthcheck": Entry(
        "fairlane.cli.commands.healthcheck:healthcheck", "Exit with 0 if the store, or a worker's probe, is healthy."
    ),
    "doctor": Entry("fairlane.cli.commands.doctor:doctor", "Check settings, store and application, with remedies."),
    "config": Entry(
        "fairlane.cli.commands.config:config", "Show each setting and where it came from, without passwords."
    ),
}
ALIASES = {"dlq": "dead-letters"}
NAME = "fairlane"


class LazyGroup(SuggestingGroup):
    """A group that imports a command only when it is called, so that `--help` stays quick."""

    def __init__(self, *args: Any, entries: Mapping[str, Entry], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(ALIASES.get(cmd_name, cmd_name))
        if entry is None:
            return None
        module, _, name = entry.place.partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.entries.items()])


class Root(LazyGroup):
    """Turns user errors into one line on stderr and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (FairlaneError, OSError) as error:
            if ctx.params["debug"] or isinstance(error, BrokenPipeError):
                raise
            raise explained(error) from error

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]
        extra["standalone_mode"] = False
        _never_fail_to_print()
        try:
            code = super().main(args, prog_name or NAME, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(USAGE)
        except click.ClickException as error:
            sys.exit(_reported(error))
        except click.Abort:
            click.echo(f"{NAME}: interrupted", err=True)
            sys.exit(INTERRUPTED)
        sys.exit(code if isinstance(code, int) else 0)


@click.group(
    NAME,
    cls=Root,
    entries=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Data goes to stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 usage or settings, "
    "3 not found, 4 conflict, 5 denied, 69 store unreachable.",
)
@click.option("--debug", is_flag=True, envvar="FAIRLANE_DEBUG", show_envvar=True, help="Show tracebacks.")
@click.version_option(package_name="fairlane", message="%(prog)s %(version)s")
def cli(debug: bool) -> None:
    """Background jobs for multi-tenant Python applications."""


def main() -> NoReturn:
    cli.main()


def _reported(error: click.ClickException) -> int:
    message = one_line(error.format_message()).rstrip(".")
    context = getattr(error, "ctx", None)
    hint = f" (see {context.command_path} --help)" if context is not None else ""
    click.echo(f"{NAME}: {message}{hint}", err=True)
    return error.exit_code


def _never_fail_to_print() -> None:
    """Escape characters that the terminal cannot show, instead of raising an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
