"""What a worker knows of limits on running and rates: which it gives with its Turns, and where it may claim ahead although some are in force."""

from __future__ import annotations

from collections.abc import Iterable

from fairlane.core.limit import Limit, StoredLimit


class LimitWatch:
    def __init__(self, given: Iterable[Limit], queues: Iterable[str]) -> None:
        served = frozenset(queues)
        self.given = tuple(limit for limit in given if _limits_claims(limit) and _concerns(limit, served))
        """What the code allows, as far as it bears on claims from these queues."""
        self._stored: tuple[StoredLimit, ...] = ()
        self.in_force = False
        """As the last claim said: some are, given here or kept in the store."""

    def learn(self, stored: tuple[StoredLimit, ...]) -> None:
        """What people have set, as the store says now and then."""
        self._stored = stored

    def free(self, queues: tuple[str, ...]) -> tuple[str, ...]:
        """Of these queues, those from which jobs may be claimed ahead of a free slot.

        Not where a limit may count them: a lease that only waits here would keep others from running elsewhere, and a start
        would come later than the rate has counted it.
        """
        if not self.in_force:
            return queues
        limits = [*self.given, *(record.limit for record in self._stored if _stored_limits_claims(record))]
        limited = {_queue_of(limit) for limit in limits}
        # Limits in force that are not known here yet may be about anything.
        return () if not limits or "" in limited else tuple(queue for queue in queues if queue not in limited)


def _queue_of(limit: Limit) -> str:
    """Empty: it may be about jobs of any queue."""
    return limit.name if limit.kind == "queue" else limit.queue


def _concerns(limit: Limit, queues: frozenset[str]) -> bool:
    return _queue_of(limit) in {"", *queues}


def _limits_claims(limit: Limit) -> bool:
    return limit.running is not None or limit.rate is not None or limit.kind == "named"


def _stored_limits_claims(record: StoredLimit) -> bool:
    limit = record.limit
    return limit.running is not None or limit.rate is not None or record.paused_until is not None
