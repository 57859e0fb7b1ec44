"""Jobs of one call that differ in their ids and payloads alone, kept as columns.

    AlikeJobs   what is shared once, and a column each of ids and payloads
    JobIds      new ids in ascending order: an index takes them one after another instead of all over its pages
    Lazy        a sequence whose items are made when they are asked for

A call of a thousand jobs makes none of the thousand specs, receipts and handles that nobody looks at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar, overload
from uuid import UUID

from msgspec import Raw
from msgspec.structs import replace

from fairlane.core.ids import JobId
from fairlane.core.job import JobSpec

T = TypeVar("T")

_ENTROPY = 16
"""Bytes for one id; six are overwritten by the time."""
_VERSION = bytes(code & 0x0F | 0x70 for code in range(256))
_VARIANT = bytes(code & 0x3F | 0x80 for code in range(256))


class Lazy(Sequence[T]):
    """Equal to any sequence of equal items."""

    __slots__ = ("_count", "_make")

    def __init__(self, count: int, make: Callable[[int], T]) -> None:
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        found = range(self._count)[at]
        return self._make(found) if isinstance(found, int) else [self._make(each) for each in found]

    def __iter__(self) -> Iterator[T]:
        return map(self._make, range(self._count))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


class JobIds(Lazy[JobId]):
    """UUIDv7s of one millisecond."""

    __slots__ = ("_bytes",)

    def __init__(self, unix_ms: int, count: int, entropy: Callable[[int], bytes]) -> None:
        raw = bytearray(entropy(_ENTROPY * count))
        for place, code in enumerate((unix_ms & ((1 << 48) - 1)).to_bytes(6, "big")):
            raw[place::_ENTROPY] = bytes([code]) * count
        raw[6::_ENTROPY] = raw[6::_ENTROPY].translate(_VERSION)
        raw[8::_ENTROPY] = raw[8::_ENTROPY].translate(_VARIANT)
        whole = bytes(raw)
        self._bytes = sorted([whole[at : at + _ENTROPY] for at in range(0, len(whole), _ENTROPY)])
        super().__init__(count, lambda at: JobId(UUID(bytes=self._bytes[at])))

    def texts(self) -> list[str]:
        return [one.hex() for one in self._bytes]


class AlikeJobs(Lazy[JobSpec]):
    """Jobs without keys; `first` has what they share, with the first id and payload."""

    __slots__ = ("first", "ids", "payloads")

    def __init__(self, first: JobSpec, ids: Sequence[JobId], payloads: Sequence[Raw]) -> None:
        self.first, self.ids, self.payloads = first, ids, payloads
        super().__init__(len(ids), lambda at: replace(first, id=ids[at], payload=payloads[at]))


def as_alike(jobs: Sequence[JobSpec]) -> AlikeJobs | None:
    """The same jobs as columns; None: they have keys, or differ in more than id and payload."""
    if isinstance(jobs, AlikeJobs):
        return jobs
    if not jobs or jobs[0].idempotency_key is not None or jobs[0].dedup_key is not None:
        return None
    first = jobs[0]
    if len(jobs) == 1:
        return AlikeJobs(first, (first.id,), (first.payload,))
    if any(replace(job, id=first.id, payload=first.payload) != first for job in jobs[1:]):
        return None
    return AlikeJobs(first, [job.id for job in jobs], [job.payload for job in jobs])


def lines_of(jobs: Sequence[JobSpec]) -> Mapping[tuple[str, str], int]:
    """How many of them each tenant has in each queue."""
    if isinstance(jobs, AlikeJobs) or len(jobs) == 1:
        return {(jobs[0].tenant, jobs[0].queue): len(jobs)}
    return Counter((job.tenant, job.queue) for job in jobs)
