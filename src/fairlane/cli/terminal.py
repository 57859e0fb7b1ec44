"""A full-screen view in a terminal: keys without Enter, panels that are read in the background, and their drawing."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from fairlane.cli.loads import LoadReader, Loads
from fairlane.cli.output import STYLES, shortened
from fairlane.cli.panels import PANELS, TopPanel, headline
from fairlane.core.text import one_line
from fairlane.errors import FairlaneError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

ESCAPE = "\x1b"
NAMES = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1bOC": "right",
    "\x1bOD": "left",
    "\x1b[Z": "left",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\t": "right",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    ESCAPE: "escape",
    "\x03": "q",
}
TOGETHER_S = 0.03
"""The rest of an escape sequence follows within this long."""
OTHERS = 4
"""Rows of a panel that is not chosen."""
LEAST = 5
"""Rows of the chosen one, at least."""

HELP = (
    ("q, Ctrl-C", "quit"),
    ("Tab, ← →", "choose a panel"),
    ("↑ ↓, PgUp PgDn", "scroll in it"),
    ("s, r", "sort by the next column; reverse"),
    ("t, /", "show one tenant; an empty name shows all"),
    ("p, space", "pause the updates, and continue"),
    ("?", "this help"),
)


class Keyboard:
    """Keys of a terminal, one by one and not echoed, while its block lasts."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._file)
        tty.setcbreak(self._file)
        return self

    def __exit__(self, *_: object) -> None:
        termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)

    def typed(self) -> Iterator[str]:
        """Those that were typed: characters, or names such as `up`. Raises `EOFError` if the terminal is gone."""
        try:
            text = os.read(self._file, 1024).decode(errors="replace")
        except OSError:
            text = ""
        if not text:
            raise EOFError
        if text == ESCAPE and select.select([self._file], [], [], TOGETHER_S)[0]:
            text += os.read(self._file, 1024).decode(errors="replace")
        while text:
            known = next((key for key in sorted(NAMES, key=len, reverse=True) if text.startswith(key)), text[0])
            text = text[len(known) :]
            yield NAMES.get(known, known)


class Readings:
    """Reads the loads in a thread of its own, so that a slow store delays no key."""

    def __init__(self, reader: LoadReader, every_s: float, tenant: str | None, wake: Callable[[], None]) -> None:
        self._reader, self._every_s, self._wake = reader, every_s, wake
        self.tenant = tenant
        self.latest: Loads | None = None
        self.error: str | None = None
        """Why the last reading failed; the latest is older then."""
        self._now = threading.Event()
        threading.Thread(target=self._read, name="fairlane-top", daemon=True).start()

    def of(self, tenant: str | None) -> None:
        self.tenant = tenant
        self._now.set()

    def _read(self) -> None:
        while True:
            tenant = self.tenant
            try:
                latest = self._reader.read(tenant, live=True)
            except FairlaneError as error:
                self.error = one_line(str(error))
            else:
                self.error = None
                if tenant == self.tenant:
                    self.latest = latest
            self._wake()
            self._now.wait(self._every_s)
            self._now.clear()


class TopScreen:
    """What is chosen, sorted, filtered and paused; changed by keys, and drawn."""

    def __init__(self, store: str, tenant: str | None) -> None:
        self._store, self.tenant = store, tenant
        self._chosen = 0
        self._orders: dict[str, tuple[int, bool]] = {}
        """By panel: the column that it is sorted by, and whether reversed."""
        self._first = 0
        """The first row shown of the chosen panel."""
        self._typed: str | None = None
        """The name of a tenant that is being typed."""
        self.is_paused = self._has_help = self.is_over = False
        self._shown: Loads | None = None

    def press(self, key: str) -> None:
        if self._typed is not None:
            self._type(key)
            return
        match key:
            case "q":
                self.is_over = True
            case "left" | "right":
                self._chosen, self._first = (self._chosen + (1 if key == "right" else -1)) % len(PANELS), 0
            case "up" | "down" | "page up" | "page down":
                step = 10 if "page" in key else 1
                self._first = max(self._first + (step if "down" in key else -step), 0)
            case "home":
                self._first = 0
            case "s" | "r":
                self._sort(key)
            case "t" | "/":
                self._typed = ""
            case "p" | " ":
                self.is_paused = not self.is_paused
            case "?" | "h":
                self._has_help = not self._has_help
            case "escape":
                self._has_help = False

    def _sort(self, key: str) -> None:
        panel = PANELS[self._chosen]
        order, is_reversed = self._orders.get(panel.name, (panel.order, False))
        if key == "s":
            order, is_reversed = (order + 1) % len(panel.columns), False
        else:
            is_reversed = not is_reversed
        self._orders[panel.name], self._first = (order, is_reversed), 0

    def _type(self, key: str) -> None:
        assert self._typed is not None
        if key == "enter":
            self.tenant, self._typed, self._first = self._typed.strip() or None, None, 0
        elif key == "escape":
            self._typed = None
        elif key == "backspace":
            self._typed = self._typed[:-1]
        elif len(key) == 1 and key.isprintable():
            self._typed += key

    def draw(self, console: Console, latest: Loads | None, error: str | None) -> RenderableType:
        from rich.console import Group

        if not self.is_paused or self._shown is None or self._shown.tenant != self.tenant:
            self._shown = latest if latest is not None and latest.tenant == self.tenant else None
        body: list[RenderableType] = [self._head(error, console.width)]
        if self._has_help:
            body.append(_help())
        elif self._shown is not None:
            body += self._panels(self._shown, console)
        room = console.height - 1
        lines = [line for part in body for line in console.render_lines(part, pad=False)][:room]
        return Group(_Lines(lines, room), self._foot())

    def _head(self, error: str | None, width: int) -> Text:
        from rich.text import Text

        text = Text().append(" fairlane top ", "bold reverse").append(f" {self._store} ", "bright_black")
        if self._shown is None:
            text.append("reading …" if error is None else "")
        else:
            text.append(f"{self._shown.now:%H:%M:%S}Z", "bright_black")
            used = len(text)
            for words, style in headline(self._shown):
                words = one_line(words)
                is_full = used + 2 + len(words) > width
                used = (0 if is_full else used) + 2 + len(words)
                text.append("\n  " if is_full else "  ").append(words, style)
        if error is not None:
            text.append(f"\n {error}; the next try follows", "bold red")
        return text

    def _panels(self, loads: Loads, console: Console) -> Iterator[RenderableType]:
        counts = [len(panel.rows(loads)) for panel in PANELS]
        spare = console.height - 4 - len(PANELS) - 1 - LEAST
        rows = [0] * len(PANELS)
        for index, count in enumerate(counts):
            wanted = min(count, OTHERS) or 1
            if index != self._chosen and spare >= wanted + 1:
                rows[index] = wanted
                spare -= wanted + 1
        rows[self._chosen] = LEAST + max(spare, 0)
        self._first = min(self._first, max(counts[self._chosen] - rows[self._chosen], 0))
        for index, panel in enumerate(PANELS):
            yield self._title(panel, counts[index], rows[index], is_chosen=index == self._chosen)
            if rows[index]:
                yield self._table(panel, loads, self._first if index == self._chosen else 0, rows[index], console.width)

    def _title(self, panel: TopPanel, count: int, rows: int, *, is_chosen: bool) -> Text:
        from rich.text import Text

        text = Text().append(f" {panel.name} ", "bold reverse cyan" if is_chosen else "bold")
        text.append(f" {count:,}" if count else "", "bright_black")
        if count > rows > 0:
            first = self._first if is_chosen else 0
            text.append(f", {first + 1} to {first + rows}", "bright_black")
        return text

    def _table(self, panel: TopPanel, loads: Loads, first: int, rows: int, width: int) -> RenderableType:
        order, is_reversed = self._orders.get(panel.name, (panel.order, False))
        found = panel.sorted(loads, order, is_reversed=is_reversed)[first : first + rows]
        return drawn(panel, found, width, order=order, is_reversed=is_reversed)

    def _foot(self) -> Text:
        from rich.text import Text

        if self._typed is not None:
            return (
                Text()
                .append(" tenant: ", "bold")
                .append(self._typed)
                .append("▏")
                .append("  Enter, Esc", "bright_black")
            )
        text = Text().append(" PAUSED " if self.is_paused else "", "bold reverse yellow")
        keys = " q quit  Tab panel  ↑↓ scroll  s sort  r reverse  t tenant  p pause  ? help"
        return text.append(keys, "bright_black")


def drawn(
    panel: TopPanel, rows: Sequence[Any], width: int, *, order: int | None = None, is_reversed: bool = False
) -> RenderableType:
    """Rows of a panel as a table that fits the width; `order` is the column that is marked as sorted."""
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return Text(f"  {panel.empty}", "bright_black")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="underline", pad_edge=False)
    table.add_column("", width=1)
    kept = panel.fitting(rows, width - 3)
    for index in kept:
        column = panel.columns[index]
        mark = "" if index != order else "▲" if column.is_text != is_reversed else "▼"
        justify: Any = "left" if column.is_text else "right"
        table.add_column(f"{column.title}{mark}", justify=justify, no_wrap=True, overflow="ellipsis")
    for row in rows:
        cells = (shortened(panel.columns[index].cell(row), 120) for index in kept)
        table.add_row("", *(Text(cell, STYLES.get(cell, "")) for cell in cells))
    return table


class _Lines:
    """Lines that are rendered already, filled up to a height."""

    def __init__(self, lines: list[list[Any]], height: int) -> None:
        self._lines, self._height = lines, height

    def __rich_console__(self, console: Console, options: object) -> Iterator[Any]:
        from rich.segment import Segment

        for line in [*self._lines, *([[]] * (self._height - len(self._lines)))]:
            yield from line
            yield Segment.line()


def _help() -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 3, 0, 1), show_header=False)
    for keys, meaning in HELP:
        table.add_row(keys, meaning)
    return table


def follow(screen: TopScreen, reader: LoadReader, console: Console, every_s: float) -> None:
    """Show the screen until `q` or Ctrl-C."""
    from rich.live import Live

    wakened, wake = os.pipe()
    for end in (wakened, wake):
        os.set_blocking(end, False)

    def ring() -> None:
        with suppress(OSError):  # It is full of signs already, or the screen is closed.
            os.write(wake, b".")

    readings = Readings(reader, every_s, screen.tenant, ring)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGWINCH)}

    def stop(*_: object) -> None:
        screen.is_over = True
        ring()

    try:
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGWINCH, lambda *_: ring())
        with Keyboard(sys.stdin.fileno()) as keyboard, Live(console=console, screen=True, auto_refresh=False) as live:
            _loop(screen, readings, keyboard, live, console, wakened)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _loop(
    screen: TopScreen, readings: Readings, keyboard: Keyboard, live: Live, console: Console, wakened: int
) -> None:
    while not screen.is_over:
        live.update(screen.draw(console, readings.latest, readings.error), refresh=True)
        ready, _, _ = select.select([sys.stdin, wakened], [], [])
        if wakened in ready:
            os.read(wakened, 1024)
        if sys.stdin in ready:
            try:
                for key in keyboard.typed():
                    screen.press(key)
            except EOFError:
                return
        if screen.tenant != readings.tenant:
            readings.of(screen.tenant)
