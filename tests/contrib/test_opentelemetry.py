"""OpenTelemetry, with its real SDK: one trace from the enqueue to the job, metrics by the conventions for messaging."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from fairlane import Fairlane, FakeClock, Retry, Snooze, current_job
from fairlane.contrib.opentelemetry import instrument
from fairlane.testing import run_due


class Shop:
    """An instrumented application and what its telemetry has shown."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.app = Fairlane("memory://", clock=self.clock)
        self._spans, self._metrics = InMemorySpanExporter(), InMemoryMetricReader()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider(metric_readers=[self._metrics])
        instrument(self.app, tracer_provider=self.provider, meter_provider=self.meters)

    def spans(self, kind: SpanKind) -> list[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if span.kind is kind]

    def metrics(self) -> dict[str, Any]:
        data = self._metrics.get_metrics_data()
        assert data is not None
        return {
            metric.name: metric.data.data_points
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def shop() -> Iterator[Shop]:
    shop = Shop()
    yield shop
    shop.app.close()
    shop.provider.shutdown()
    shop.meters.shutdown()


def test_the_spans_of_a_request_its_enqueue_and_its_job_are_one_trace(shop: Shop) -> None:
    @shop.app.task(name="add", queue="mail")
    def add(a: int) -> int:
        with tracer.start_as_current_span("inside"):
            return a

    tracer = shop.provider.get_tracer("shop")
    with tracer.start_as_current_span("request") as request:
        handle = add.using(tenant="acme", correlation_id="order 7").enqueue(1)
    run_due(shop.app)
    [created] = shop.spans(SpanKind.PRODUCER)
    [processed] = shop.spans(SpanKind.CONSUMER)
    inside = next(span for span in shop.spans(SpanKind.INTERNAL) if span.name == "inside")
    assert (created.name, processed.name) == ("create add", "process add")
    assert created.parent is not None
    assert created.parent.span_id == request.get_span_context().span_id
    assert processed.parent is not None
    assert processed.parent.span_id == created.context.span_id == processed.links[0].context.span_id
    assert inside.parent is not None
    assert inside.parent.span_id == processed.context.span_id
    assert {span.context.trace_id for span in (created, processed, inside)} == {request.get_span_context().trace_id}
    assert dict(processed.attributes or {}) == {
        "messaging.system": "fairlane",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(handle.id),
        "messaging.message.conversation_id": "order 7",
        "fairlane.task": "add",
        "fairlane.tenant": "acme",
        "fairlane.attempt": 1,
    }
    assert handle.job().headers["traceparent"].split("-")[1] == f"{request.get_span_context().trace_id:032x}"


def test_a_coroutine_and_the_jobs_it_enqueues_are_in_the_trace_too(shop: Shop) -> None:
    @shop.app.task(name="child")
    def child() -> None:
        pass

    @shop.app.task(name="parent")
    async def parent() -> None:
        await asyncio.gather(child.aenqueue(), child.aenqueue())

    parent.enqueue()
    with shop.app.running(slots=2, drain=True):
        pass
    assert len(shop.spans(SpanKind.PRODUCER)) == 3
    consumers = shop.spans(SpanKind.CONSUMER)
    assert [span.name for span in consumers].count("process child") == 2
    assert len({span.context.trace_id for span in [*consumers, *shop.spans(SpanKind.PRODUCER)]}) == 1
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_node_of_a_workflow_links_to_the_nodes_it_waits_for_and_all_share_its_correlation_id(shop: Shop) -> None:
    @shop.app.task(name="work")
    def work(a: int = 0) -> int:
        if a == 2:
            added = current_job().workflow.add(work.bind(3), name="added")
            current_job().workflow.add(work.bind(added.result), name="behind")
        return a

    flow = shop.app.workflow("fan")
    first = flow.add(work.bind(1), name="first")
    mails = [flow.add(work.bind(first.result), name=name) for name in ("one", "two")]
    flow.add(work.bind(2), after=mails, name="last")
    handle = flow.enqueue()
    run_due(shop.app)
    created = shop.spans(SpanKind.PRODUCER)
    processed = shop.spans(SpanKind.CONSUMER)
    whose = {str(node.job_id): node.name for node in handle.nodes()}
    named = {span.context.span_id: whose[str((span.attributes or {})["messaging.message.id"])] for span in created}
    assert [[named[link.context.span_id] for link in span.links] for span in processed] == [
        ["first"],
        ["one", "first"],
        ["two", "first"],
        ["last", "one", "two"],
        ["added", "last"],
        ["behind", "last", "added"],
    ]
    assert {(span.attributes or {})["messaging.message.conversation_id"] for span in (*created, *processed)} == {
        str(handle.id)
    }


def test_each_attempt_is_a_span_and_a_failed_one_shows_its_error(shop: Shop) -> None:
    @shop.app.task(name="flaky", retry=Retry(max_attempts=2, delays=(0,)))
    def flaky() -> None:
        raise LookupError("no such order")

    flaky.enqueue()
    run_due(shop.app)
    spans = shop.spans(SpanKind.CONSUMER)
    assert [(span.attributes or {})["fairlane.attempt"] for span in spans] == [1, 2]
    for span in spans:
        assert (span.status.status_code, (span.attributes or {})["error.type"]) == (StatusCode.ERROR, "LookupError")
        assert [event.name for event in span.events] == ["exception"]
    assert len({span.context.trace_id for span in spans}) == 1


def test_a_job_that_puts_itself_off_has_not_failed(shop: Shop) -> None:
    @shop.app.task(name="later")
    def later() -> None:
        raise Snooze(60)

    later.enqueue()
    run_due(shop.app)
    [span] = shop.spans(SpanKind.CONSUMER)
    assert span.status.status_code is StatusCode.UNSET
    assert (span.attributes or {})["fairlane.outcome"] == "snooze"


def test_a_job_enqueued_elsewhere_begins_a_trace_of_its_own(shop: Shop) -> None:
    other = Fairlane(store=shop.app.runtime.store, clock=shop.clock)

    @shop.app.task(name="plain")
    def plain() -> None:
        pass

    other.tasks.enqueue("plain", {})
    run_due(shop.app)
    [span] = shop.spans(SpanKind.CONSUMER)
    assert (span.parent, span.links) == (None, ())


def test_metrics_count_jobs_and_measure_attempts_without_their_tenants(shop: Shop) -> None:
    @shop.app.task(name="slow", queue="mail", max_attempts=1)
    def slow(seconds: float) -> None:
        shop.clock.advance(seconds)
        if seconds > 1:
            raise ValueError(seconds)

    shop.app.enqueue_many([slow.using(tenant=name).bind(0.5) for name in ("acme", "globex")])
    slow.enqueue(2.0)
    run_due(shop.app)
    found = shop.metrics()
    [sent] = found["messaging.client.sent.messages"]
    [consumed] = found["messaging.client.consumed.messages"]
    assert (sent.value, consumed.value) == (3, 3)
    assert not any("tenant" in name for points in found.values() for point in points for name in point.attributes)
    took = {point.attributes.get("error.type"): point for point in found["messaging.process.duration"]}
    assert (took[None].count, took[None].sum) == (2, pytest.approx(1.0))
    assert (took["ValueError"].count, took["ValueError"].sum) == (1, pytest.approx(2.0))
    assert took[None].attributes["messaging.destination.name"] == "mail"


def test_the_call_of_a_batch_task_links_to_every_enqueue_and_counts_every_job(shop: Shop) -> None:
    @shop.app.task(name="insert", batch=100, within=0.1)
    def insert(rows: list[int]) -> list[int]:
        return rows

    for row in range(10):
        insert.enqueue(row)
    run_due(shop.app)
    [processed] = shop.spans(SpanKind.CONSUMER)
    created = [span.context.span_id for span in shop.spans(SpanKind.PRODUCER)]
    assert [link.context.span_id for link in processed.links] == created
    assert (processed.attributes or {})["messaging.batch.message_count"] == 10
    [consumed] = shop.metrics()["messaging.client.consumed.messages"]
    assert consumed.value == 10
