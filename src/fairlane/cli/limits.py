"""Limits as rows for reading."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairlane.cli.output import instant
from fairlane.core.ids import EVERY_TENANT
from fairlane.core.limits import NO_LIMIT, Limit, StoredLimit, rate_text

TITLES = (
    "of",
    "name",
    "in queue",
    "running",
    "rate",
    "waiting",
    "when full",
    "enqueues",
    "payload",
    "paused until",
    "set by",
)


def limit_rows(
    kept: Iterable[StoredLimit], given: Iterable[Limit] = ()
) -> tuple[Sequence[str], list[tuple[object, ...]]]:
    """Titles and rows: what people set, then what the code allows."""
    rows = [_row(stored.limit, instant(stored.paused_until), stored.by) for stored in kept]
    return TITLES, [*rows, *(_row(limit, "", "code") for limit in given)]


def _row(limit: Limit, paused: str, by: str) -> tuple[object, ...]:
    return (
        "task" if limit.kind == "type" else limit.kind,
        "every tenant" if limit.kind == "tenant" and limit.name == EVERY_TENANT else limit.name,
        limit.queue,
        _number(limit.running),
        "" if limit.rate is None else rate_text(limit.rate),
        _number(limit.waiting),
        limit.when_full or "",
        "" if limit.enqueue_rate is None else rate_text(limit.enqueue_rate),
        "" if limit.payload_bytes is None else f"{_number(limit.payload_bytes)} B",
        paused,
        by,
    )


def _number(number: int | None) -> str:
    return "" if number is None else "no limit" if number == NO_LIMIT else str(number)
