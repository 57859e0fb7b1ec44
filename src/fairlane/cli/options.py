"""Shared by many commands: groups, options, readers of spans and instants, and acts on one thing or on several."""

from __future__ import annotations

import difflib
import getpass
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial, wraps
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from fairlane.cli.output import USAGE, Failed, Printer, exit_code_of_refusal, progress
from fairlane.cli.target import At
from fairlane.core.text import one_line, plural
from fairlane.errors import FairlaneError

if TYPE_CHECKING:
    from fairlane.client.admin.bulk_acts import ManyActs, OnEach, RefusedAct

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
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.possibilities:
                raise
            step = f"options go behind the command, as in {ctx.command_path} COMMAND {error.option_name}"
            raise click.UsageError(f"{error.format_message().rstrip('.')}; {step}", ctx) from None

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
        help="The store: sqlite:///file.db, postgresql://user@host/database, redis://host:6379/0.  "
        "[env var: FAIRLANE_URL]",
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


def lists(command: F) -> F:
    """`--json` and `--wide`, handed to the command as a printer, `out`."""

    @wraps(command)
    def run(*args: Any, as_json: bool, wide: bool, **kwargs: Any) -> Any:
        return command(*args, out=Printer(as_json=as_json, wide=wide), **kwargs)

    run = click.option("--wide", is_flag=True, help="Whole ids and all columns, however narrow the terminal is.")(run)
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
_dry_run = click.option("--dry-run", is_flag=True, help="Change nothing; count what would be changed, and what not.")
_every = click.option("--all", "every", is_flag=True, help="All there are, instead of ids or filters.")


def of_several(ids: Callable[[F], F], *options: Callable[[F], F]) -> Callable[[F], F]:
    """The parameters of an act on one or several targets: ids, the act's own options, and the common ones."""

    def decorate(command: F) -> F:
        for option in (prints, at_store, in_scope, acts, _dry_run, _yes, _every, *reversed(options), ids):
            command = option(command)
        return command

    return decorate


class Bulk(NamedTuple):
    """What a bulk act does to what, and how its results are shown."""

    verb: str
    noun: str
    name: str
    """Of the results in JSON."""
    line: Callable[[Any], str]

    def question(self, number: int) -> str:
        return f"{self.verb.capitalize()} {plural(number, self.noun)}?"


def act_on_several(
    bulk: Bulk,
    act: Callable[..., ManyActs[Any]],
    *,
    number: int | None = None,
    question: str | None = None,
    yes: bool,
    dry_run: bool,
    at: At,
    out: Printer,
) -> None:
    """Ask if there are several, then act on each: on `number` targets, or, if that is not known, asking `question`.

    A refusal stops no other; the first one sets the exit code. `act` gets the client, `dry_run` and `on_each`.
    """
    asked = None if number == 1 else question or bulk.question(number or 0)
    if asked is not None and not dry_run:
        confirmed(asked, yes=yes)
    with at.client() as client, progress(None if asked is None else asked.rstrip("?")) as report:
        done = act(client, dry_run=dry_run, on_each=report)
    if dry_run:
        _would(bulk, done.matched, done.left, out)
    else:
        _report(bulk, done.done, done.refused, out, alone=number == 1)


def act_on_matching(
    bulk: Bulk, act: Callable[..., ManyActs[Any]], *, yes: bool, dry_run: bool, at: At, out: Printer
) -> None:
    """Count what matches, ask, and act on each. `act` is called page by page, with `before` beside the others."""
    with at.client() as client:
        number, before, left = 0, None, Counter[str]()
        while True:
            found = act(client, dry_run=True, before=before)
            number, before = number + found.matched, found.next
            left.update(found.left)
            if before is None:
                break
        if dry_run or number == 0:
            _would(bulk, number, left, out)
            return
        confirmed(bulk.question(number), yes=yes)
        done: list[Any] = []
        refused: list[RefusedAct] = []
        with progress(bulk.question(number).rstrip("?")) as report:
            while True:
                behind = len(done) + len(refused)
                some = act(
                    client,
                    dry_run=False,
                    before=before,
                    on_each=lambda of, _, behind=behind: report(behind + of, number),
                )
                done, refused, before = [*done, *some.done], [*refused, *some.refused], some.next
                if before is None:
                    break
    _report(bulk, tuple(done), tuple(refused), out)


def _add_progress(report: OnEach, behind: int, number: int, done: int, _: int) -> None:
    report(behind + done, number)


def _would(bulk: Bulk, number: int, left: Mapping[str, int], out: Printer) -> None:
    data = {"dry_run": True, "matched": number, "left": dict(left)}
    kept = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in left.items())
    says = f"{plural(number, bulk.noun)} to {bulk.verb}" + (f", leaving {kept}" if kept else "")
    out.answer(data, f"{says}; nothing was changed")


def _report(
    bulk: Bulk, done: tuple[Any, ...], refused: tuple[RefusedAct, ...], out: Printer, *, alone: bool = False
) -> None:
    if alone and refused:
        raise Failed(refused[0].message, exit_code_of_refusal(refused[0].code))
    for refusal in refused:
        out.note(f"fairlane: {one_line(refusal.message)}")
    if out.as_json:
        out.data({bulk.name: done, "refused": refused})
    else:
        for one in done:
            out.line(bulk.line(one))
    if refused:
        raise click.exceptions.Exit(exit_code_of_refusal(refused[0].code))
