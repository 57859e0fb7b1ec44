"""The command `fairlane`: its subcommands, and how their errors become exit codes."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from fairlane import __version__
from fairlane.cli.options import SuggestingGroup
from fairlane.cli.output import INTERRUPTED, USAGE, explained
from fairlane.core.text import one_line
from fairlane.errors import FairlaneError

COMMANDS = {
    "demo": "Watch the jobs of three tenants run, fail, retry and die.",
    "init": "Write a first module of jobs, its test and a settings file.",
    "dev": "Run an application's worker and dashboard, and reload changed code.",
    "worker": "Run an application's jobs.",
    "dashboard": "Serve the dashboard and the HTTP API.",
    "enqueue": "Enqueue one job and print its id.",
    "top": "Watch queues, tenants, lanes and failures, live.",
    "tail": "Follow events: jobs that end or fail, breakers, workers, alerts.",
    "jobs": "List and show jobs, and act on them.",
    "dead-letters": "Review dead letters (dlq): jobs that failed and are not retried.",
    "queues": "Count jobs by queue and status; pause, resume or drain one.",
    "tasks": "Pause, resume or drain the jobs of a task.",
    "signals": "Emit a signal for jobs that wait for it, and list those that are kept.",
    "schedules": "List, show, add, pause, run and remove schedules.",
    "workflows": "List and show workflows; cancel or retry one.",
    "pauses": "List what is paused, by whom and why.",
    "tenants": "List and show tenants, set their share, pause, resume or drain one.",
    "limits": "List and set limits on waiting, running and starting jobs.",
    "breakers": "List, open and reset circuit breakers.",
    "alerts": "List alerts, and silence a rule for a while.",
    "workers": "List the registered workers, and the last exceptions of their jobs.",
    "tokens": "Create, list and revoke tokens and log-in links for the HTTP API.",
    "audit": "List and verify the audit of operators' acts.",
    "snapshot": "Count the jobs in the store.",
    "supervisors": "Make and examine processes that supervisors in SQL drive.",
    "migrate": "Bring the store's schema up to date.",
    "healthcheck": "Exit with 0 if the store, or a worker's probe, is healthy.",
    "doctor": "Say what is wrong now, and check settings, store and application, with remedies.",
    "completion": "Print a script that completes commands and names in a shell.",
    "config": "Show each setting and where it came from, without passwords.",
}
"""Each command, in a module of its name, and its line in the help of the group."""
ALIASES = {"dlq": "dead-letters", "supervisor": "supervisors"}
SERVICES = frozenset({"worker", "dashboard", "dev"})
"""Commands that run until they are stopped, under a process manager."""
NAME = "fairlane"


class LazyGroup(SuggestingGroup):
    """A group that imports a command only when it is called, so that `--help` stays quick."""

    def __init__(self, *args: Any, entries: Mapping[str, str], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in self.entries:
            return None
        module = name.replace("-", "_")
        command = getattr(importlib.import_module(f"fairlane.cli.commands.{module}"), module)
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        found = [CompletionItem(name, help=line) for name, line in self.entries.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.entries.items()))


class Root(LazyGroup):
    """Turns user errors into one line on stderr and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (FairlaneError, OSError) as error:
            if ctx.params["debug"] or isinstance(error, BrokenPipeError):
                raise
            raise explained(error, is_service=ctx.invoked_subcommand in SERVICES) from error

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
@click.version_option(__version__, message="%(prog)s %(version)s")
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
