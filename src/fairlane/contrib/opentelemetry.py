"""OpenTelemetry: a span where a job is enqueued, a span for each attempt, joined over the job's headers; metrics.

    instrument(app)    # where tasks are registered; the application sets up its SDK as for anything else

Names follow the semantic conventions for messaging: the queue is the destination, the job the message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from fairlane import Cancel, CurrentJob, Draft, Fairlane, Snooze
from fairlane.extras import needed_for

with needed_for("fairlane.contrib.opentelemetry", "opentelemetry"):
    from opentelemetry import metrics, trace
    from opentelemetry.trace import Link, SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import SpanContext, TracerProvider

NAME = "fairlane"
PROCESS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Bounds of the histogram of running times that the conventions advise."""

PARENTS_HEADER = "fairlane-parents"
"""The header of a workflow's node with the trace contexts of the nodes it waits for."""

Attributes = dict[str, str | int]


def instrument(
    app: Fairlane, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> None:
    """Make spans and metrics of an application's jobs, by the global providers unless others are given.

    A job carries the W3C trace context of its producer in its headers `traceparent` and `tracestate`. Each attempt is
    a span of the producer's trace, and links to the span of the enqueue; that of a workflow's node also to those of the
    nodes it waits for, 16 at most. The call of a batch task is one span, of the trace of its first job, with links to
    the enqueues of all. Tenants are in spans, not in metrics.
    """
    tracer = trace.get_tracer(NAME, tracer_provider=tracer_provider)
    meter = metrics.get_meter(NAME, meter_provider=meter_provider)
    sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Jobs that were enqueued.")
    consumed = meter.create_counter("messaging.client.consumed.messages", "{message}", "Attempts that were started.")
    took = meter.create_histogram(
        "messaging.process.duration", "s", "How long attempts ran.", explicit_bucket_boundaries_advisory=PROCESS_S
    )
    propagator = TraceContextTextMapPropagator()

    @app.jobs.on_enqueue
    def create_span(draft: Draft) -> Draft:
        common = _attributes("create", draft.queue, draft.type)
        about: Attributes = {
            **common,
            "messaging.message.id": str(draft.id),
            "messaging.message.conversation_id": draft.correlation_id,
            "fairlane.tenant": draft.tenant,
        }
        with tracer.start_as_current_span(f"create {draft.type}", kind=SpanKind.PRODUCER, attributes=about):
            headers = _headers(propagator)
        sent.add(1, common)
        return draft.change(headers=headers) if headers else draft

    @app.around_job
    def process_span(job: CurrentJob) -> Iterator[None]:
        common = _attributes("process", job.queue, job.type)
        producer = propagator.extract(dict(job.headers))
        jobs = job.batch or (job,)
        links = [Link(context) for each in jobs for context in _contexts(each, propagator) if context.is_valid]
        began_s = app.runtime.clock.monotonic()
        consumed.add(len(jobs), common)
        with tracer.start_as_current_span(
            f"process {job.type}",
            context=producer,
            kind=SpanKind.CONSUMER,
            attributes={**common, **_about(job)},
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                job.trace = (job.trace or {}) | _headers(propagator)
                yield
            except (Snooze, Cancel) as signal:
                span.set_attribute("fairlane.outcome", type(signal).__name__.lower())
                raise
            except BaseException as error:
                kind = _kind(error)
                common["error.type"] = kind
                span.set_attribute("error.type", kind)
                span.record_exception(error)
                span.set_status(Status(StatusCode.ERROR, kind))
                raise
            finally:
                took.record(app.runtime.clock.monotonic() - began_s, common)


def _headers(propagator: TraceContextTextMapPropagator) -> dict[str, str]:
    """The context of the current span."""
    headers: dict[str, str] = {}
    propagator.inject(headers)
    return headers


def _attributes(operation: str, queue: str, task: str) -> Attributes:
    """What spans and metrics have in common: few values each."""
    return {
        "messaging.system": NAME,
        "messaging.operation.type": operation,
        "messaging.operation.name": operation,
        "messaging.destination.name": queue,
        "fairlane.task": task,
    }


def _contexts(job: CurrentJob, propagator: TraceContextTextMapPropagator) -> Iterator[SpanContext]:
    """Of the enqueue of a job, and of those of the nodes it waits for; some may be invalid."""
    yield trace.get_current_span(propagator.extract(dict(job.headers))).get_span_context()
    for text in job.headers.get(PARENTS_HEADER, "").split(","):
        yield trace.get_current_span(propagator.extract({"traceparent": text})).get_span_context()


def _about(job: CurrentJob) -> Mapping[str, str | int]:
    batch = {"messaging.batch.message_count": len(job.batch)} if job.batch else {}
    return {
        **batch,
        "messaging.message.id": str(job.id),
        "messaging.message.conversation_id": job.correlation_id,
        "fairlane.tenant": job.tenant,
        "fairlane.attempt": job.attempts + 1,
    }


def _kind(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
