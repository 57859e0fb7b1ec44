"""Names for the kinds of identifier, and the one way a job id is made."""

from __future__ import annotations

from enum import Enum
from typing import NewType
from uuid import UUID

JobId = NewType("JobId", UUID)
"""A UUIDv7 made by the client before the first try, so a repeated enqueue makes one job."""

Seq = NewType("Seq", int)
"""The number a store gives a job. It orders jobs; a client's clock never does."""

WorkerId = NewType("WorkerId", UUID)
"""New at every process start: a restarted worker never inherits its predecessor's leases."""

LeaseKey = tuple[Seq, int, int]
"""Names one lease of a worker and never another: the job's number, the attempt, and the claim that made it.

A store that lost what it acknowledged (a promoted standby, a restored copy) gives the number of a lost job to another
one. Claims are numbered by the worker itself, which forgets none: the lost lease and the new one differ in that.
(tests/faults/test_numbers_given_twice.py)
"""


class OfLease:
    """What names a lease of its worker."""

    __slots__ = ()
    seq: Seq
    attempt: int
    claim_no: int

    @property
    def key(self) -> LeaseKey:
        return self.seq, self.attempt, self.claim_no


SYSTEM_TENANT = "system"
"""The tenant of jobs enqueued without one."""


class SystemTenant(Enum):
    SYSTEM = SYSTEM_TENANT


SYSTEM = SystemTenant.SYSTEM
"""The application itself as a tenant, as only code can write it: `using(tenant=SYSTEM)`."""

EVERY_TENANT = "*"
"""Each one but `system`, which has only what is said of it by name."""


def uuid7(unix_ms: int, entropy: bytes) -> UUID:
    """Build the UUIDv7 of one millisecond from ten bytes of entropy."""
    tail = int.from_bytes(entropy[:10], "big")
    rand_a, rand_b = (tail >> 62) & 0xFFF, tail & ((1 << 62) - 1)
    return UUID(int=(unix_ms & ((1 << 48) - 1)) << 80 | 0x7 << 76 | rand_a << 64 | 0b10 << 62 | rand_b)
