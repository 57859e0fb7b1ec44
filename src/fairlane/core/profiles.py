"""Profiles: each is one value with every figure that an application and its workers have unless they set their own.

development, production   two lanes, fast and general; queues without limits
isolation                 one lane for each queue, with the queue's timeout, limits and retry delays
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from fairlane.core.breaker import BreakerPolicy
from fairlane.core.job import DEFAULT_QUEUE
from fairlane.core.names import check_queue_name
from fairlane.core.queues import MOST_SLOTS, QueuePolicy, read_slots
from fairlane.core.retry import Retry
from fairlane.errors import ConfigError, InvalidOption

ProfileName = Literal["development", "production", "isolation"]

LogJobs = Literal["off", "debug", "info"]
"""At which level workers log the start and the end of jobs."""

ANY = "*"
"""In a lane's queues: every queue this application knows."""


class Lane(Struct, frozen=True):
    """Runs up to `slots` jobs of these queues at once, in the order of the queues; other queues never use the slots."""

    name: str
    slots: int
    queues: tuple[str, ...] = (ANY,)
    prompt: bool = False
    """Never claim ahead of a free slot: a job waits for a slot, not behind another one here. A job that runs longer
    than 30 s on a prompt lane is reported."""
    per_process: bool = False
    """Each process of a worker command has as many slots; else its processes share them."""

    def __post_init__(self) -> None:
        if not self.name or not 1 <= self.slots <= MOST_SLOTS:
            raise InvalidOption(f'lane "{self.name}"', self.slots, "a name, and 1 to 10,000 slots")
        for queue in self.queues:
            if queue != ANY:
                check_queue_name(queue)
        if not self.queues:
            raise InvalidOption(f'queues of lane "{self.name}"', self.queues, f"queue names, or {ANY} for all")


class Profile(Struct, frozen=True, kw_only=True):
    """Every figure of one way to run Fairlane. Spans in seconds."""

    lanes: tuple[Lane, ...] = ()
    """Lanes of a worker, behind those of the queues that have `slots`."""
    batch: int = 20
    """At most this many jobs claimed at once for a lane."""
    poll_s: float = 5.0
    """Seconds between claims of an idle worker that receives no wake-up."""
    retry: Retry
    """For jobs that neither their call, task nor queue, nor the class of the error, gives a policy."""
    fast_timeout_s: float = 120.0
    """Of fast tasks and queues."""
    slow_timeout_s: float = 1_200.0
    """Of all others."""
    breaker: BreakerPolicy
    """For breakers without figures of their own."""
    queues: Mapping[str, QueuePolicy]
    """What each queue grants its jobs."""
    log_jobs: LogJobs = "debug"
    """The level at which workers log the start and the end of jobs."""


def lanes_of(lanes: tuple[Lane, ...], queues: Mapping[str, QueuePolicy], known: tuple[str, ...]) -> tuple[Lane, ...]:
    """A lane for each queue that has slots, and the profile's lanes, whose `*` leaves those queues out.

    Where the profile has no lanes, the lane of `default` also serves all `known` queues without slots.
    """
    own = [(queue, queue.slots) for queue in queues.values() if queue.slots is not None]
    named = {queue.name for queue, _ in own}
    rest = tuple(queue for queue in known if queue not in named)
    found = []
    for queue, slots in own:
        others = rest if not lanes and queue.name == DEFAULT_QUEUE else ()
        count, per_process = read_slots(slots, f"slots of queue {queue.name}")
        found.append(Lane(queue.name, count, (queue.name, *others), queue.fast, per_process))
    for lane in lanes:
        served = tuple(queue for queue in lane.queues if queue != ANY)
        if own and ANY in lane.queues:
            served = tuple(dict.fromkeys((*served, *rest)))
            found += [replace(lane, queues=served)] if served else []
        else:
            found.append(lane)
    if not lanes and DEFAULT_QUEUE not in named:
        raise ConfigError(
            f'the profile has a lane for each queue with slots, and queue "{DEFAULT_QUEUE}" has none: set its slots, '
            "or give a worker its lanes by --lane"
        )
    return tuple(found)


def processes_for(lanes: Sequence[Lane], most: int) -> int:
    """How many processes run these lanes: `most`, but no more than there are slots to share."""
    return most if any(lane.per_process for lane in lanes) else min(most, sum(lane.slots for lane in lanes))


def share_of(lanes: Sequence[Lane], number: int, processes: int) -> tuple[Lane, ...]:
    """The lanes of process `number`, counted from 0, of up to `processes`; none if there are fewer slots.

    Slots are dealt out one by one, lane after lane, each to the next process. So the processes differ by one slot at
    most, in a lane and in all, and a lane with fewer slots than processes is in some of them only.
    """
    processes = processes_for(lanes, processes)
    if number >= processes:
        return ()
    found, dealt = [], 0
    for lane in lanes:
        if lane.per_process:
            found.append(lane)
            continue
        slots = len(range((number - dealt) % processes, lane.slots, processes))
        dealt += lane.slots
        if slots:
            found.append(replace(lane, slots=slots))
    return tuple(found)


def _retries(*delays: float) -> Retry:
    """One attempt, and one more after each of the delays."""
    return Retry(max_attempts=len(delays) + 1, delays=delays)


def _queues(*policies: QueuePolicy) -> Mapping[str, QueuePolicy]:
    return {policy.name: policy for policy in policies}


_UNLIMITED = _queues(QueuePolicy(name="critical", fast=True), QueuePolicy(name="default"), QueuePolicy(name="bulk"))

PROFILES: Mapping[ProfileName, Profile] = {
    "development": Profile(
        lanes=(Lane("fast", 1, ("critical",), prompt=True), Lane("general", 2)),
        batch=5,
        poll_s=2.0,
        retry=Retry(max_attempts=5, base_s=2.0, cap_s=60.0, jitter=0.2),
        breaker=BreakerPolicy(threshold=3, cooldown_s=30.0),
        queues=_UNLIMITED,
        log_jobs="info",
    ),
    "production": Profile(
        lanes=(Lane("fast", 3, ("critical",), prompt=True), Lane("general", 5)),
        batch=20,
        poll_s=1.0,
        retry=Retry(max_attempts=5, base_s=2.0, cap_s=300.0, jitter=0.2),
        breaker=BreakerPolicy(threshold=5, cooldown_s=60.0),
        queues=_UNLIMITED,
    ),
    "isolation": Profile(
        retry=Retry(max_attempts=5, base_s=2.0, cap_s=300.0, jitter=0.2),
        breaker=BreakerPolicy(threshold=5, cooldown_s=60.0),
        queues=_queues(
            QueuePolicy(name="critical", fast=True, slots=4, timeout_s=60.0, retry=_retries(10, 30, 60)),
            QueuePolicy(name="default", slots=8, timeout_s=300.0, max_per_tenant=500, retry=_retries(60, 300, 900)),
            QueuePolicy(
                name="bulk",
                slots=2,
                timeout_s=600.0,
                max_per_tenant=100,
                rate_per_minute=50,
                retry=_retries(300, 900),
            ),
        ),
    ),
}
