"""Printing: data on stdout as a table, as lines or as JSON; everything else on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import click

from fairlane.cli.words import one_line, printable

if TYPE_CHECKING:
    from rich.console import Console

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
"""Colour only repeats what the word says."""


class Printer:
    """Where a command's words go. Rich tables on a terminal, plain columns anywhere else."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json

    @cached_property
    def console(self) -> Console | None:
        """None: not a terminal, a dumb one, or NO_COLOR."""
        if not sys.stdout.isatty():
            return None
        from rich.console import Console

        console = Console(highlight=False, soft_wrap=False)
        return None if console.no_color or console.is_dumb_terminal else console

    def data(self, value: object) -> None:
        """The answer as JSON, in UTF-8 whatever the terminal speaks: one line, indented on a terminal."""
        from fairlane.cli.documents import encoded

        click.echo(encoded(value, indented=sys.stdout.isatty()))

    def line(self, text: str) -> None:
        click.echo(printable(text))

    def note(self, text: str) -> None:
        """For the person at the terminal, never for the next program."""
        click.echo(printable(text), err=True)

    def table(self, titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        cells = [[one_line("" if cell is None else str(cell)) for cell in row] for row in rows]
        if self.console is not None:
            self._rich_table(self.console, titles, cells)
            return
        widths = [max(len(row[at]) for row in [list(titles), *cells]) for at in range(len(titles))]
        for row in [[title.upper() for title in titles], *cells]:
            click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    def facts(self, pairs: Iterable[tuple[str, object]]) -> None:
        """One `name  value` line each; empty values are left out."""
        shown = [(name, printable(str(value))) for name, value in pairs if value is not None and str(value)]
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
    def _rich_table(console: Console, titles: Sequence[str], rows: list[list[str]]) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, header_style="bold underline", padding=(0, 2, 0, 0))
        for title in titles:
            # An id is there to be copied: never cut, never broken.
            table.add_column(title, no_wrap=title == "id", overflow="fold")
        for row in rows:
            table.add_row(*[Text(cell, style=STYLES.get(cell, "")) for cell in row])
        console.print(table)
