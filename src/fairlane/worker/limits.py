"""What a worker knows of limits: which it sends with its Turns, and from which queues it may prefetch."""

from __future__ import annotations

from collections.abc import Iterable

from fairlane.core.job import Lease
from fairlane.core.limits import Limit, StoredLimit


class KnownLimits:
    """Limits on running jobs and rates, from the code and from the store."""

    def __init__(self, given: Iterable[Limit], queues: Iterable[str]) -> None:
        served = frozenset(queues)
        self.given = tuple(limit for limit in given if limit.is_for_claims and _concerns(limit, served))
        """Limits declared in code that apply to claims from these queues."""
        self._limited = _limited(self.given)
        self.in_force = False
        """Whether any limit applies, declared here or stored, as the last claim answered."""
        self.frees_places = False
        """Since the last Turn a job ended that a limit may have counted."""

    def learn(self, stored: tuple[StoredLimit, ...]) -> None:
        """Take over the limits set at run time."""
        self._limited = _limited((*self.given, *(record.limit for record in stored if _stored_limits_claims(record))))

    def end(self, lease: Lease) -> None:
        """A job ended or was released. Called for every job."""
        if self.in_force and (self._limited is None or lease.queue in self._limited):
            self.frees_places = True

    def free(self, queues: tuple[str, ...]) -> tuple[str, ...]:
        """Of these queues, those from which jobs may be prefetched.

        Not where a limit may count them: a lease that only waits here would keep others from running elsewhere, and
        the job would start later than the rate counted it.
        """
        if not self.in_force:
            return queues
        limited = self._limited
        return () if limited is None else tuple(queue for queue in queues if queue not in limited)

    def precede_free(self, queues: tuple[str, ...]) -> bool:
        """Whether a limited queue stands before an unlimited one: its jobs must not wait behind prefetched ones."""
        free = frozenset(self.free(queues))
        first = next((place for place, queue in enumerate(queues) if queue not in free), len(queues))
        return any(queue in free for queue in queues[first:])

    def may_count(self, leases: Iterable[Lease]) -> bool:
        """Whether any of these may be counted under a limit."""
        if not self.in_force:
            return False
        limited = self._limited
        return limited is None or any(lease.queue in limited for lease in leases)


def _limited(limits: tuple[Limit, ...]) -> frozenset[str] | None:
    """Queues whose jobs a limit may count; None: all. A limit in force that is not known here yet may apply to any."""
    limited = frozenset(_queue_of(limit) for limit in limits)
    return None if not limits or "" in limited else limited


def _queue_of(limit: Limit) -> str:
    """Empty: it may apply to jobs of any queue."""
    return limit.name if limit.kind == "queue" else limit.queue


def _concerns(limit: Limit, queues: frozenset[str]) -> bool:
    return _queue_of(limit) in {"", *queues}


def _stored_limits_claims(record: StoredLimit) -> bool:
    limit = record.limit
    return limit.running is not None or limit.rate is not None or record.paused_until is not None
