"""Limits, tenants and held jobs as calls, and limits as the text that functions take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from fairlane.core.job import JobSpec
from fairlane.core.limits import Limit, LimitsInForce, TenantTerms
from fairlane.core.ops import (
    MAX_PAGE,
    TENANT_COUNT_CAP,
    AddTenants,
    Age,
    Aged,
    ClearLimit,
    GetTenant,
    LimitPaused,
    Limits,
    ListLimits,
    PageTenants,
    PauseLimit,
    ReadWeights,
    SetLimit,
    SetTenant,
    TakeTokens,
    TenantPage,
    TenantRecord,
    TenantsAdded,
    TokensTaken,
    Unheld,
    Unhold,
    Waiting,
    Weights,
    Why,
)
from fairlane.stores.postgres.call import Call, Rows, answering, instant

_limits = answering(Limits)
_limit_paused = answering(LimitPaused)
_tokens_taken = answering(TokensTaken)
_unheld = answering(Unheld)
_aged = answering(Aged)
_tenant = answering(TenantRecord)
_tenant_page = answering(TenantPage)
_tenants_added = answering(TenantsAdded)
_weights = answering(Weights)


@lru_cache(maxsize=64)
def claim_limits(limits: tuple[Limit, ...]) -> str | None:
    """What concerns claims; None: nothing does."""
    return _text(
        [
            Limit(
                kind=given.kind,
                name=given.name,
                queue=given.queue,
                running=given.running,
                rate=given.rate,
                types=given.types,
            )
            for given in limits
            if given.running is not None or given.rate is not None or given.types
        ]
    )


@lru_cache(maxsize=64)
def enqueue_limits(limits: tuple[Limit, ...]) -> str | None:
    """What concerns tenants' enqueues; None: nothing does."""
    return _text(
        [
            given
            for given in limits
            if given.kind == "tenant" and (given.waiting, given.when_full, given.payload_bytes) != (None, None, None)
        ]
    )


@lru_cache(maxsize=4096)
def tenant_terms(limits: tuple[Limit, ...], tenant: str, queue: str) -> TenantTerms:
    return LimitsInForce(limits).terms(tenant, queue)


def terms_text(limits: tuple[Limit, ...], jobs: Sequence[JobSpec]) -> str:
    """What the code's limits come to for these jobs, by tenant and queue: those with any."""
    if len(jobs) == 1:
        return _terms_text(limits, jobs[0].tenant, jobs[0].queue, 1)[0]
    groups = Counter((job.tenant, job.queue) for job in jobs)
    found = [_terms_text(limits, *group, count)[1] for group, count in groups.items()]
    return f"[{','.join(one for one in found if one)}]"


@lru_cache(maxsize=4096)
def _terms_text(limits: tuple[Limit, ...], tenant: str, queue: str, jobs: int) -> tuple[str, str]:
    """As a list of its own, and as one of several."""
    terms = tenant_terms(limits, tenant, queue)
    if terms.waiting is None and terms.payload_bytes is None:
        return "[]", ""
    group = {"tenant": tenant, "queue": queue, "jobs": jobs, **msgspec.structs.asdict(terms)}
    text = msgspec.json.encode(group).decode()
    return f"[{text}]", text


def _text(limits: list[Limit]) -> str | None:
    last = {limit.key: limit for limit in limits}
    return msgspec.json.encode(list(last.values())).decode() if last else None


def _all_text(limits: tuple[Limit, ...]) -> str | None:
    return _text(list(limits))


def _list(_: ListLimits) -> Call[Limits]:
    return Call("select {schema}.limits(false)::text", (), _limits)


def _set(op: SetLimit) -> Call[Limits]:
    return Call(
        "select {schema}.set_limit_v1(%s::json, %s, %s, %s::timestamptz)::text",
        (msgspec.json.encode(op.limit).decode(), op.by, op.notes, instant(op.now)),
        _limits,
    )


def _clear(op: ClearLimit) -> Call[Limits]:
    return Call(
        "select {schema}.clear_limit_v1(%s, %s, %s, %s, %s, %s::timestamptz)::text",
        (op.kind, op.name, op.queue, op.by, op.notes, instant(op.now)),
        _limits,
    )


def _pause(op: PauseLimit) -> Call[LimitPaused]:
    nothing = Limit(kind=op.kind, name=op.name, queue=op.queue)
    return Call(
        "select {schema}.pause_limit_v1(%s::json, %s::float8, %s, %s::timestamptz)::text",
        (msgspec.json.encode(nothing).decode(), op.for_s, op.by, instant(op.now)),
        _limit_paused,
    )


def _take_tokens(op: TakeTokens) -> Call[TokensTaken]:
    return Call(
        "select {schema}.take_tokens_v1(%s::json, %s::json, %s::timestamptz)::text",
        (msgspec.json.encode(op.counts).decode(), _all_text(op.limits), instant(op.now)),
        _tokens_taken,
    )


def _unhold(op: Unhold) -> Call[Unheld]:
    return Call(
        "select {schema}.unhold_v1(%s::json, %s, %s::timestamptz)::text",
        (enqueue_limits(op.limits), op.limit, instant(op.now)),
        _unheld,
    )


def _age(op: Age) -> Call[Aged]:
    return Call(
        "select {schema}.age_v1(%s, %s::float8, %s, %s::timestamptz)::text",
        (op.queue, op.every_s, op.limit, instant(op.now)),
        _aged,
    )


def _set_tenant(op: SetTenant) -> Call[TenantRecord]:
    return Call(
        "select {schema}.set_tenant_v1(%s, %s::float8, %s, %s, %s, %s, %s::timestamptz)::text",
        (op.name, op.weight, op.tier, op.by, op.notes, TENANT_COUNT_CAP, instant(op.now)),
        _tenant,
    )


def _get_tenant(op: GetTenant) -> Call[TenantRecord | None]:
    if not op.scope.admits(op.name):
        return Call("select null", (), lambda _: None)
    return Call("select {schema}.tenant_record(%s, %s)::text", (op.name, TENANT_COUNT_CAP), _tenant)


def _page_tenants(op: PageTenants) -> Call[TenantPage]:
    return Call(
        "select {schema}.page_tenants_v1(%s, %s, %s, %s, %s)::text",
        (op.scope.tenant, op.after, op.tier, max(1, min(op.limit, MAX_PAGE)), TENANT_COUNT_CAP),
        _tenant_page,
    )


def _add_tenants(op: AddTenants) -> Call[TenantsAdded]:
    return Call(
        "select {schema}.add_tenants_v1(%s, %s, %s::timestamptz)::text",
        (op.after, op.limit, instant(op.now)),
        _tenants_added,
    )


def _read_weights(_: ReadWeights) -> Call[Weights]:
    return Call("select {schema}.read_weights_v1()::text", (), _weights)


def _why(op: Why) -> Call[Waiting | None]:
    def read(rows: Rows) -> Waiting | None:
        return None if rows[0][0] is None else msgspec.json.decode(rows[0][0], type=Waiting)

    return Call(
        "select {schema}.why_v1(%s, %s::uuid, %s::json, %s, %s::timestamptz)::text",
        (op.scope.tenant, str(op.id), _all_text(op.limits), TENANT_COUNT_CAP, instant(op.now)),
        read,
    )


CALLS: dict[type, Callable[[Any], Call[Any]]] = {
    ListLimits: _list,
    SetLimit: _set,
    ClearLimit: _clear,
    PauseLimit: _pause,
    TakeTokens: _take_tokens,
    Unhold: _unhold,
    Age: _age,
    SetTenant: _set_tenant,
    GetTenant: _get_tenant,
    PageTenants: _page_tenants,
    AddTenants: _add_tenants,
    ReadWeights: _read_weights,
    Why: _why,
}
