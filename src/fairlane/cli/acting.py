"""Acts on one thing or on several: each told apart, the first refusal decides the exit code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click

from fairlane.cli.exits import exit_code_of
from fairlane.cli.options import acts, at_store, confirmed, in_scope, prints
from fairlane.cli.output import Printer, one_line, plural
from fairlane.cli.target import At
from fairlane.core.ids import JobId
from fairlane.errors import DeadLetterNotFound, FairlaneError, InvalidOption, InvalidState, JobNotFound

if TYPE_CHECKING:
    from fairlane.client.app import Fairlane

Target = TypeVar("Target")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_yes = click.option("--yes", is_flag=True, help="Do not ask before acting on several.")


def of_several(ids: Callable[[F], F], *options: Callable[[F], F]) -> Callable[[F], F]:
    """What an act on one thing or on several takes: their ids, options of its own, and those of all such acts."""

    def decorate(command: F) -> F:
        for option in (prints, at_store, in_scope, acts, _yes, *reversed(options), ids):
            command = option(command)
        return command

    return decorate


def act_on_several(
    verb: str,
    noun: str,
    targets: Sequence[Target],
    act: Callable[[Fairlane, Target, dict[str, Any]], T],
    *,
    name: str,
    say: Callable[[T], str],
    yes: bool,
    at: At,
    out: Printer,
    **about: Any,
) -> None:
    """Ask if there are many, then do it to each in turn. One that is refused does not keep the others from being done."""
    if len(targets) > 1:
        confirmed(f"{verb.capitalize()} {plural(len(targets), noun)}?", yes=yes)
    with at.client() as client:
        _act_on_each(targets, lambda target: act(client, target, about), out=out, name=name, say=say)


def _act_on_each(
    targets: Sequence[Target],
    act: Callable[[Target], T],
    *,
    out: Printer,
    name: str,
    say: Callable[[T], str],
) -> None:
    done: list[T] = []
    refused: list[FairlaneError] = []
    for target in targets:
        try:
            done.append(act(target))
        except (JobNotFound, DeadLetterNotFound, InvalidState) as error:
            if len(targets) == 1:
                raise
            refused.append(error)
            out.note(f"fairlane: {one_line(str(error))}")
        else:
            if not out.as_json:
                out.line(say(done[-1]))
    if out.as_json:
        out.data({name: done, "refused": [{"code": error.code, "message": str(error)} for error in refused]})
    if refused:
        raise click.exceptions.Exit(exit_code_of(refused[0]))


def read_job_id(text: str) -> JobId:
    try:
        return JobId(UUID(text))
    except ValueError:
        raise InvalidOption("ID", text, "a job's id, as `fairlane jobs list` shows it") from None
