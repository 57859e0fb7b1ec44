"""Every act of a person, staged on things of its own, with a way to see whether it happened."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from fairlane.core.ids import JobId, Seq
from fairlane.core.job_keys import JobKey
from fairlane.core.ops import (
    ALL_TENANTS,
    Acknowledge,
    Bury,
    Cancel,
    ClearLimit,
    DeclareSchedules,
    Discard,
    Fail,
    ForceBreaker,
    FreePlace,
    GetTenant,
    IssueCredential,
    ListBreakers,
    ListCredentials,
    ListKeys,
    ListLimits,
    ListPauses,
    ListSchedules,
    Op,
    PageAudit,
    PauseClaims,
    PauseSchedule,
    Planned,
    ReadAlerts,
    RedeemLink,
    RemoveSchedule,
    Reprocess,
    Reset,
    ResetBreaker,
    Resolve,
    ResumeClaims,
    RevokeCredential,
    RunSchedule,
    SetLimit,
    SetTenant,
    SilenceAlerts,
)
from fairlane.testing.conformance import limits as limiting, schedules as scheduling
from fairlane.testing.conformance.samples import NOON
from fairlane.testing.conformance.scene import Runs, Scene

BY = {"by": "ada", "notes": "asked for by phone"}


class Staged(NamedTuple):
    """One act that has not happened yet."""

    op: Op[Any]
    target: str
    actions: tuple[str, ...]
    """What it writes to the audit, in order."""
    look: Callable[[Runs], object]
    """Shows something else once the act has happened."""
    before: object

    def has_happened(self, store: Runs) -> bool:
        return self.look(store) != self.before

    def records(self, store: Runs) -> tuple[str, ...]:
        """What the audit says of it."""
        found = store.run(PageAudit(scope=ALL_TENANTS, target=self.target)).records
        return tuple(record.action for record in reversed(found) if record.action in self.actions)


Stage = Callable[[Scene, str], Staged]
"""On an empty part of a scene, under a name nothing else there bears."""


def staged(scene: Scene, op: Op[Any], target: str, look: Callable[[Runs], object], *actions: str) -> Staged:
    at_noon = msgspec.structs.replace(op, now=scene.now)
    return Staged(at_noon, target, actions, look, look(scene.store))


def _about(name: str, ask: Callable[[Runs], tuple[object, ...]]) -> Callable[[Runs], object]:
    return lambda store: [one for one in ask(store) if name in str(one)]


def _schedules(name: str) -> Callable[[Runs], object]:
    return _about(name, lambda store: store.run(ListSchedules()).schedules)


def _on_a_waiting_job(make: Callable[..., Op[Any]], action: str, **words: Any) -> Stage:
    def stage(scene: Scene, name: str) -> Staged:
        return _of_a_job(scene, scene.put(queue=name).id, make, action, words)

    return stage


def _on_a_running_job(make: Callable[..., Op[Any]], action: str, **words: Any) -> Stage:
    def stage(scene: Scene, name: str) -> Staged:
        return _of_a_job(scene, scene.leased(queue=name)[1].id, make, action, words)

    return stage


def _of_a_job(scene: Scene, job: JobId, make: Callable[..., Op[Any]], action: str, words: dict[str, Any]) -> Staged:
    op = make(scope=ALL_TENANTS, id=job, **BY, **words)
    return staged(scene, op, f"job:{job}", lambda store: Scene(store).see(job), action)


def _on_a_dead_letter(make: Callable[..., Op[Any]], *actions: str) -> Stage:
    def stage(scene: Scene, name: str) -> Staged:
        letter = Seq(scene.dead(queue=name).seq)
        more = {"new_job_id": scene.making.job_id()} if make is Reprocess else {}
        op = make(scope=ALL_TENANTS, id=letter, **BY, **more)
        return staged(scene, op, f"dead_letter:{letter}", lambda store: Scene(store).letter(letter), *actions)

    return stage


def _pause(scene: Scene, name: str) -> Staged:
    op = PauseClaims(kind="queue", name=name, **BY)
    return staged(scene, op, f"queue:{name}", _about(name, lambda store: store.run(ListPauses()).pauses), "pause")


def _resume(scene: Scene, name: str) -> Staged:
    scene.run(PauseClaims(kind="tenant", name=name, by="eve"))
    op = ResumeClaims(kind="tenant", name=name, **BY)
    return staged(scene, op, f"tenant:{name}", _about(name, lambda store: store.run(ListPauses()).pauses), "resume")


def _limit_set(scene: Scene, name: str) -> Staged:
    op = SetLimit(limit=limiting.tenant(name, waiting=7), **BY)
    return staged(
        scene, op, f"limit:tenant:{name}", _about(name, lambda store: store.run(ListLimits()).limits), "limit_set"
    )


def _limit_clear(scene: Scene, name: str) -> Staged:
    limiting.set_limit(scene, limiting.queue(name, running=3))
    op = ClearLimit(kind="queue", name=name, **BY)
    return staged(
        scene, op, f"limit:queue:{name}", _about(name, lambda store: store.run(ListLimits()).limits), "limit_clear"
    )


def _tenant_set(scene: Scene, name: str) -> Staged:
    op = SetTenant(name=name, weight=2.5, tier="gold", **BY)
    look = GetTenant(scope=ALL_TENANTS, name=name)
    return staged(scene, op, f"tenant:{name}", lambda store: store.run(look), "tenant_set")


def _issuing(scene: Scene, name: str, kind: Any) -> IssueCredential:
    words = {"id": scene.making.job_id(), "prefix": "fl_", "hash": f"hash-of-{name}", "roles": ("viewer",)}
    return IssueCredential(kind=kind, name=name, **words, **BY)


def _credentials(kind: Any, name: str) -> Callable[[Runs], object]:
    return lambda store: store.run(ListCredentials(kind=kind, name=name, also_bad=True))


def _create(kind: str) -> Stage:
    def stage(scene: Scene, name: str) -> Staged:
        op = _issuing(scene, name, kind)
        return staged(scene, op, f"{kind}:{op.id}", _credentials(kind, name), f"{kind}_create")

    return stage


def _link_redeem(scene: Scene, name: str) -> Staged:
    issued = _issuing(scene, name, "link")
    scene.run(issued)
    op = RedeemLink(hash=issued.hash)
    return staged(scene, op, f"link:{issued.id}", _credentials("link", name), "link_redeem")


def _revoke(kind: str) -> Stage:
    def stage(scene: Scene, name: str) -> Staged:
        issued = _issuing(scene, name, kind)
        scene.run(issued)
        op = RevokeCredential(id=issued.id, **BY)
        return staged(scene, op, f"{kind}:{issued.id}", _credentials(kind, name), f"{kind}_revoke")

    return stage


def _breaker_open(scene: Scene, name: str) -> Staged:
    op = ForceBreaker(name=name, **BY)
    return staged(
        scene,
        op,
        f"breaker:{name}",
        _about(name, lambda store: store.run(ListBreakers()).breakers),
        "breaker_force_open",
    )


def _breaker_reset(scene: Scene, name: str) -> Staged:
    scene.run(ForceBreaker(name=name, by="eve"))
    op = ResetBreaker(name=name, **BY)
    return staged(
        scene, op, f"breaker:{name}", _about(name, lambda store: store.run(ListBreakers()).breakers), "breaker_reset"
    )


def _declare(name: str, cron: str = "0 * * * *") -> DeclareSchedules:
    planned = Planned(spec=scheduling.spec(name, cron=cron), next_at=NOON)
    return DeclareSchedules(schedules=(planned,), source="person", **BY)


def _schedule_add(scene: Scene, name: str) -> Staged:
    return staged(scene, _declare(name), f"schedule:{name}", _schedules(name), "schedule_add")


def _on_a_schedule(action: str, make: Callable[[Scene, str], Op[Any]], *, paused: bool = False) -> Stage:
    def stage(scene: Scene, name: str) -> Staged:
        scene.run(_declare(name))
        if paused:
            scene.run(PauseSchedule(name=name, by="eve"))
        return staged(scene, make(scene, name), f"schedule:{name}", _schedules(name), action)

    return stage


def _alert_silence(scene: Scene, name: str) -> Staged:
    op = SilenceAlerts(rule=name, for_s=3600.0, **BY)
    look = msgspec.structs.replace(ReadAlerts(), now=scene.now)
    return staged(scene, op, f"alert:{name}", _about(name, lambda store: store.run(look).silences), "alert_silence")


def _place_free(scene: Scene, name: str) -> Staged:
    [job, _] = [scene.put(queue=name, key=JobKey(value=name)).id for _ in range(2)]
    scene.claim(scene.hire(), queues=(name,))
    op, keys = FreePlace(scope=ALL_TENANTS, id=job, **BY), ListKeys(scope=ALL_TENANTS)
    look = _about(name, lambda store: store.run(keys).keys)
    return staged(scene, op, f"job:{job}", look, "job_place_free")


ACTS: dict[str, Stage] = {
    "cancel": _on_a_waiting_job(Cancel, "job_cancel"),
    "cancel_running": _on_a_running_job(Cancel, "job_cancel"),
    "fail": _on_a_waiting_job(Fail, "job_fail", reason="wrong", retry_delay_s=60.0),
    "fail_running": _on_a_running_job(Fail, "job_fail", reason="wrong"),
    "bury": _on_a_waiting_job(Bury, "job_bury", reason="never mind"),
    "reset": _on_a_running_job(Reset, "job_reset"),
    "place_free": _place_free,
    "reprocess": _on_a_dead_letter(Reprocess, "job_dlq_reprocess_requested", "job_dlq_reprocess_success"),
    "discard": _on_a_dead_letter(Discard, "job_dlq_discard"),
    "resolve": _on_a_dead_letter(Resolve, "job_dlq_resolve"),
    "acknowledge": _on_a_dead_letter(Acknowledge, "job_dlq_acknowledge"),
    "pause": _pause,
    "resume": _resume,
    "limit_set": _limit_set,
    "limit_clear": _limit_clear,
    "tenant_set": _tenant_set,
    "token_create": _create("token"),
    "link_create": _create("link"),
    "link_redeem": _link_redeem,
    "token_revoke": _revoke("token"),
    "session_revoke": _revoke("session"),
    "breaker_open": _breaker_open,
    "breaker_reset": _breaker_reset,
    "schedule_add": _schedule_add,
    "schedule_change": _on_a_schedule("schedule_change", lambda _, name: _declare(name, "5 * * * *")),
    "schedule_pause": _on_a_schedule("schedule_pause", lambda _, name: PauseSchedule(name=name, **BY)),
    "schedule_resume": _on_a_schedule(
        "schedule_resume",
        lambda _, name: PauseSchedule(name=name, paused=False, next_at=NOON + timedelta(hours=1), **BY),
        paused=True,
    ),
    "schedule_run": _on_a_schedule(
        "schedule_run", lambda scene, name: RunSchedule(name=name, job=scene.job("report.make"), **BY)
    ),
    "schedule_remove": _on_a_schedule("schedule_remove", lambda _, name: RemoveSchedule(name=name, **BY)),
    "alert_silence": _alert_silence,
}
