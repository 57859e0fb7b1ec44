"""Spans and instants as people type them; each reader is the `type` of an option."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import click

_PART = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h|d|w)", re.ASCII)
_SPAN = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,6})?", re.ASCII)
_LONGEST_S = 36_500 * 86_400.0
"""A hundred years: past this an instant may not fit a calendar."""
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}


def span(text: str) -> timedelta:
    """`90s`, `5m`, `1h30m`, or plain seconds."""
    found = _span(text)
    if found is None:
        raise click.BadParameter(f"{text!r}: expected a span such as 90s, 5m, 1h30m or 2d")
    return found


def instant_ahead(text: str) -> datetime | timedelta:
    """An instant with its zone, or a span from now: `in 5m`, `+5m`, `5m`."""
    return _instant(text, sign=1, example="in 5m")


def instant_back(text: str) -> datetime | timedelta:
    """An instant with its zone, or a span before now: `5m ago`, `-5m`, `5m`."""
    return _instant(text, sign=-1, example="5m ago")


def _span(text: str) -> timedelta | None:
    text = text.strip().lower()
    if _NUMBER.fullmatch(text):
        seconds = float(text)
    elif _SPAN.fullmatch(text):
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
    else:
        return None
    return timedelta(seconds=seconds) if seconds <= _LONGEST_S else None


def _instant(text: str, sign: int, example: str) -> datetime | timedelta:
    relative = _relative(text.strip().lower(), sign)
    if relative is not None:
        return relative
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise click.BadParameter(f'{text!r}: expected an instant such as 2030-01-01T09:00Z, or "{example}"') from None
    if at.utcoffset() is None:
        raise click.BadParameter(
            f"{text!r}: expected a time zone too, as in {at.isoformat()}Z or {at.isoformat()}+02:00"
        )
    return at


def _relative(text: str, sign: int) -> timedelta | None:
    if text == "now":
        return timedelta(0)
    if text.startswith(("+", "in ")):
        text, sign = text.removeprefix("+").removeprefix("in "), 1
    elif text.startswith("-"):
        text, sign = text.removeprefix("-"), -1
    elif text.endswith(" ago"):
        text, sign = text.removesuffix(" ago"), -1
    found = _span(text)
    return None if found is None else sign * found
