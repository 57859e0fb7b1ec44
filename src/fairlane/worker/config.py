"""The configuration of a worker: the values of its profile, changed by settings and flags."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from fairlane.core.breaker import BreakerPolicy
from fairlane.errors import InvalidOption
from fairlane.worker.lanes import ANY, Lane

Profile = Literal["development", "production"]


class WorkerConfig(Struct, frozen=True, kw_only=True):
    """One worker process. Spans in seconds."""

    lanes: tuple[Lane, ...]
    types: tuple[str, ...] = ()
    """Empty: every registered task."""
    poll_s: float = 5.0
    """Seconds between claims of an idle worker that receives no wake-up."""
    lease_s: float = 15.0
    grace_s: float = 25.0
    """How long running jobs may take to end after a stop."""
    drain: bool = False
    """Stop when nothing is ready and nothing runs."""
    max_jobs: int | None = None
    max_memory_mb: float | None = None
    batch: int | None = None
    """At most this many jobs claimed in one Turn for each lane; None: as many as keep its slots busy."""
    app: str | None = None
    """`module:name` from which a child process loads the application; None: nothing can run isolated."""
    isolated_memory_mb: float = 0.0
    """Address space an isolated attempt may use; 0: no cap."""
    breaker: BreakerPolicy = BreakerPolicy()
    retry_cap_s: float = 300.0

    def __post_init__(self) -> None:
        names = [lane.name for lane in self.lanes]
        if not names or len(set(names)) < len(names):
            raise InvalidOption("lanes", names, "at least one, each with a name of its own")
        for option in ("poll_s", "lease_s"):
            if not getattr(self, option) > 0:
                raise InvalidOption(option, getattr(self, option), "seconds above 0")
        if self.grace_s < 0:
            raise InvalidOption("grace_s", self.grace_s, "seconds, 0 or more")


def profile_config(profile: Profile) -> WorkerConfig:
    """The configuration of a profile: a fast lane that slow jobs never use, and a general one for all queues."""
    if profile == "development":
        return WorkerConfig(
            lanes=(Lane("fast", 1, ("critical",), prompt=True), Lane("general", 2, (ANY,))),
            batch=5,
            poll_s=2.0,
            retry_cap_s=60.0,
            breaker=BreakerPolicy(threshold=3, cooldown_s=30.0),
        )
    return WorkerConfig(
        lanes=(Lane("fast", 3, ("critical",), prompt=True), Lane("general", 5, (ANY,))),
        batch=20,
        poll_s=1.0,
        retry_cap_s=300.0,
        breaker=BreakerPolicy(threshold=5, cooldown_s=60.0),
    )
