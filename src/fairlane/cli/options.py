"""Shared by many commands: groups, options, readers of spans and instants, and acts on one thing or on several."""

from __future__ import annotations

import difflib
import getpass
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial, wraps
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
from click.core import ParameterSource

from fairlane.cli.output import USAGE, Failed, Printer, exit_code_of_refusal, progress
from fairlane.cli.target import At
from fairlane.core.text import one_line
from fairlane.errors import FairlaneError

if TYPE_CHECKING:
    from fairlane.client.admin.bulk_acts import ManyActs, OnEach
    from fairlane.client.app import Fairlane

T = TypeVar("T")

F = TypeVar("F", bound=Callable[..., Any])


class SuggestingGroup(click.Group):
    """A group that lists its commands in the order they were written, and answers a mistyped one with the nearest.

    With `default` that command runs if none is named: `fairlane queues` is `fairlane queues list`.
    """

    def __init__(self, *args: Any, default: str | None = None, **attributes: Any) -> None:
        if default is not None:
            attributes["no_args_is_help"] = False
        super().__init__(*args, **attributes)
        self.default = default

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_named = args and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
        if self.default is not None and not is_named:
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            known = self.list_commands(ctx)
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            step = f'did you mean "{close[0]}"?' if close else f"there are {', '.join(known)}"
            raise click.UsageError(f'{ctx.command_path} has no command "{name}"; {step}', ctx)
        return super().resolve_command(ctx, args)


COMPLETED_WITHIN_S = 2.0
"""A store that does not answer within this long completes no name."""


def names_of(
    kind: Literal["queues", "types", "tenants"],
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Completes, in a shell, names that the store knows: what registered workers serve, or tenants."""

    def read(at: At, found: list[str]) -> None:
        with suppress(FairlaneError, OSError), at.client() as client:
            if kind == "tenants":
                found += [tenant.name for tenant in client.tenants.list(limit=200).tenants]
            else:
                found += sorted({name for worker in client.workers.list().workers for name in getattr(worker, kind)})

    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
        found: list[str] = []
        at = At(context.params.get("url"), context.params.get("app"))
        thread = Thread(target=read, args=(at, found), daemon=True)
        thread.start()
        thread.join(COMPLETED_WITHIN_S)
        return [name for name in list(found) if name.startswith(begun)]

    return complete


queue_option = partial(click.option, "--queue", shell_complete=names_of("queues"))
type_option = partial(click.option, "--type", shell_complete=names_of("types"))


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


def one_application(argument: str | None, option: str | None) -> str | None:
    """The application that is named as an argument or by `--app`."""
    if argument is not None and option is not None and argument != option:
        raise click.UsageError(f"{argument} and --app {option} contradict each other", click.get_current_context())
    return option or argument


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

    run = click.option("--all-tenants", is_flag=True, help="All tenants: the default.")(run)
    return click.option(  # type: ignore[return-value]
        "--tenant",
        envvar="FAIRLANE_TENANT",
        show_envvar=True,
        help="This tenant only.",
        shell_complete=names_of("tenants"),
    )(run)


def acts(command: F) -> F:
    """`--by` and `--notes`, for the audit record."""

    @wraps(command)
    def run(*args: Any, by: str | None, notes: str | None, **kwargs: Any) -> Any:
        from fairlane.core.payload.redaction import without_secrets

        notes = None if notes is None else without_secrets(notes)
        return command(*args, by=_user() if by is None else by, notes=notes, **kwargs)

    run = click.option("--notes", help="The reason, for the audit record.")(run)
    return click.option(  # type: ignore[return-value]
        "--by",
        envvar="FAIRLANE_BY",
        show_envvar=True,
        help="Who acts, for the audit record; your login name by default.",
    )(run)


def paged(command: F) -> F:
    command = click.option(
        "--before", type=click.IntRange(0, 2**63 - 1), metavar="NUMBER", help="Continue where the previous page ended."
    )(command)
    return click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="Rows to show.")(
        command
    )


def confirmed(question: str, *, yes: bool) -> None:
    """Ask before an act on several targets. Without a terminal `--yes` is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failed(f"{question} Nothing was changed: pass --yes to act without being asked", USAGE)
    if not click.confirm(question, err=True):
        raise Failed("nothing was changed")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:
        raise Failed("the login name cannot be determined: pass --by or set FAIRLANE_BY", USAGE) from error


_PART = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h|d|w)", re.ASCII)
_SPAN = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,6})?", re.ASCII)
_LONGEST_S = 36_500 * 86_400.0
"""A hundred years: past this an instant may not fit a calendar."""
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}


def read_span(text: str) -> timedelta:
    """`90s`, `5m`, `1h30m`, or plain seconds."""
    found = _read_span(text)
    if found is None:
        raise click.BadParameter(f"{text!r}: expected a span such as 90s, 5m, 1h30m or 2d")
    return found


def instant_ahead(text: str) -> datetime | timedelta:
    """An instant with its zone, or a span from now: `in 5m`, `+5m`, `5m`."""
    return _instant(text, sign=1, example="in 5m")


def instant_back(text: str) -> datetime | timedelta:
    """An instant with its zone, or a span before now: `5m ago`, `-5m`, `5m`."""
    return _instant(text, sign=-1, example="5m ago")


def _read_span(text: str) -> timedelta | None:
    text = text.strip().lower()
    if _NUMBER.fullmatch(text):
        seconds = float(text)
    elif _SPAN.fullmatch(text):
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
    else:
        return None
    return timedelta(seconds=seconds) if seconds <= _LONGEST_S else None


def _instant(text: str, sign: int, example: str) -> datetime | timedelta:
    relative = _relative(text.strip().lower(), sign)
    if relative is not None:
        return relative
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise click.BadParameter(f'{text!r}: expected an instant such as 2030-01-01T09:00Z, or "{example}"') from None
    if at.utcoffset() is None:
        raise click.BadParameter(
            f"{text!r}: expected a time zone too, as in {at.isoformat()}Z or {at.isoformat()}+02:00"
        )
    return at


def _relative(text: str, sign: int) -> timedelta | None:
    if text == "now":
        return timedelta(0)
    if text.startswith(("+", "in ")):
        text, sign = text.removeprefix("+").removeprefix("in "), 1
    elif text.startswith("-"):
        text, sign = text.removeprefix("-"), -1
    elif text.endswith(" ago"):
        text, sign = text.removesuffix(" ago"), -1
    found = _read_span(text)
    return None if found is None else sign * found


_yes = click.option("--yes", is_flag=True, help="Do not ask before acting on several.")


def of_several(ids: Callable[[F], F], *options: Callable[[F], F]) -> Callable[[F], F]:
    """The parameters of an act on one or several targets: ids, the act's own options, and the common ones."""

    def decorate(command: F) -> F:
        for option in (prints, at_store, in_scope, acts, _yes, *reversed(options), ids):
            command = option(command)
        return command

    return decorate


def act_on_several(
    question: str,
    act: Callable[[Fairlane, OnEach], ManyActs[T]],
    *,
    several: bool,
    name: str,
    line: Callable[[T], str],
    yes: bool,
    at: At,
    out: Printer,
) -> None:
    """Ask if there are several, then act on each. A refusal stops no other; the first one sets the exit code."""
    if several:
        confirmed(question, yes=yes)
    with at.client() as client, progress(question.rstrip("?") if several else None) as report:
        acts = act(client, report)
    if not several and acts.refused:
        raise Failed(acts.refused[0].message, exit_code_of_refusal(acts.refused[0].code))
    for refusal in acts.refused:
        out.note(f"fairlane: {one_line(refusal.message)}")
    if out.as_json:
        out.data({name: acts.done, "refused": acts.refused})
    else:
        for done in acts.done:
            out.line(line(done))
    if acts.refused:
        raise click.exceptions.Exit(exit_code_of_refusal(acts.refused[0].code))
