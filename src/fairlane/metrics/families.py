"""The names, types and labels of every metric. Names without the prefix `fairlane_` are fixed by the requirements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from fairlane.client.store_access import SpoolState
from fairlane.core.breaker import BreakerRecord
from fairlane.core.histogram import Spans, cumulative
from fairlane.core.job_keys import key_name
from fairlane.core.ops import MAX_PAGE, Alert, Health, KeyUse, Stats, Workers
from fairlane.core.statistics import lane_use
from fairlane.metrics.counters import COUNTED, OTHER, CounterSums, Pair, WorkerCounters

LONGEST_BUCKET = 22
"""2**22 ms: over an hour. Longer spans are in +Inf alone."""
MOST_WORKERS = 200
"""Worker processes with metrics of their own."""
MOST_TYPES = 100
"""Types with a gauge of their own; the rest are together."""
MOST_KEY_NAMES = 100
BREAKER_STATES = {"closed": 0, "half_open": 1, "open": 2}


def counters(totals: CounterSums) -> Iterator[Metric]:
    enqueued = CounterMetricFamily("jobs_enqueued", "Jobs enqueued.", labels=("queue", "method", "org"))
    completed = CounterMetricFamily(
        "jobs_completed",
        "Jobs that ended: success, failure (dead-lettered) or cancelled.",
        labels=("queue", "method", "org", "status"),
    )
    failures = CounterMetricFamily("job_failures", "Attempts that failed, retried or not.", labels=("queue", "method"))
    failed: dict[Pair, int] = {}
    for (queue, method, org), counts in sorted(totals.counts.items()):
        of = dict(zip(COUNTED, counts, strict=True))
        enqueued.add_metric((queue, method, org), of["enqueued"])
        for status, name in (("success", "completed"), ("failure", "dead"), ("cancelled", "cancelled")):
            completed.add_metric((queue, method, org, status), of[name])
        failed[queue, method] = failed.get((queue, method), 0) + of["failed"] + of["dead"]
    for pair, count in failed.items():
        failures.add_metric(pair, count)
    yield from (enqueued, completed, failures)


def histograms(totals: CounterSums) -> Iterator[Metric]:
    yield _histogram(
        "jobs_duration_seconds", "How long attempts ran.", ("queue", "method"), sorted(totals.runs.items())
    )
    yield _histogram(
        "job_processing_duration", "How long attempts ran, in seconds.", ("queue",), _by_queue(totals.runs)
    )
    yield _histogram(
        "dequeue_latency_histogram",
        "Seconds from when a job was due to when its first attempt began.",
        ("queue",),
        _by_queue(totals.waits),
    )


def depths(stats: Stats) -> Iterator[Metric]:
    depth = GaugeMetricFamily(
        "queue_depth", "Jobs waiting, retries among them; above 10000 an estimate.", labels=("queue",)
    )
    jobs = GaugeMetricFamily(
        "fairlane_queue_jobs",
        "Unfinished jobs by what they wait for; above 10000 an estimate.",
        labels=("queue", "state"),
    )
    oldest = GaugeMetricFamily(
        "fairlane_queue_oldest_job_age_seconds", "How long the oldest ready job has been due.", labels=("queue",)
    )
    for queue in stats.queues:
        depth.add_metric((queue.queue,), queue.pending + queue.failed)
        for state in ("ready", "scheduled", "held", "processing"):
            jobs.add_metric((queue.queue, state), getattr(queue, state))
        oldest.add_metric((queue.queue,), _age_s(stats.now, queue.oldest_due_at))
    letters = GaugeMetricFamily("dlq_depth", "Dead letters pending review, counted up to 10000.")
    letters.add_metric((), stats.dead_letters.get("pending_review", 0))
    yield from (depth, jobs, oldest, letters, _pending_types(stats.pending_types))


def _pending_types(counts: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(
        "fairlane_pending_jobs", "Pending jobs by type; above 10000 an estimate.", labels=("type",)
    )
    most = sorted(counts, key=lambda name: (-counts[name], name))
    for name in most[:MOST_TYPES]:
        family.add_metric((name,), counts[name])
    if rest := sum(counts[name] for name in most[MOST_TYPES:]):
        family.add_metric((OTHER,), rest)
    return family


def tenant_counts(counts: Mapping[str, Mapping[str, int]], stats: Stats | None) -> Iterator[Metric]:
    """Unfinished jobs of the tenants with labels of their own, and of the rest together where the total is known."""
    family = GaugeMetricFamily(
        "org_job_count", "Unfinished jobs of a tenant in a queue; above 10000 an estimate.", labels=("org", "queue")
    )
    named: dict[str, int] = {}
    for org, queues in sorted(counts.items()):
        for queue, count in sorted(queues.items()):
            family.add_metric((org, queue), count)
            named[queue] = named.get(queue, 0) + count
    for whole in stats.queues if stats is not None else ():
        rest = whole.pending + whole.failed + whole.processing - named.get(whole.queue, 0)
        if rest > 0:
            family.add_metric((OTHER, whole.queue), rest)
    yield family


def store(health: Health | None, name: str) -> Iterator[Metric]:
    """`health` None: the store could not be reached."""
    redis = GaugeMetricFamily("redis_health", "1: the store can be reached, Redis or another.")
    redis.add_metric((), 0 if health is None else 1)
    up = GaugeMetricFamily("fairlane_store_up", "1: the store can be reached.", labels=("store",))
    up.add_metric((name,), 0 if health is None else 1)
    yield from (redis, up)
    if health is not None:
        degraded = GaugeMetricFamily("fairlane_store_degraded", "Reasons why the store is not durable or safe.")
        degraded.add_metric((), len(health.degraded))
        yield degraded
    if health is not None and health.memory_bytes is not None:
        memory = GaugeMetricFamily("redis_memory_bytes", "Memory of the Redis server.", labels=("kind",))
        memory.add_metric(("used",), health.memory_bytes)
        if health.memory_limit_bytes is not None:
            memory.add_metric(("limit",), health.memory_limit_bytes)
        yield memory


def spool(state: SpoolState | None) -> Iterator[Metric]:
    if state is None:
        return
    yield GaugeMetricFamily("fairlane_spool_up", "Whether the spool can be read.", float(state.jobs is not None))
    if state.jobs is None:
        return
    jobs = GaugeMetricFamily("fairlane_spool_jobs", "Jobs spooled until the store takes them.", labels=("state",))
    jobs.add_metric(("waiting",), state.jobs - state.refused)
    jobs.add_metric(("refused",), state.refused)
    age = GaugeMetricFamily("fairlane_spool_oldest_job_age_seconds", "How long the oldest spooled job has waited.")
    age.add_metric((), state.age_s)
    yield from (jobs, age)


def job_keys(busiest: Iterable[KeyUse]) -> Iterator[Metric]:
    """By the names of keys alone: of their values there is no end."""
    waiting = GaugeMetricFamily(
        "fairlane_jobs_waiting_at_keys",
        f"Jobs that wait at keys of this name, at the {MAX_PAGE} keys of any name where most do.",
        labels=("name",),
    )
    counts: Counter[str] = Counter()
    for use in busiest:
        counts[key_name(use.key)] += use.waiting
    for name, count in counts.most_common(MOST_KEY_NAMES):
        waiting.add_metric((name,), count)
    yield waiting


def breakers(found: Iterable[BreakerRecord]) -> Iterator[Metric]:
    state = GaugeMetricFamily("breaker_state_gauge", "0 closed, 1 half open, 2 open.", labels=("platform",))
    opened = GaugeMetricFamily(
        "fairlane_breaker_opened_timestamp_seconds",
        "When it last opened; changes() counts trips.",
        labels=("platform",),
    )
    for breaker in found:
        state.add_metric((breaker.name,), BREAKER_STATES[breaker.state])
        if breaker.opened_at is not None:
            opened.add_metric((breaker.name,), breaker.opened_at.timestamp())
    yield from (state, opened)


def workers(found: Workers, counters: WorkerCounters) -> Iterator[Metric]:
    alive = [worker for worker in found.workers if worker.expires_at > found.now]
    count = GaugeMetricFamily("fairlane_workers", "Worker processes.")
    count.add_metric((), len(alive))
    memory = GaugeMetricFamily("fairlane_worker_memory_bytes", "Memory a worker process uses.", labels=("worker",))
    for worker in alive[:MOST_WORKERS]:
        if "memory_mb" in worker.figures:
            memory.add_metric((worker.name or str(worker.id),), worker.figures["memory_mb"] * 1024 * 1024)
    use = GaugeMetricFamily("fairlane_lane_utilisation_ratio", "How busy a lane's slots are, 0 to 1.", labels=("lane",))
    slots = GaugeMetricFamily("fairlane_lane_slots", "Slots of a lane over all workers.", labels=("lane",))
    for lane, (used, there_are) in sorted(lane_use(found).items()):
        use.add_metric((lane,), used / there_are)
        slots.add_metric((lane,), there_are)
    long = CounterMetricFamily("fairlane_fast_lane_long_jobs", "Attempts over 30 s on a fast lane.")
    long.add_metric((), counters.totals["fast_lane.long"])
    fired = CounterMetricFamily("fairlane_schedules_fired", "Jobs made by schedules.")
    fired.add_metric((), counters.totals["schedules.fired"])
    sizes = HistogramMetricFamily("fairlane_payload_characters", "Attempts by size of their payload.", labels=())
    seen, lines = 0.0, []
    for size, grown in sorted(counters.payloads.items()):
        seen += grown
        lines.append((str(float(size)), seen))
    sizes.add_metric((), [*lines, ("+Inf", seen)], None)
    yield from (count, memory, use, slots, long, fired, sizes)


def alerts(found: Iterable[Alert]) -> Iterator[Metric]:
    firing: dict[tuple[str, str], int] = {}
    for alert in found:
        if alert.state == "firing":
            key = alert.rule, alert.severity
            firing[key] = firing.get(key, 0) + 1
    family = GaugeMetricFamily("fairlane_alerts_firing", "Alerts that fire now.", labels=("rule", "severity"))
    for key, count in sorted(firing.items()):
        family.add_metric(key, count)
    yield family


def _histogram(
    name: str, text: str, labels: tuple[str, ...], of: Iterable[tuple[tuple[str, ...], Spans]]
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, text, labels=labels)
    for key, spans in of:
        buckets = [(str(le), float(n)) for le, n in cumulative(spans.buckets, LONGEST_BUCKET)]
        family.add_metric(key, [*buckets, ("+Inf", float(spans.count))], spans.total_us / 1e6)
    return family


def _by_queue(spans: Mapping[Pair, Spans]) -> list[tuple[tuple[str, ...], Spans]]:
    queues: dict[str, Spans] = {}
    for (queue, _), of in sorted(spans.items()):
        queues.setdefault(queue, Spans()).add(of.total_us, of.buckets)
    return [((queue,), of) for queue, of in queues.items()]


def _age_s(now: datetime, at: datetime | None) -> float:
    return 0.0 if at is None else max((now - at).total_seconds(), 0.0)
