"""Keys of jobs: how many jobs of one tenant with the same key run at once, how often they start, and in which order.

`customer:42` is a key, and `customer`, what stands before its first colon, its name: limits that people set at run time
(`Limit(kind="key", name="customer")`) are over every key of that name. A tenant's keys are its own.
"""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct

from fairlane.core.limits import HIGHEST_NUMBER, NO_LIMIT, Rate, read_rate
from fairlane.core.names import check_key
from fairlane.errors import InvalidOption

OnConflict = Literal["wait", "discard", "replace", "cancel_running"]
"""What an enqueue does where its key has no place for the job:

wait            the job waits for its turn
discard         the job is a duplicate of the oldest unfinished one with the key
replace         unfinished jobs with the key that do not run are cancelled
cancel_running  those that run are asked to cancel, too
"""


class JobKey(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key, and what the job's own code says of it. A job waits until its key has a place for it."""

    value: str
    running: int = 1
    """Jobs at once; NO_LIMIT: any number."""
    rate: Rate | None = None
    ordered: bool = False
    """One after the other in the order of enqueueing. A job that has begun keeps its place through retries, and as a
    dead letter until a person closes it."""
    on_conflict: OnConflict = "wait"

    @property
    def name(self) -> str:
        return key_name(self.value)


def key_name(value: str) -> str:
    """The name of a key: what limits set at run time are called by."""
    return value.partition(":")[0]


def check_job_key(key: JobKey) -> JobKey:
    """The key itself, or an error that says what is wrong with it."""
    check_key("key", key.value)
    if not key.name:
        raise InvalidOption("key", key.value, 'a name, and a value behind a colon if there is one: "customer:42"')
    running: object = key.running
    if isinstance(running, bool) or not isinstance(running, int) or not NO_LIMIT <= running <= HIGHEST_NUMBER:
        raise InvalidOption("running", running, f"a whole number from 0 to {HIGHEST_NUMBER}, or {NO_LIMIT}: no limit")
    if key.rate is not None:
        read_rate("rate", key.rate)
    if key.ordered and key.running != 1:
        raise InvalidOption("running", key.running, "1, or nothing: an ordered key runs one job at a time")
    if key.on_conflict not in get_args(OnConflict):
        raise InvalidOption("on_conflict", key.on_conflict, f"one of {', '.join(get_args(OnConflict))}")
    return key
