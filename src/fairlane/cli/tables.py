"""Makes tables fit a terminal: short ids, fewer columns, cut cells, in this order; no word is broken over two lines."""

from __future__ import annotations

import re
from collections.abc import Sequence

LEAST = 20
"""A cell is not cut shorter than this as long as there is a column that may be left out."""
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def fitted(table: list[list[str]], drops: Sequence[str], width: int) -> list[list[str]]:
    """The table, titles first, made narrower until it fits."""
    if width_of(table) <= width:
        return table
    table = _with_short_ids(table)
    empty = [title for title, *cells in zip(*table, strict=True) if cells and not any(cells)]
    for title in (*empty, *drops):
        if width_of(_cut(table, [max(LEAST, len(name)) for name in table[0]])) <= width:
            break
        table = _without(table, title)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    floors = [_floor(column, width) for column, width in zip(zip(*table, strict=True), widths, strict=True)]
    while (excess := sum(widths) + 2 * len(widths) - width) > 0:
        room = [one - floor for one, floor in zip(widths, floors, strict=True)]
        if not any(room):
            break
        longest = max((one, at) for at, one in enumerate(widths) if room[at])[1]
        next_longest = max((one for at, one in enumerate(widths) if room[at] and at != longest), default=0)
        least = max(floors[longest], min(next_longest, widths[longest] - 1))
        widths[longest] = max(widths[longest] - excess, least)
    return _cut(table, widths)


def _floor(column: Sequence[str], width: int) -> int:
    """How narrow a column may become: ids, titles, instants, numbers and short words stay whole."""
    is_whole = column[0] in ("id", "setting") or any(map(_INSTANT.fullmatch, column))
    return width if is_whole else min(width, max(len(column[0]), 12))


def width_of(table: list[list[str]]) -> int:
    return sum(max(len(row[at]) for row in table) + 2 for at in range(len(table[0])))


def _with_short_ids(table: list[list[str]]) -> list[list[str]]:
    return [[cell.rpartition("-")[2] if _UUID.fullmatch(cell) else cell for cell in row] for row in table]


def _cut(table: list[list[str]], widths: Sequence[int]) -> list[list[str]]:
    return [[_cut_cell(cell, width) for cell, width in zip(row, widths, strict=True)] for row in table]


def _cut_cell(cell: str, width: int) -> str:
    """Of a name the end, which tells it from its neighbours; of words the beginning."""
    if len(cell) <= width:
        return cell
    return cell[: width - 1].rstrip() + "…" if " " in cell else "…" + cell[len(cell) - width + 1 :]


def _without(table: list[list[str]], title: str) -> list[list[str]]:
    if title not in table[0]:
        return table
    at = table[0].index(title)
    return [[*row[:at], *row[at + 1 :]] for row in table]
