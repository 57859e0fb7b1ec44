"""What may be asked for in a stateful run: few names, so that they meet often."""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import strategies as st

from fairlane.core.ids import JobId
from fairlane.core.job import STATUSES, JobSpec
from fairlane.core.job_keys import JobKey
from fairlane.core.limits import NO_LIMIT, Rate
from fairlane.core.ops import JobFilter, Mark, Scope, Take, Want
from fairlane.testing.conformance.samples import Making

TENANTS = ("a", "b", "system")
QUEUES = ("default", "bulk")
TYPES = ("mail.send", "report.make")
KEYS = (None, None, None, "k1", "k2", "k3")
PRIORITIES = (0, 5)
SPANS = (1.0, 5.0, 10.0, 61.0, 0.0, 3.0, 5.0, 61.0, 700.0)

scopes = st.sampled_from((None,) * 6 + TENANTS).map(Scope)
bounds = st.sampled_from((100, 100, 2, 1, 0))
spans = st.sampled_from(SPANS)


job_keys = st.builds(
    lambda value, running, rate, ordered, on_conflict: JobKey(
        value=value, running=1 if ordered else running, rate=rate, ordered=ordered, on_conflict=on_conflict
    ),
    value=st.sampled_from(("shop:1", "shop:1", "shop:2", "shop", "crm:1")),
    running=st.sampled_from((1, 1, 2, NO_LIMIT, 0)),
    rate=st.sampled_from((None, None, None, Rate(1, 10.0), Rate(2, 10.0), Rate(0, 10.0), Rate(NO_LIMIT, 10.0))),
    ordered=st.sampled_from((False, False, True)),
    on_conflict=st.sampled_from(("wait",) * 6 + ("discard", "replace", "cancel_running")),
)
"""One period for all: what a store still knows of a longer one than it had to keep is its own affair."""

no_keys = st.none()


def specs(
    making: Making, now: datetime, known: list[JobId], keys: st.SearchStrategy[JobKey | None] = no_keys
) -> st.SearchStrategy[JobSpec]:
    """A new job, or now and then one under an id that is known already."""
    ids = st.builds(making.job_id)
    return st.builds(
        making.job,
        st.sampled_from(TYPES),
        id=st.one_of(*[ids] * 8, st.sampled_from(known)) if known else ids,
        tenant=st.sampled_from(TENANTS),
        queue=st.sampled_from(QUEUES),
        priority=st.sampled_from(PRIORITIES),
        priority_scope=st.sampled_from(("queue", "queue", "tenant")),
        idempotency_key=st.sampled_from(KEYS),
        dedup_key=st.sampled_from(KEYS),
        correlation_id=st.sampled_from((None, "c1")),
        parent_id=st.sampled_from((None, *known[:2])),
        max_attempts=st.sampled_from((1, 2, 5)),
        timeout_s=st.sampled_from((None, 5.0)),
        delay_s=st.sampled_from((None, None, 0.0, 3.0, 10.0)),
        run_at=st.sampled_from((None, None, None, now - timedelta(seconds=5), now, now + timedelta(seconds=7))),
        key=keys,
    )


def takes(marks: list[Mark]) -> st.SearchStrategy[Take]:
    free = st.builds(
        Take,
        queue=st.sampled_from(QUEUES),
        band=st.sampled_from(PRIORITIES),
        tenant=st.sampled_from(TENANTS),
        limit=st.integers(0, 3),
    )
    if not marks:
        return free
    behind = st.builds(
        lambda mark, limit: Take(queue=mark.queue, band=mark.band, tenant=mark.tenant, limit=limit, after=mark),
        st.sampled_from(marks),
        st.integers(0, 3),
    )
    return free | behind


def wants(marks: list[Mark]) -> st.SearchStrategy[Want]:
    return st.builds(
        Want,
        lane=st.sampled_from(("fast", "general")),
        queues=st.sampled_from((("default", "bulk"), ("bulk", "default"), ("default", "bulk"), ("default",), ())),
        limit=st.sampled_from((6, 3, 2, 1, 20, 0)),
        start=st.sampled_from((0, 1, 2, 20)),
        types=st.sampled_from((None, None, None, None, TYPES, TYPES[:1], TYPES[1:], ())),
        leaves=st.sampled_from(((), (), TYPES[:1], TYPES)),
        takes=st.lists(takes(marks), max_size=2, unique_by=lambda take: (take.queue, take.band, take.tenant)).map(
            tuple
        ),
        discover=st.sampled_from((True, True, True, False)),
        cursor=st.sampled_from(("", *TENANTS, "bb", "zz")),
        look=st.sampled_from((1000, 1000, 1000, 1, 2, 3)),
        survey=st.sampled_from((0, 2, 100, 100)),
        timeout_s=st.sampled_from((5.0, 300.0)),
        start_by_s=st.sampled_from((5.0, 60.0)),
    )


job_filters = st.builds(
    JobFilter,
    statuses=st.lists(st.sampled_from(STATUSES), max_size=2, unique=True).map(tuple),
    queue=st.sampled_from((None, None, "bulk")),
    type=st.sampled_from((None, None, TYPES[0])),
    correlation_id=st.sampled_from((None, None, "c1")),
    idempotency_key=st.sampled_from((None, None, "k1")),
)
