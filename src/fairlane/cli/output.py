"""The output of commands: data on stdout as a table, lines or JSON, everything else on stderr; and exit codes.

Tables and `--json` show the same values of core. JSON contains them in full, payloads and results as nested JSON.

Exit codes:
0 done   1 failed   2 usage or settings   3 not found   4 conflict   5 denied   69 store unreachable   130 interrupted
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from fairlane.cli.tables import fitted, width_of
from fairlane.core.text import one_line, plural as plural, printable, printable_json
from fairlane.errors import (
    BadInput,
    CredentialNotFound,
    DeadLetterNotFound,
    DuplicateJob,
    FairlaneError,
    IdConflict,
    InvalidState,
    JobNotFound,
    NotAdmitted,
    NotFound,
    RoleLacksRights,
    ScheduleNotFound,
    SchemaConflict,
    SqliteLibraryMismatch,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from msgspec import Struct
    from rich.console import Console


_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_KEPT = "\n\t"


def shortened(text: str, limit: int = 60) -> str:
    line = one_line(text)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def instant(at: datetime | None) -> str:
    """UTC, to the second: `2026-01-01T12:00:00Z`."""
    return "" if at is None else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def span(length: timedelta) -> str:
    """At most two units, as the options take it: `1h30m`, `45s`."""
    left = max(round(length.total_seconds()), 0)
    parts = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2]) or "0s"


def distance(at: datetime, now: datetime) -> str:
    """`5m ago`, `in 1h30m`."""
    if at <= now:
        return f"{span(now - at)} ago"
    return f"in {span(at - now)}"


def count(number: int, cap: int) -> str:
    """A count that stops at `cap`; the cap means that many or more."""
    return f"{number}+" if number >= cap else str(number)


STYLES = {
    "pending": "cyan",
    "processing": "bold cyan",
    "completed": "green",
    "failed": "yellow",
    "dead": "bold red",
    "cancelled": "bright_black",
    "pending_review": "bold red",
    "retried": "yellow",
    "resolved": "green",
    "discarded": "bright_black",
    "ok": "green",
    "warn": "yellow",
    "fail": "bold red",
}
"""Colour repeats the meaning of the word and adds nothing."""


Column = str | tuple[str, str | Callable[[Any], object]]
"""A field of a record by its path, as in `"job.tenant"`; or a heading of its own, and a field or what makes a cell."""

_FREE_TEXT = frozenset({"notes", "reason", "error_message"})
"""Fields that hold text of any length; a table shows its beginning."""


class Style(NamedTuple):
    """How values are shown: instants as their distance from `now`, if given; counts from `cap` on as `cap+`."""

    now: datetime | None = None
    cap: int | None = None

    def cell(self, value: object, field: str = "") -> str:
        match value:
            case None:
                return ""
            case bool():
                return "yes" if value else ""
            case datetime():
                return instant(value) if self.now is None else distance(value, self.now)
            case timedelta():
                return span(value)
            case int() if self.cap is not None:
                return count(value, self.cap)
            case float():
                return f"{value:g}s" if field.endswith("_s") else f"{value:g}"
            case tuple():
                return ",".join(str(item) for item in value)
            case dict():
                return ", ".join(f"{name}={self.cell(item)}" for name, item in value.items())
            case _:
                return str(value)


PLAIN = Style()


def _reader(source: str | Callable[[Any], object], style: Style) -> Callable[[Any], str]:
    """What makes the cell of a column from a record."""
    if callable(source):
        return lambda record: style.cell(source(record))
    get, field = attrgetter(source), source.rpartition(".")[2]

    def read(record: Any) -> str:
        value = get(record)
        text = style.cell(value, field)
        return shortened(text, 80) if field in _FREE_TEXT or isinstance(value, (tuple, dict)) else text

    return read


def heading(path: str) -> str:
    """The heading of a field: `tenant` for `job.tenant`, `died` for `died_at`."""
    return path.rpartition(".")[2].removesuffix("_at").removesuffix("_s").replace("_", " ")


def facts_of(record: Struct, *, without: Container[str] = (), style: Style = PLAIN) -> Iterator[tuple[str, str]]:
    """A heading and a value for each field of a record, for `Printer.facts`."""
    for name in record.__struct_fields__:
        if name not in without:
            yield heading(name), style.cell(getattr(record, name), name)


class Printer:
    """Where the output of a command goes. Rich tables on a terminal, plain columns anywhere else."""

    def __init__(self, *, as_json: bool = False, wide: bool = False) -> None:
        self.as_json, self.wide = as_json, wide

    @cached_property
    def console(self) -> Console | None:
        """None: not a terminal, a dumb one, or NO_COLOR."""
        if not sys.stdout.isatty():
            return None
        from rich.console import Console

        console = Console(highlight=False, soft_wrap=False)
        return None if console.no_color or console.is_dumb_terminal else console

    def data(self, value: object) -> None:
        """Print the data as JSON, always in UTF-8: one line, or indented on a terminal."""

        click.echo(encoded(value, indented=sys.stdout.isatty()))

    def line(self, text: str) -> None:
        click.echo(printable(text, keep=_KEPT))

    def note(self, text: str) -> None:
        """Print a note for people, on stderr."""
        click.echo(printable(text, keep=_KEPT), err=True)

    def table(
        self,
        titles: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        drops: Sequence[str] = (),
    ) -> None:
        """Print a table that fits the terminal, unless it is to be wide.

        Ids are shortened to their last block, which commands accept; then columns of `drops` are left out, in their
        order; then the longest cells are cut. No word is broken over two lines.
        """
        cells = [[one_line("" if cell is None else str(cell)) for cell in row] for row in rows]
        if self.console is not None:
            table = [list(titles), *cells]
            shown = table if self.wide else fitted(table, drops, self.console.width)
            full = {title for title, *cells in zip(*table, strict=True) if any(cells)}
            left_out = [title for title in titles if title in full and title not in shown[0]]
            self._rich_table(self.console, shown[0], shown[1:], width=width_of(shown) if self.wide else None)
            if left_out:
                self.note(f"left out: {', '.join(left_out)}; --wide shows all")
            return
        widths = [max(len(row[at]) for row in [list(titles), *cells]) for at in range(len(titles))]
        for row in [[title.upper() for title in titles], *cells]:
            click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    def records(
        self,
        columns: Sequence[Column],
        records: Iterable[Any],
        style: Style = PLAIN,
        drops: Sequence[str] = (),
    ) -> None:
        """Print a table of records, a column for each field named."""
        records = tuple(records)
        titled = [(heading(column), column) if isinstance(column, str) else column for column in columns]
        readers = [_reader(source, style) for _, source in titled]
        rows = [[read(record) for read in readers] for record in records]
        self.table([title for title, _ in titled], rows, drops=drops)

    def listing(
        self,
        name: str,
        found: Any,
        columns: Sequence[Column],
        *,
        empty: str,
        style: Style = PLAIN,
        turn: str = "--before",
        drops: Sequence[str] = (),
    ) -> None:
        """Print a page whose field `name` holds the records, or a tuple of records: as JSON or as a table.

        `empty` is the note if there are none; `turn` is the option that continues with the next page.
        """
        if self.as_json:
            self.data({name: found} if isinstance(found, tuple) else found)
            return
        records = found if isinstance(found, tuple) else getattr(found, name)
        if records:
            self.records(columns, records, style, drops)
        else:
            self.note(empty)
        if getattr(found, "next", None) is not None:
            self.note(f"there are more: continue with {turn} {found.next}")

    def answer(self, data: object, text: str) -> None:
        """Print the data as JSON, or a line of text about it."""
        if self.as_json:
            self.data(data)
        else:
            self.line(text)

    def facts(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Print one `name  value` line each; empty values are omitted."""
        shown = [(name, printable(str(value), keep=_KEPT)) for name, value in pairs if value is not None and str(value)]
        width = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            first, *rest = value.split("\n")
            self._fact(name.ljust(width), first)
            for line in rest:
                self._fact(" " * width, line)

    def _fact(self, name: str, value: str) -> None:
        if self.console is None:
            click.echo(f"{name}  {value}".rstrip())
            return
        from rich.text import Text

        self.console.print(Text.assemble((name, "bold"), "  ", (value, STYLES.get(value, ""))), soft_wrap=True)

    @staticmethod
    def _rich_table(console: Console, titles: Sequence[str], rows: list[list[str]], *, width: int | None) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, header_style="bold underline", padding=(0, 2, 0, 0))
        for title in titles:
            table.add_column(title, no_wrap=True, overflow="ellipsis")
        for row in rows:
            table.add_row(*[Text(cell, style=STYLES.get(cell, "")) for cell in row])
        if width is not None:
            console.width = width  # wider than the terminal, which breaks the lines itself
        console.print(table)


@contextmanager
def progress(title: str | None) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr, if that is a terminal, for what may take long; yields a report of how many are done of how many.

    Without a report it shows that something goes on, and for how long. None: no bar.
    """
    if title is None or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True, highlight=False), transient=True) as bar:
        task = bar.add_task(one_line(title), total=None, count="")
        yield lambda done, total: bar.update(task, completed=done, total=total, count=f"{done}/{total}")


def document(value: object) -> Any:
    """A value of core as plain data. Stored JSON text stays exactly as it is, large numbers included."""
    import msgspec

    from fairlane.core.job import Job
    from fairlane.core.payload.codec import stored_json

    if isinstance(value, Job):
        return {
            **_fields(value),
            "payload": stored_json(value.payload),
            "result": value.result and stored_json(value.result),
        }
    if isinstance(value, msgspec.Struct):
        return _fields(value)
    if isinstance(value, (list, tuple)):
        return [document(item) for item in value]
    if isinstance(value, dict):
        return {name: document(item) for name, item in value.items()}
    return value


def encoded(value: object, *, indented: bool) -> bytes:
    import msgspec

    text = msgspec.json.encode(document(value))
    return printable_json((msgspec.json.format(text, indent=2) if indented else text).decode()).encode()


def indented(text: str) -> str:
    """Stored JSON text, made readable; invalid JSON stays as it is."""
    import msgspec

    try:
        return msgspec.json.format(text.encode(), indent=2).decode()
    except (msgspec.MsgspecError, UnicodeError):
        return text


def _fields(value: Struct) -> dict[str, Any]:
    return {name: document(getattr(value, name)) for name in value.__struct_fields__}


FAILED, USAGE, NOT_FOUND, CONFLICT, DENIED, UNREACHABLE, INTERRUPTED = 1, 2, 3, 4, 5, 69, 130

_CODES: tuple[tuple[type[Exception], int], ...] = (
    (JobNotFound, NOT_FOUND),
    (DeadLetterNotFound, NOT_FOUND),
    (ScheduleNotFound, NOT_FOUND),
    (CredentialNotFound, NOT_FOUND),
    (NotFound, NOT_FOUND),
    (DuplicateJob, CONFLICT),
    (IdConflict, CONFLICT),
    (InvalidState, CONFLICT),
    (SchemaConflict, CONFLICT),
    (StoreUnavailable, UNREACHABLE),
    (SqliteLibraryMismatch, USAGE),
    (RoleLacksRights, DENIED),
    (BadInput, USAGE),
    (PermissionError, DENIED),
)
_LACKS_RIGHTS = "42501"


class Failed(click.ClickException):
    """Ends the command with an exit code and one line on stderr."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(one_line(message))
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it from the instance as well


_UNRESOLVED = re.compile(
    r"failed to resolve host|could not translate host name|Error -\d+ connecting to|nodename nor servname provided"
)
_RESOLVER_IS_AWAY = re.compile(r"Errno -3\]|Error -3 |Temporary failure in name resolution|Try again")
"""EAI_AGAIN: nothing is known about the name, so it is no mistake."""
_LACKS_A_RIGHT = "this user lacks a right"
"""Our advice where Redis answers NOPERM."""


def outage(message: str, *, is_mistaken: bool = False, is_service: bool = False) -> Failed:
    """The end of a command whose store cannot be reached; a mistake in its address is one of the settings.

    For a service an unknown host is an outage: names come and go with the network and with servers that restart, and
    process managers do not restart what ends with 2.
    """
    if _LACKS_A_RIGHT in message:
        return Failed(message, DENIED)
    if is_mistaken or _is_unknown_host(message):
        code = UNREACHABLE if is_service and not is_mistaken else USAGE
        return Failed(f"{message}; check host, user, password and database of its url", code)
    return Failed(message, UNREACHABLE)


def _is_unknown_host(message: str) -> bool:
    return bool(_UNRESOLVED.search(message)) and not _RESOLVER_IS_AWAY.search(message)


def exit_code_of(error: Exception) -> int:
    if any(getattr(cause, "sqlstate", None) == _LACKS_RIGHTS for cause in _behind(error)):
        return DENIED
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)


def exit_code_of_refusal(code: str) -> int:
    """The exit code for an error of this stable code."""
    return next((exit_code for kind, exit_code in _CODES if getattr(kind, "code", None) == code), FAILED)


def explained(error: FairlaneError | OSError, *, is_service: bool = False) -> Failed:
    """The error as a `Failed`, with its exit code."""
    code = exit_code_of(error)
    if code != UNREACHABLE:
        return Failed(str(error), code)
    return outage(str(error), is_mistaken=isinstance(error, NotAdmitted), is_service=is_service)


def _behind(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__
