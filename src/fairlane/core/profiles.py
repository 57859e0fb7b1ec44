"""Profiles: each is one value with every figure that an application and its workers have unless they set their own.

development, production   two lanes, fast and general; queues without limits
isolation                 one lane for each queue, with the queue's timeout, limits and retry delays
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from fairlane.core.breaker import BreakerPolicy
from fairlane.core.job import DEFAULT_QUEUE
from fairlane.core.names import check_queue_name
from fairlane.core.queues import QueuePolicy
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

    def __post_init__(self) -> None:
        if not self.name or not 1 <= self.slots <= 10_000:
            raise InvalidOption(f'lane "{self.name}"', self.slots, "a name, and 1 to 10,000 slots")
        for queue in self.queues:
            if queue != ANY:
                check_queue_name(queue)
        if not self.queues:
            raise InvalidOption(f'queues of lane "{self.name}"', self.queues, f"queue names, or {ANY} for all")


class Profile(Struct, frozen=True, kw_only=True):
    """Every figure of one way to run Fairlane. Spans in seconds."""

    lanes: tuple[Lane, ...] = ()
    """Lanes of a worker process, behind those of the queues that have `slots`."""
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
    own = [queue for queue in queues.values() if queue.slots is not None]
    named = {queue.name for queue in own}
    rest = tuple(queue for queue in known if queue not in named)
    found = []
    for queue in own:
        others = rest if not lanes and queue.name == DEFAULT_QUEUE else ()
        found.append(Lane(queue.name, queue.slots or 0, (queue.name, *others), prompt=queue.fast))
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
