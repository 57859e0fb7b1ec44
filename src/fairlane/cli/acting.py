"""Acts on one thing or on several: each told apart, the first refusal decides the exit code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import UUID

import click

from fairlane.cli.exits import exit_code_of
from fairlane.cli.options import confirmed
from fairlane.cli.printing import Printer
from fairlane.cli.words import one_line, plural
from fairlane.core.ids import JobId
from fairlane.errors import DeadLetterNotFound, FairlaneError, InvalidOption, JobNotFound, NotAllowed

Target = TypeVar("Target")
T = TypeVar("T")


def act_on_each(
    targets: Sequence[Target],
    act: Callable[[Target], T],
    *,
    out: Printer,
    name: str,
    say: Callable[[T], str],
) -> None:
    """Do it to each in turn. One that is refused does not keep the others from being done."""
    done: list[T] = []
    refused: list[FairlaneError] = []
    for target in targets:
        try:
            done.append(act(target))
        except (JobNotFound, DeadLetterNotFound, NotAllowed) as error:
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


def confirm_many(verb: str, noun: str, targets: Sequence[object], *, yes: bool) -> None:
    if len(targets) > 1:
        confirmed(f"{verb.capitalize()} {plural(len(targets), noun)}?", yes=yes)


def read_job_id(text: str) -> JobId:
    try:
        return JobId(UUID(text))
    except ValueError:
        raise InvalidOption("ID", text, "a job's id, as `fairlane jobs list` shows it") from None
