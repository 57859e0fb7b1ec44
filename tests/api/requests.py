"""One good request for each operation of the API, about one tenant's things. An operation without one fails the suite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.api.house import Mine, ShopHouse


class Request(NamedTuple):
    path: dict[str, Any] = {}  # noqa: RUF012 - never changed
    query: dict[str, Any] = {}  # noqa: RUF012 - never changed
    json: Any = None


Make = Callable[[ShopHouse, Mine], Request]


def plain(_: ShopHouse, __: Mine) -> Request:
    return Request()


def job(name: str, json: Any = None) -> Make:
    return lambda _, mine: Request({"id": getattr(mine, name)}, {}, json)


def letter(json: Any = None) -> Make:
    return lambda _, mine: Request({"id": mine.letter}, {}, json)


def named(**path: Any) -> Make:
    return lambda _, __: Request(path, {}, {"notes": "because"})


def claim(json: Any = None) -> Make:
    return lambda _, mine: Request({"token": mine.claim}, {}, json)


def body(**json: Any) -> Make:
    return lambda _, __: Request({}, {}, json)


REQUESTS: dict[str, Make] = {
    "is_alive": plain,
    "is_ready": plain,
    "show_health": plain,
    "describe_api": plain,
    "log_in": lambda house, _: Request({}, {"link": house.link()}),
    "log_out": plain,
    "show_me": plain,
    "enqueue_job": lambda _, mine: Request(
        {}, {}, {"type": "mail.send", "payload": {"user_id": 5}, "tenant": mine.tenant, "parent_id": str(mine.done)}
    ),
    "list_jobs": lambda _, mine: Request({}, {"tenant": mine.tenant}),
    "show_job": job("done"),
    "explain_job": job("ready"),
    "list_queue": lambda _, mine: Request({}, {"tenant": mine.tenant}),
    "show_queued_job": job("dead"),
    "cancel_job": job("ready", {"notes": "because"}),
    "retry_job": job("dead"),
    "fail_job": job("running", {"reason": "hung", "retry_delay_s": 5}),
    "bury_job": job("ready", {"reason": "never mind"}),
    "reset_job": job("running"),
    "free_place": job("running", {"notes": "it hangs"}),
    "act_on_jobs": lambda _, mine: Request({}, {}, {"act": "cancel", "ids": [str(mine.ready)]}),
    "claim_job": body(queues=["default"], types=["mail.send"], lease_s=60, worker="cron-7"),
    "renew_claim": claim({"lease_s": 90}),
    "complete_claim": claim({"result": {"sent": True}}),
    "fail_claim": claim({"message": "hung up", "error_class": "transient", "retry_after_s": 20}),
    "release_claim": claim(),
    "list_dead_letters": lambda _, mine: Request({}, {"tenant": mine.tenant}),
    "count_dead_letters": plain,
    "show_dead_letter": letter(),
    "reprocess_dead_letter": letter({"notes": "fixed", "payload": {"note": "edited"}}),
    "discard_dead_letter": letter({"notes": "no use"}),
    "resolve_dead_letter": letter({"notes": "done by hand"}),
    "acknowledge_dead_letter": letter(),
    "group_dead_letters": plain,
    "reprocess_group": lambda _, mine: Request({"fingerprint": mine.fingerprint}, {}, {"per_second": 2}),
    "act_on_dead_letters": lambda _, mine: Request({}, {}, {"act": "resolve", "ids": [mine.letter]}),
    "list_queues": plain,
    "show_queue_statistics": plain,
    "pause_queue": named(name="bulk"),
    "resume_queue": named(name="bulk"),
    "drain_queue": named(name="bulk"),
    "list_tenants": plain,
    "show_tenant": lambda _, mine: Request({"name": mine.tenant}),
    "set_tenant": lambda _, mine: Request({"name": mine.tenant}, {}, {"weight": 3}),
    "show_metrics": plain,
    "show_tenant_metrics": lambda _, mine: Request({"name": mine.tenant}),
    "list_pauses": plain,
    "pause_claims": lambda _, mine: Request({}, {}, {"kind": "tenant", "name": mine.tenant}),
    "resume_claims": lambda _, mine: Request({}, {}, {"kind": "tenant", "name": mine.tenant}),
    "list_limits": plain,
    "list_keys": lambda _, mine: Request({}, {"tenant": mine.tenant, "key": mine.held and mine.key}),
    "set_limit": lambda _, mine: Request(
        {}, {}, {"kind": "tenant", "name": mine.tenant, "waiting": 7, "rate": "5/min"}
    ),
    "clear_limit": lambda _, mine: Request({}, {}, {"kind": "tenant", "name": mine.tenant}),
    "list_breakers": plain,
    "reset_breaker": named(name="smtp"),
    "open_breaker": named(name="smtp"),
    "list_schedules": plain,
    "run_schedule": lambda _, mine: Request({"name": mine.schedule}),
    "pause_schedule": lambda _, mine: Request({"name": mine.schedule}),
    "resume_schedule": lambda _, mine: Request({"name": mine.schedule}),
    "list_workers": plain,
    "list_workflows": lambda _, mine: Request({}, {"tenant": mine.tenant, "status": "running"}),
    "show_workflow": lambda _, mine: Request({"id": mine.workflow}),
    "cancel_workflow": lambda _, mine: Request({"id": mine.workflow}, {}, {"notes": "because"}),
    "retry_workflow": lambda _, mine: Request({"id": mine.ended}, {}, {"node": "first"}),
    "list_exceptions": plain,
    "list_audit": plain,
    "verify_audit": plain,
    "list_events": plain,
    "watch_events": lambda _, __: Request({}, {"after": 0}),
    "list_signals": plain,
    "emit_signal": lambda _, mine: Request({}, {}, {"name": "paid", "tenant": mine.tenant, "data": {"sum": 3}}),
    "list_alerts": plain,
    "list_concerns": plain,
    "silence_alerts": lambda _, __: Request({"rule": "queue_backlog"}, {}, {"for_s": 60}),
    "show_statistics": lambda _, mine: Request({}, {"tenant": mine.tenant, "by": "tenant"}),
    "list_tokens": plain,
    "create_token": body(name="ci", roles=["viewer"]),
    "create_link": body(name="lea", roles=["viewer"]),
    "revoke_credential": lambda house, _: Request({"id": house.old}),
}
