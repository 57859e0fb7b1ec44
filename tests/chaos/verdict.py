"""Judges a chaos run by its records: nothing overlapped, no limit was exceeded, progress never stopped for long."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from tests.chaos.recorder import Record


class Halt(NamedTuple):
    """A whole host that slept: foreman, workers and their children."""

    pids: frozenset[int]
    begin_s: float
    end_s: float


State = Literal["working", "starting", "away"]
"""working   a worker that has run jobs is there, and the store
starting  the store is there, and every worker is gone or halted: others are about to start
away      no host is able to work: the store is away, or every host is halted, killed or cut off
"""


class Stretch(NamedTuple):
    state: State
    begin_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s


def meetings(records: Sequence[Record], halts: Sequence[Halt], lease_s: float) -> list[str]:
    """What ran beside another attempt of its job, or beyond its limit.

    Not counted is what met an attempt that slept beyond its lease with its whole host: its foreman cannot end it, and
    others rightly took it over. It may settle nothing; see `test_a_host_that_was_asleep_settles_nothing_that_others_took_over`.
    """
    found, running = [], dict[tuple[str, int], Record]()
    for record in records:
        key = (record.job, record.attempt)
        if record.event == "began":
            running[key] = record
        elif record.event in ("ended", "left"):
            running.pop(key, None)
        else:
            others = [
                other
                for other in running.values()
                if (other.job == record.job if record.event == "met" else other.limit == record.limit)
            ]
            if not any(_slept(other, record.at_s, halts, lease_s) for other in others):
                found.append(f"{record} while these had not ended: {others}")
    return found


def out_of_turn(records: Iterable[Record], numbers: Mapping[str, int]) -> list[str]:
    """Ordered jobs that began before one had ended that was enqueued before them."""
    ended = {record.job: record.at_s for record in records if record.event == "ended"}
    began: dict[str, float] = {}
    for record in records:
        if record.limit == "order" and record.event == "began" and record.job in numbers:
            began.setdefault(record.job, record.at_s)
    turns = sorted(began, key=numbers.__getitem__)
    return [
        f"job {numbers[later]} began in order before {numbers[former]} had ended"
        for former, later in pairwise(turns)
        if former in ended and began[later] < ended[former]
    ]


def longest_stops(records: Iterable[Record], stretches: Sequence[Stretch]) -> dict[State, Stretch]:
    """The longest time in each state without a beginning or an end of any attempt."""
    steps_s = sorted(record.at_s for record in records)
    longest: dict[State, Stretch] = {}
    for stretch in stretches:
        within = steps_s[bisect(steps_s, stretch.begin_s) : bisect(steps_s, stretch.end_s)]
        for begin_s, end_s in pairwise([stretch.begin_s, *within, stretch.end_s]):
            stop = Stretch(stretch.state, begin_s, end_s)
            longest[stop.state] = max(longest.get(stop.state, stop), stop, key=lambda one: one.seconds)
    return longest


def _slept(record: Record, at_s: float, halts: Sequence[Halt], lease_s: float) -> bool:
    # A heartbeat is up to a third of the lease old when a host falls asleep; after it woke it has a moment to notice.
    return any(
        record.pid in halt.pids and halt.begin_s + lease_s / 2 < at_s < halt.end_s + 1.0 and record.at_s < halt.end_s
        for halt in halts
    )
