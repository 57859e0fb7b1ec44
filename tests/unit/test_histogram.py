"""Percentiles read off histograms by powers of two."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from fairlane.core.histogram import Spans, cumulative, percentile_s, upper_s


@pytest.mark.requirement("L13")
def test_percentiles_of_known_spans() -> None:
    buckets = {10: 100}  # a hundred spans from 512 ms to under 1,024 ms
    assert percentile_s(buckets, 0.5) == pytest.approx(0.768)
    assert percentile_s(buckets, 0.99) == pytest.approx(1.01888)
    assert percentile_s({0: 90, 14: 10}, 0.5) == pytest.approx(0.000556, abs=1e-6)
    assert percentile_s({0: 90, 14: 10}, 0.95) == pytest.approx(12.288)
    assert percentile_s({}, 0.5) is None
    assert percentile_s({3: 0}, 0.5) is None


spans_ms = st.lists(st.integers(0, 10_000_000), min_size=1, max_size=200)


@given(spans_ms, st.floats(0, 1))
def test_a_percentile_is_within_a_factor_of_two_and_never_falls(spans: list[int], fraction: float) -> None:
    buckets: dict[int, int] = {}
    for span in spans:
        buckets[span.bit_length()] = buckets.get(span.bit_length(), 0) + 1
    found = percentile_s(buckets, fraction)
    assert found is not None
    rank = min(max(int(fraction * len(spans) + 0.999999), 1), len(spans))
    true_ms = sorted(spans)[rank - 1]
    bucket = true_ms.bit_length()
    assert (upper_s(bucket - 1) if bucket else 0.0) - 1e-9 <= found <= upper_s(bucket) + 1e-9
    later = percentile_s(buckets, min(fraction + 0.1, 1.0))
    assert later is not None
    assert later >= found - 1e-9


@given(st.lists(st.dictionaries(st.integers(0, 30), st.integers(1, 9)), max_size=5))
def test_histograms_add_up(parts: list[dict[int, int]]) -> None:
    whole = Spans()
    for part in parts:
        whole.add(1_000, part)
    assert whole.count == sum(sum(part.values()) for part in parts)
    steps = list(cumulative(whole.buckets, 30))
    assert [under for _, under in steps] == sorted(under for _, under in steps)
    assert steps[-1][1] == whole.count
    assert whole.mean_s == (pytest.approx(len(parts) * 0.001 / whole.count) if whole.count else None)
