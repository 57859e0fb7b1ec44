"""Spans of time as histograms by powers of two of milliseconds: they add up, and percentiles are read off them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct, field


def upper_s(bucket: int) -> float:
    """Seconds that every span in this bucket stays under."""
    return 2.0**bucket / 1000.0


def percentile_s(buckets: Mapping[int, int], fraction: float) -> float | None:
    """Seconds that this fraction of the spans stayed under, linear within the bucket; None: there are none."""
    total = sum(buckets.values())
    if not total:
        return None
    wanted, seen = min(max(fraction, 0.0), 1.0) * total, 0
    for bucket in sorted(buckets):
        here = buckets[bucket]
        if here and seen + here >= wanted:
            low = upper_s(bucket - 1) if bucket > 0 else 0.0
            return low + (upper_s(bucket) - low) * max(wanted - seen, 0.0) / here
        seen += here
    return upper_s(max(buckets))


def cumulative(buckets: Mapping[int, int], most: int) -> Iterator[tuple[float, int]]:
    """(seconds, how many spans stayed under them) for each bucket up to `most`; what is longer is in none."""
    seen = sum(count for bucket, count in buckets.items() if bucket < 0)
    for bucket in range(most + 1):
        seen += buckets.get(bucket, 0)
        yield upper_s(bucket), seen


class Spans(Struct):
    """A histogram that can be added to."""

    count: int = 0
    total_us: int = 0
    buckets: dict[int, int] = field(default_factory=dict)

    def add(self, total_us: int, buckets: Mapping[int, int]) -> None:
        self.total_us += total_us
        for bucket, count in buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count
            self.count += count

    def percentile_s(self, fraction: float) -> float | None:
        return percentile_s(self.buckets, fraction)

    @property
    def mean_s(self) -> float | None:
        return self.total_us / self.count / 1e6 if self.count else None
