"""Limits as people write them: `"50/min"`, and what is wrong with one."""

from __future__ import annotations

import re
from datetime import timedelta

from fairlane.core.limit import EVERY_TENANT, LIMIT_KINDS, NO_LIMIT, Limit, Rate
from fairlane.core.names import check_limit_name, check_queue_name, check_task_name, check_tenant
from fairlane.errors import InvalidOption

LONGEST_PERIOD_S = 86_400.0
HIGHEST_COUNT = 1_000_000
"""A rate is exact because its starts are remembered, so many at most."""
HIGHEST_NUMBER = 2**31 - 1

_UNITS = {"s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0}
_UNITS |= {"d": 86_400.0, "day": 86_400.0}
_TEXT = re.compile(r"\s*(\d{1,9})\s*(?:/|per)\s*(\d{1,6}(?:\.\d{1,3})?)?\s*([a-z]+)\s*")
_NO_LIMIT = "no limit"
_EXPECTED = f'"50/min", "10/s", "100/5min", or {NO_LIMIT} for no limit'


def read_rate(option: str, given: object) -> Rate:
    """A rate from its text, such as `50/min` or `100 per 5min`; from a number: so many a minute. `-1`: no limit, said out loud."""
    if isinstance(given, str) and given.strip().lower() in (str(NO_LIMIT), _NO_LIMIT):
        given = NO_LIMIT
    if isinstance(given, str):
        found = _TEXT.fullmatch(given.lower())
        unit = found and _UNITS.get(found[3])
        if not found or unit is None:
            raise InvalidOption(option, given, _EXPECTED)
        given = Rate(int(found[1]), float(found[2] or 1) * unit)
    elif isinstance(given, int) and not isinstance(given, bool):
        given = Rate(given, 60.0)
    if not isinstance(given, Rate):
        raise InvalidOption(option, given, _EXPECTED)
    if given.count == NO_LIMIT:
        return given
    if not (0 <= given.count <= HIGHEST_COUNT and 0.001 <= given.period_s <= LONGEST_PERIOD_S):
        is_writable = abs(given.count) <= 1000 * HIGHEST_COUNT
        raise InvalidOption(
            option,
            rate_text(given) if is_writable else given,
            f"0 to {HIGHEST_COUNT:,} starts in a period of 1 ms to {timedelta(days=1)}",
        )
    return given


def rate_text(rate: Rate) -> str:
    """`50/min`: the way it is written."""
    if rate.count == NO_LIMIT:
        return _NO_LIMIT
    for unit, span_s in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if rate.period_s % span_s == 0:
            times = rate.period_s / span_s
            return f"{rate.count}/{'' if times == 1 else f'{times:g}'}{unit}"
    return f"{rate.count}/{'' if rate.period_s == 1 else f'{rate.period_s:g}'}s"


def check_limit(limit: Limit) -> Limit:
    """The limit itself, or an error that says what is wrong with it."""
    if limit.kind not in LIMIT_KINDS:
        raise InvalidOption("kind of limit", limit.kind, f"one of {', '.join(LIMIT_KINDS)}")
    {
        "queue": check_queue_name,
        "tenant": lambda name: name if name == EVERY_TENANT else check_tenant(name),
        "type": check_task_name,
        "named": check_limit_name,
    }[limit.kind](limit.name)
    if limit.queue:
        check_queue_name(limit.queue)
    for option in ("running", "waiting", "payload_bytes"):
        number = getattr(limit, option)
        if number is not None and (
            isinstance(number, bool) or not isinstance(number, int) or not NO_LIMIT <= number <= HIGHEST_NUMBER
        ):
            raise InvalidOption(
                option, number, f"a whole number from 0 to {HIGHEST_NUMBER}, or {NO_LIMIT} for no limit"
            )
    for option in ("rate", "enqueue_rate"):
        if getattr(limit, option) is not None:
            read_rate(option, getattr(limit, option))
    if limit.when_full not in (None, "warn", "reject", "hold"):
        raise InvalidOption("when_full", limit.when_full, '"warn", "reject" or "hold"')
    for task in limit.types:
        check_task_name(task)
    _check_place(limit)
    return limit


def _check_place(limit: Limit) -> None:
    """Some limits only make sense on some things."""
    if limit.kind != "tenant":
        for option in ("queue", "waiting", "when_full", "enqueue_rate", "payload_bytes"):
            if getattr(limit, option) not in (None, ""):
                raise InvalidOption(
                    option, getattr(limit, option), f"nothing: only a tenant's limit has one, this is a {limit.kind}'s"
                )
    if limit.queue and limit.enqueue_rate is not None:
        raise InvalidOption(
            "enqueue_rate", rate_text(limit.enqueue_rate), "a limit over all queues: a tenant's without a queue"
        )
    if limit.types and limit.kind != "named":
        raise InvalidOption("types", limit.types, "a named limit: only that is shared by tasks")
