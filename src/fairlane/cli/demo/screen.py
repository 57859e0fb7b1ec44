"""Shows the demo while it runs: a live table on a terminal, one line per event elsewhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from fairlane.cli.demo.events import DemoEvent, Look, process_of
from fairlane.cli.demo.story import TENANTS
from fairlane.cli.output import STYLES, Printer, span
from fairlane.core.breaker import BreakerRecord
from fairlane.core.schedules import Schedule

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.table import Table as Grid

SHOWN = ("pending", "processing", "failed", "completed", "dead", "cancelled")
WORDS = STYLES | {
    "snoozed": "magenta",
    "fired": "blue",
    "ready": "green",
    "open": "bold red",
    "half open": "yellow",
    "closed": "green",
}
EVENTS = 16
AROUND = 19
"""Lines of the screen that are not events."""


class Screen(Protocol):
    def show(self, elapsed_s: float, look: Look, happened: Sequence[DemoEvent | str]) -> None: ...


@contextmanager
def screen_for(out: Printer, seconds: float) -> Iterator[Screen]:
    if out.as_json:
        yield Silent()
        return
    if out.console is None:
        yield Lines(out)
        return
    from rich.live import Live

    with Live(console=out.console, auto_refresh=False) as live:
        yield Table(out.console, live, seconds)


class Silent:
    def show(self, elapsed_s: float, look: Look, happened: Sequence[DemoEvent | str]) -> None:
        pass


class Lines:
    def __init__(self, out: Printer) -> None:
        self._out = out

    def show(self, elapsed_s: float, look: Look, happened: Sequence[DemoEvent | str]) -> None:
        for event in happened:
            said = event if isinstance(event, str) else f"{event.who:<8} {event.word:<10} {event}"
            self._out.line(f"{elapsed_s:5.1f} s  {said}")


class Table:
    """A live table: counts per tenant, then workers, breakers and schedules, then the latest events."""

    def __init__(self, console: Console, live: Live, seconds: float) -> None:
        self._console, self._live, self._seconds = console, live, seconds
        self._log: deque[tuple[float, DemoEvent | str]] = deque(maxlen=EVENTS)

    def show(self, elapsed_s: float, look: Look, happened: Sequence[DemoEvent | str]) -> None:
        telling = [event for event in happened if isinstance(event, str) or not event.is_routine]
        self._log.extend((elapsed_s, event) for event in telling)
        self._live.update(self._drawn(elapsed_s, look), refresh=True)

    def _drawn(self, elapsed_s: float, look: Look) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        title = Text.assemble(
            ("\n Fairlane demo", "bold"), (f"   {elapsed_s:4.1f} s of at most {self._seconds:g} s", "bright_black")
        )
        return Group(title, self._tenants(look), self._standing(look), self._events())

    def _tenants(self, look: Look) -> Grid:
        from rich import box
        from rich.table import Table as Grid

        table = Grid(box=box.SIMPLE_HEAD, show_footer=True, padding=(0, 1), pad_edge=True)
        total = look.counts()
        table.add_column("tenant", "all", min_width=9)
        for status in SHOWN:
            table.add_column(status, str(total[status]), justify="right", style=STYLES[status])
        for tenant in TENANTS:
            counts = look.counts(tenant)
            table.add_row(tenant, *(str(counts[status] or "·") for status in SHOWN))
        return table

    def _standing(self, look: Look) -> Grid:
        from rich.table import Table as Grid
        from rich.text import Text

        grid = Grid.grid(padding=(0, 2, 0, 0))
        grid.add_column(min_width=9)
        grid.add_column(min_width=10)
        grid.add_column(no_wrap=True, overflow="ellipsis")
        for worker in look.workers:
            running = ", ".join(f"{number} × {kind}" for kind, number in sorted(look.running(worker).items()))
            grid.add_row(" worker", process_of(worker), running or Text("waits for jobs", style="bright_black"))
        for breaker in look.breakers:
            state = breaker.state.replace("_", " ")
            grid.add_row(" breaker", breaker.name, Text(state, WORDS[state]).append(_until(breaker, look), "default"))
        for schedule in look.schedules:
            grid.add_row(" schedule", schedule.spec.name, _timetable(schedule, look))
        return grid

    def _events(self) -> RenderableType:
        from rich.text import Text

        lines = Text("\n", no_wrap=True, overflow="ellipsis")
        room = max(min(EVENTS, self._console.height - AROUND), 3)
        log = list(self._log)[-room:]
        for at_s, event in log:
            lines.append(f" {at_s:4.1f} s  ", "bright_black")
            if isinstance(event, str):
                lines.append(f"{event}\n", "italic")
            else:
                lines.append(f"{event.who:<9} ").append(f"{event.word:<10} ", WORDS.get(event.word, ""))
                lines.append(f"{event}\n")
        lines.append("\n" * (room - len(log)))
        return lines


def _until(breaker: BreakerRecord, look: Look) -> str:
    if breaker.state != "open" or breaker.retry_at is None:
        return f", {breaker.failures} failures in a row" if breaker.failures else ""
    left_s = (breaker.retry_at - look.now).total_seconds()
    return f", a call is tried in {left_s:.1f} s" if left_s > 0 else ", the next call is tried"


def _timetable(schedule: Schedule, look: Look) -> str:
    from fairlane.core.schedules import Cron

    words = Cron(schedule.spec.cron, schedule.spec.timezone).explain()
    if schedule.next_at is None:
        return words
    return f"{words}; {'due' if schedule.next_at <= look.now else f'next in {span(schedule.next_at - look.now)}'}"
