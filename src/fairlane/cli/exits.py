"""How a command ends: its exit code, and one clear line for what went wrong.

0 done   1 failed   2 usage or settings   3 not found   4 conflict   5 denied   69 store unreachable   130 interrupted
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from fairlane.cli.output import one_line
from fairlane.errors import (
    BadInput,
    DeadLetterNotFound,
    DuplicateJob,
    FairlaneError,
    IdConflict,
    InvalidState,
    JobNotFound,
    ScheduleNotFound,
    SqliteLibraryMismatch,
    StoreUnavailable,
)

FAILED, USAGE, NOT_FOUND, CONFLICT, DENIED, UNREACHABLE, INTERRUPTED = 1, 2, 3, 4, 5, 69, 130

_CODES: tuple[tuple[type[Exception], int], ...] = (
    (JobNotFound, NOT_FOUND),
    (DeadLetterNotFound, NOT_FOUND),
    (ScheduleNotFound, NOT_FOUND),
    (DuplicateJob, CONFLICT),
    (IdConflict, CONFLICT),
    (InvalidState, CONFLICT),
    (StoreUnavailable, UNREACHABLE),
    (SqliteLibraryMismatch, USAGE),
    (BadInput, USAGE),
    (PermissionError, DENIED),
)
_LACKS_RIGHTS = "42501"


class Failed(click.ClickException):
    """Ends the command with a code of ours and one line."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(one_line(message))
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it from the instance as well


def exit_code_of(error: Exception) -> int:
    if any(getattr(cause, "sqlstate", None) == _LACKS_RIGHTS for cause in _behind(error)):
        return DENIED
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)


def explained(error: FairlaneError | OSError) -> Failed:
    """The same error as the command's one line."""
    return Failed(str(error), exit_code_of(error))


def _behind(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__
