"""Shows the demonstration while it runs: a live table on a terminal, one line an event anywhere else."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from fairlane.cli.demo.story import TENANTS
from fairlane.cli.demo.watching import Event, Look
from fairlane.cli.printing import STYLES, Printer

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

SHOWN = ("pending", "processing", "failed", "completed", "dead", "cancelled")
EVENTS = 12


class Screen(Protocol):
    def show(self, elapsed_s: float, look: Look, said: list[str]) -> None: ...


@contextmanager
def screen_for(out: Printer) -> Iterator[Screen]:
    if out.as_json:
        yield Silent()
        return
    if out.console is None:
        yield Lines(out)
        return
    from rich.live import Live

    with Live(console=out.console, auto_refresh=False) as live:
        yield Table(out.console, live)


class Silent:
    def show(self, elapsed_s: float, look: Look, said: list[str]) -> None:
        pass


class Lines:
    def __init__(self, out: Printer) -> None:
        self._out = out

    def show(self, elapsed_s: float, look: Look, said: list[str]) -> None:
        for event in look.events:
            self._out.line(f"{elapsed_s:5.1f} s  {event.tenant:<8} {event.word:<10} {event.says}")
        for line in said:
            self._out.line(f"{elapsed_s:5.1f} s  {line}")


class Table:
    """Per tenant the counts, below them the last events."""

    def __init__(self, console: Console, live: Live) -> None:
        self._console, self._live = console, live
        self._log: deque[tuple[float, Event | str]] = deque(maxlen=EVENTS)

    def show(self, elapsed_s: float, look: Look, said: list[str]) -> None:
        happened: list[Event | str] = [*look.events, *said]
        self._log.extend((elapsed_s, event) for event in happened)
        self._live.update(self._drawn(elapsed_s, look), refresh=True)

    def _drawn(self, elapsed_s: float, look: Look) -> RenderableType:
        from rich import box
        from rich.console import Group
        from rich.table import Table as Grid
        from rich.text import Text

        table = Grid(box=box.SIMPLE_HEAD, title=f"Fairlane demo, {elapsed_s:.1f} s", title_justify="left")
        table.add_column("tenant")
        for status in SHOWN:
            table.add_column(status, justify="right", style=STYLES[status])
        for tenant in TENANTS:
            counts = look.counts(tenant)
            table.add_row(tenant, *(str(counts[status]) for status in SHOWN))
        lines = Text()
        for at_s, event in self._log:
            lines.append(f" {at_s:5.1f} s  ", style="bright_black")
            if isinstance(event, str):
                lines.append(f"{event}\n")
            else:
                lines.append(f"{event.tenant:<8} ").append(f"{event.word:<10} ", style=STYLES.get(event.word, ""))
                lines.append(f"{event.says}\n")
        lines.append("\n" * (EVENTS - len(self._log)))
        return Group(table, lines)
