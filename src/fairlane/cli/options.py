"""Options that many commands share, each written once."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from fairlane.cli.exits import USAGE, Failed
from fairlane.cli.output import Printer
from fairlane.cli.target import At
from fairlane.core.payload.redaction import without_secrets

F = TypeVar("F", bound=Callable[..., Any])


def at_store(command: F) -> F:
    """`--url` and `--app`, handed to the command as `at`."""

    @wraps(command)
    def run(*args: Any, url: str | None, app: str | None, **kwargs: Any) -> Any:
        return command(*args, at=At(url, app), **kwargs)

    run = click.option(
        "--app",
        metavar="MODULE:NAME",
        help="The application, whose tasks and store are used.  [env var: FAIRLANE_APP]",
    )(run)
    return click.option(  # type: ignore[return-value]
        "--url",
        help="The store: sqlite:///file.db, postgresql://user@host/database.  [env var: FAIRLANE_URL]",
    )(run)


def prints(command: F) -> F:
    """`--json`, handed to the command as a printer, `out`."""

    @wraps(command)
    def run(*args: Any, as_json: bool, **kwargs: Any) -> Any:
        return command(*args, out=Printer(as_json=as_json), **kwargs)

    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(run)  # type: ignore[return-value]


def in_scope(command: F) -> F:
    """`--tenant` or `--all-tenants`, handed to the command as `tenant`; None is all of them."""

    @wraps(command)
    def run(*args: Any, tenant: str | None, all_tenants: bool, **kwargs: Any) -> Any:
        source = click.get_current_context().get_parameter_source("tenant")
        if all_tenants and tenant is not None and source is ParameterSource.COMMANDLINE:
            raise click.UsageError("--tenant and --all-tenants contradict each other", click.get_current_context())
        return command(*args, tenant=None if all_tenants else tenant, **kwargs)

    run = click.option("--all-tenants", is_flag=True, help="Look at all tenants: the default, said out loud.")(run)
    return click.option(  # type: ignore[return-value]
        "--tenant", envvar="FAIRLANE_TENANT", show_envvar=True, help="Look at this tenant only."
    )(run)


def acts(command: F) -> F:
    """`--by` and `--notes`, for what is written to the audit records."""

    @wraps(command)
    def run(*args: Any, by: str | None, notes: str | None, **kwargs: Any) -> Any:
        notes = None if notes is None else without_secrets(notes)
        return command(*args, by=_user() if by is None else by, notes=notes, **kwargs)

    run = click.option("--notes", help="Why, for those who read the audit records later.")(run)
    return click.option(  # type: ignore[return-value]
        "--by", envvar="FAIRLANE_BY", show_envvar=True, help="Who acts; your login name if left out."
    )(run)


def listing(command: F) -> F:
    """The word `list` may follow a command that only lists, as it follows the others."""

    @wraps(command)
    def run(*args: Any, word: str | None, **kwargs: Any) -> Any:
        return command(*args, **kwargs)

    return click.argument("word", required=False, metavar="[list]", type=click.Choice(["list"]))(run)  # type: ignore[return-value]


def paged(command: F) -> F:
    command = click.option(
        "--before", type=click.IntRange(0, 2**63 - 1), metavar="NUMBER", help="Go on where the last page ended."
    )(command)
    return click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="Rows to show.")(
        command
    )


def confirmed(question: str, *, yes: bool) -> None:
    """Ask before an act on many. Without a terminal to ask on, `--yes` has to say so."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failed(f"{question} Nothing was changed: pass --yes to go on without being asked", USAGE)
    if not click.confirm(question, err=True):
        raise Failed("nothing was changed")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:
        raise Failed("this system does not say who you are: pass --by or set FAIRLANE_BY", USAGE) from error
