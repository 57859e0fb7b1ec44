"""`app.limits.keys`: the keys at which jobs wait; and what `why` says of a job that waits at one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from fairlane.client.admin.filters import page_size
from fairlane.client.context import in_scope
from fairlane.client.rights import Right
from fairlane.client.steps import Steps, Verbs, ask, both
from fairlane.core.job_keys import key_name
from fairlane.core.names import check_key
from fairlane.core.ops import KeyUse, ListKeys, PlaceHolder, Waiting
from fairlane.core.text import span_between
from fairlane.errors import InvalidOption

MOST_NAMED = 3
_ORDINALS = ("first", "second", "third")


def check_key_name(name: object) -> str:
    """The name of keys, for a limit over each of them."""
    text = check_key("key", name)
    if ":" in text:
        expected = f'the name of keys, "{key_name(text)}": a limit is over every key of that name'
        raise InvalidOption("key", text, expected)
    return text


class KeyVerbs(Verbs):
    """Methods for keys of jobs."""

    __slots__ = ()

    def _keys(
        self, *, name: str | None = None, key: str | None = None, tenant: str | int | None = None, limit: int = 50
    ) -> Steps[tuple[KeyUse, ...]]:
        """The keys at which jobs wait, those with the most of them first: of one name, or one key, of each tenant.

        Each with its places, who has them, and how many wait.
        """
        op = ListKeys(
            scope=in_scope(tenant),
            name=None if name is None else check_key_name(name),
            key=None if key is None else check_key("key", key),
            limit=page_size(limit),
        )
        return (yield from ask(op)).keys

    keys, akeys = both(_keys, Right.READ)


def line_at_key(waiting: Waiting, paused_until: datetime | None) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Of a job that is held at its key: which sentence says why, and its words."""
    use, ahead = waiting.key, waiting.key_ahead
    if use is None or ahead is None:
        return
    words: dict[str, object] = {
        "which": f"{ordinal(ahead + 1)} of {use.waiting}" if use.waiting > 1 else "next",
        "key": use.key,
        "name": key_name(use.key),
        "runs": allowed(use),
    }
    first = use.holders[0] if use.holders else None
    if paused_until is not None and paused_until > waiting.now:
        yield "key_paused", {**words, "left": span_between(paused_until, waiting.now)}
    elif use.running == 0:
        yield "key_closed", words
    elif first is not None and use.running is not None and use.in_use >= use.running:
        code = {"dead": "key_dead", "scheduled": "key_again"}.get(first.state, "key_ordered" if use.ordered else "key")
        yield code, {**words, "holder": first.seq, "holders": holders_of(use, waiting.now)}
    elif use.rate is not None:
        yield "key_rate", {**words, "rate": use.rate}
    else:
        yield "key_free", words


def allowed(use: KeyUse) -> str:
    """How many jobs run at a key."""
    if use.ordered:
        return "one at a time, in order"
    return "any number" if use.running is None else f"{use.running} at a time"


def holders_of(use: KeyUse, now: datetime) -> str:
    """Who has the places of a key."""
    if use.in_use == 1:
        [holder] = use.holders
        return f"job {holder.seq} has its place, {doing_now(holder, now)}"
    jobs = ", ".join(f"{holder.seq} ({doing_now(holder, now)})" for holder in use.holders[:MOST_NAMED])
    more = f" and {use.in_use - MOST_NAMED} more" if use.in_use > MOST_NAMED else ""
    return f"jobs {jobs}{more} have its places"


def doing_now(holder: PlaceHolder, now: datetime) -> str:
    """What the job does that has a place."""
    match holder.state:
        case "ready":
            return "let in and not claimed yet"
        case "leased":
            return f"running for {span_between(holder.since, now)}"
        case "dead":
            return f"dead for {span_between(holder.since, now)}"
        case "scheduled" if holder.since > now:
            return f"to run again in {span_between(holder.since, now)}"
    return "to run again now"


def ordinal(number: int) -> str:
    if number <= len(_ORDINALS):
        return _ORDINALS[number - 1]
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def blocked_lines(keys: Iterable[KeyUse]) -> Iterator[tuple[KeyUse, PlaceHolder]]:
    """Ordered keys at which jobs wait until a person deals with a dead letter."""
    for use in keys:
        if use.ordered and use.waiting and use.holders and use.holders[0].state == "dead":
            yield use, use.holders[0]
