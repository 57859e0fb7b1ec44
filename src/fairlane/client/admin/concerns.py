"""What is wrong now and needs a person: alerts that fire, and what is wrong before any rule's threshold is reached.

`CHECKS` has one function for each kind of thing: it gets all that was read at once, and says what is wrong, since when,
how much is concerned and which command helps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from fairlane.client.admin.job_keys import blocked_lines
from fairlane.client.context import require_all_tenants
from fairlane.client.rights import visible
from fairlane.client.steps import Steps, ask
from fairlane.core.alerts import SEEN, SEVERITIES, Rule, Severity, Watched, asked, seen
from fairlane.core.limits import StoredLimit
from fairlane.core.names import BUILT_IN_TASKS
from fairlane.core.ops import (
    ALL_TENANTS,
    COUNT_CAP,
    MAX_PAGE,
    Alert,
    Alerts,
    Breakers,
    DeadLetterFilter,
    DeadLetterGroup,
    GetStats,
    GroupDeadLetters,
    KeyUse,
    ListBreakers,
    ListKeys,
    ListLimits,
    ListPauses,
    ListWorkers,
    PageWorkflows,
    Pause,
    ReadAlerts,
    Stats,
    Workers,
    only,
)
from fairlane.core.text import command, plural
from fairlane.core.workflows import Workflow

if TYPE_CHECKING:
    from fairlane.client.runtime import Runtime

GRACE = timedelta(seconds=60)
"""How long jobs may be due without a worker, as during a deployment, before that is critical."""
RESUMES = {"queue": "queues", "type": "tasks", "tenant": "tenants"}
MOST_NAMED = 3
MOST_COUNTED = 20
"""Tenants whose waiting jobs are counted; of further ones their number is not known."""


class Concern(Struct, frozen=True, kw_only=True):
    """Something that is wrong now."""

    code: str
    severity: Severity
    says: str
    since: datetime | None = None
    """None: not known."""
    jobs: int | None = None
    """How many it concerns; None: not known."""
    tenants: int | None = None
    helps: str
    """The command that helps, or that leads to the cause."""


class Concerns(Struct, frozen=True, kw_only=True):
    """What is wrong, the most urgent first."""

    now: datetime
    concerns: tuple[Concern, ...]


class Observed(NamedTuple):
    """All that the checks look at."""

    stats: Stats
    workers: Workers
    pauses: tuple[Pause, ...]
    breakers: Breakers
    limits: tuple[StoredLimit, ...]
    groups: tuple[DeadLetterGroup, ...]
    unsent: tuple[DeadLetterGroup, ...]
    """Messages of alerts that were given up."""
    workflows: tuple[Workflow, ...]
    """The newest."""
    keys: tuple[KeyUse, ...]
    """Those at which most jobs wait."""
    alerts: Alerts
    rules: Mapping[str, Rule]
    waiting_of: Mapping[str, int]
    """Jobs that wait, of tenants that are paused or under a limit of their own."""

    def alert(self, watched: Watched, about: str = "") -> Alert | None:
        """The alert that fires about this."""
        for alert in self.alerts.alerts:
            rule = self.rules.get(alert.rule)
            if alert.state == "firing" and alert.about == about and rule is not None and rule.watches == watched:
                return alert
        return None


def read_concerns(runtime: Runtime) -> Steps[Concerns]:
    require_all_tenants("what is wrong")
    stats = yield from ask(GetStats(scope=ALL_TENANTS, parts=("queues", "dead_letters", "types")))
    pauses = visible((yield from ask(ListPauses())).pauses)  # A concern quotes their notes.
    limits = (yield from ask(ListLimits())).limits
    tenants = {pause.name for pause in pauses if pause.kind == "tenant"}
    tenants |= {one.limit.name for one in limits if one.limit.kind == "tenant"} - {"*"}
    waiting_of = {}
    for tenant in sorted(tenants)[:MOST_COUNTED]:
        own = yield from ask(GetStats(scope=only(tenant), cap=COUNT_CAP, parts=("queues",)))
        waiting_of[tenant] = sum(queue.pending + queue.failed for queue in own.queues)
    unsent: list[DeadLetterGroup] = []
    for task in sorted(BUILT_IN_TASKS):
        letters = DeadLetterFilter(status="pending_review", type=task)
        unsent += (yield from ask(GroupDeadLetters(scope=ALL_TENANTS, where=letters))).groups
    found = Observed(
        stats=stats,
        workers=(yield from ask(ListWorkers())),
        pauses=pauses,
        breakers=(yield from ask(ListBreakers())),
        limits=limits,
        groups=(yield from ask(GroupDeadLetters(scope=ALL_TENANTS))).groups,
        unsent=tuple(unsent),
        workflows=(yield from ask(PageWorkflows(scope=ALL_TENANTS, limit=MAX_PAGE))).workflows,
        keys=(yield from ask(ListKeys(scope=ALL_TENANTS, limit=MAX_PAGE))).keys,
        alerts=(yield from ask(ReadAlerts())),
        rules={rule.name: rule for rule in runtime.settings.alerts.rules_in_force},
        waiting_of=waiting_of,
    )
    concerns = [concern for check in CHECKS for concern in check(found)]
    concerns.sort(key=lambda one: (-SEVERITIES.index(one.severity), one.since is None, one.since or stats.now))
    return Concerns(now=stats.now, concerns=tuple(concerns))


def _workers(found: Observed) -> Iterator[Concern]:
    """Jobs that are due and that no live worker serves, or knows."""
    live = [worker for worker in found.workers.workers if worker.expires_at > found.workers.now]
    paused = {pause.name for pause in found.pauses if pause.kind == "queue"}
    served = {queue for worker in live for queue in worker.queues}
    serves_all = any(not worker.queues for worker in live)
    for queue in found.stats.queues:
        if not queue.ready or queue.queue in paused or serves_all or queue.queue in served:
            continue
        since = queue.oldest_due_at
        is_old = since is not None and found.stats.now - since > GRACE
        whom = "no worker is live" if not live else "no live worker serves it"
        yield Concern(
            code="no_worker",
            severity="critical" if is_old else "warning",
            says=f'queue "{queue.queue}" has {plural(queue.ready, "ready job")} and {whom}',
            since=since,
            jobs=queue.ready,
            helps=command("fairlane worker --queues {queue}", queue=queue.queue),
        )
    known = {task for worker in live for task in worker.types}
    for task, jobs in sorted(found.stats.pending_types.items()):
        if live and all(worker.types for worker in live) and task not in known:
            yield Concern(
                code="unknown_task",
                severity="warning",
                says=f'{plural(jobs, "job")} of task "{task}", which no live worker knows',
                jobs=jobs,
                helps=command("fairlane jobs list {which}", which=f"type:{task}"),
            )


def _lost_workers(found: Observed) -> Iterator[Concern]:
    for worker in found.workers.workers:
        if worker.expires_at <= found.workers.now:
            yield Concern(
                code="worker_lost",
                severity="critical" if worker.leases else "warning",
                says=f'worker "{worker.name}" is not heard of any more and holds {plural(worker.leases, "job")}',
                since=worker.expires_at,
                jobs=worker.leases,
                helps="fairlane workers list; a live worker takes its jobs back",
            )


def _pauses(found: Observed) -> Iterator[Concern]:
    queues = {queue.queue: queue.pending + queue.failed for queue in found.stats.queues}
    by_kind = {"queue": queues, "type": found.stats.pending_types, "tenant": found.waiting_of}
    for pause in found.pauses:
        jobs = by_kind[pause.kind].get(pause.name, None if pause.kind == "tenant" else 0)
        if jobs != 0:
            kind = "task" if pause.kind == "type" else pause.kind
            notes = f": {pause.notes}" if pause.notes else ""
            waiting = "not counted" if jobs is None else jobs
            yield Concern(
                code="paused",
                severity="warning",
                says=f'{kind} "{pause.name}" is paused by {pause.by}{notes}; jobs that wait: {waiting}',
                since=pause.at,
                jobs=jobs,
                tenants=1 if pause.kind == "tenant" else None,
                helps=command("fairlane {noun} resume {name}", noun=RESUMES[pause.kind], name=pause.name),
            )


def _limits(found: Observed) -> Iterator[Concern]:
    """Limits that let nothing through."""
    queues = {queue.queue: queue.ready + queue.held for queue in found.stats.queues}
    for stored in found.limits:
        limit, rate = stored.limit, stored.limit.rate
        if limit.running != 0 and limit.waiting != 0 and (rate is None or rate.count != 0):
            continue
        jobs = {"tenant": found.waiting_of, "queue": queues, "type": found.stats.pending_types}.get(limit.kind, {})
        options = (f"--{'name' if limit.kind == 'named' else limit.kind}", limit.name)
        where = f' in queue "{limit.queue}"' if limit.queue else ""
        yield Concern(
            code="limit_of_none",
            severity="warning",
            says=f'{limit.kind} "{limit.name}"{where} is limited to none by {stored.by}',
            since=stored.at,
            jobs=jobs.get(limit.name) if limit.kind != "named" and limit.name != "*" else None,
            tenants=1 if limit.kind == "tenant" and limit.name != "*" else None,
            helps=command(
                "fairlane limits clear {options}",
                options=(*options, "--queue", limit.queue) if limit.queue else options,
            ),
        )


def _dead_letters(found: Observed) -> Iterator[Concern]:
    if not (letters := found.stats.dead_letters.get("pending_review", 0)):
        return
    alert = found.alert("dead_letters")
    worst = found.groups[0] if found.groups else None
    of_them = "" if len(found.groups) < 2 or worst is None else f" {worst.count:,} of them"
    most = "" if worst is None else f":{of_them} {worst.error_type} of {worst.type}"
    yield Concern(
        code="dead_letters",
        severity="info" if alert is None else _severity(alert),
        says=f"{plural(letters, 'dead letter')} pending review{most}",
        since=min((group.first_at for group in found.groups), default=None),
        jobs=letters,
        tenants=max((group.tenants for group in found.groups), default=None) if len(found.groups) == 1 else None,
        helps=SEEN["dead_letters"].helps,
    )


def _unsent(found: Observed) -> Iterator[Concern]:
    """Whom an alert should have reached knows nothing of it."""
    for group in found.unsent:
        yield Concern(
            code="alerts_not_sent",
            severity="critical",
            says=f"{plural(group.count, 'message')} of alerts could not be sent by {group.type}: {group.error_type}",
            since=group.first_at,
            jobs=group.count,
            helps=f"fairlane dead-letters reprocess --fingerprint {group.fingerprint}, once its cause is mended",
        )


def _breakers(found: Observed) -> Iterator[Concern]:
    for breaker in found.breakers.breakers:
        if breaker.state != "closed":
            alert = found.alert("breakers_open", breaker.name)
            forced = " by hand, until somebody resets it" if breaker.state == "open" and not breaker.retry_at else ""
            yield Concern(
                code="breaker",
                severity="warning" if alert is None else _severity(alert),
                says=f'breaker "{breaker.name}" is {breaker.state.replace("_", " ")}{forced}',
                since=breaker.opened_at,
                helps=f"fairlane breakers reset {breaker.name}" if forced else SEEN["breakers_open"].helps,
            )


def _workflows(found: Observed) -> Iterator[Concern]:
    blocked = [workflow for workflow in found.workflows if workflow.status == "blocked"]
    for workflow in blocked[:MOST_NAMED]:
        more = f", and {len(blocked) - MOST_NAMED} more of the newest" if len(blocked) > MOST_NAMED else ""
        yield Concern(
            code="workflow_blocked",
            severity="warning",
            says=f'workflow "{workflow.name}" goes on when somebody deals with its dead nodes'
            f" ({workflow.tally.dead} dead, {workflow.tally.waiting} waiting){more}",
            jobs=workflow.tally.waiting,
            tenants=1,
            helps=f"fairlane workflows show {workflow.id}",
        )


def _job_keys(found: Observed) -> Iterator[Concern]:
    """Jobs behind a dead letter of an ordered key."""
    for use, letter in list(blocked_lines(found.keys))[:MOST_NAMED]:
        jobs = plural(use.waiting, "job")
        yield Concern(
            code="key_blocked",
            severity="warning",
            says=f'dead letter {letter.seq} of tenant "{use.tenant}" holds up {jobs} at {use.key}',
            since=letter.since,
            jobs=use.waiting,
            tenants=1,
            helps=f"fairlane dead-letters reprocess {letter.seq}, or resolve or discard it",
        )


def _alerts(found: Observed) -> Iterator[Concern]:
    """What else fires; where no worker is live, the rules were evaluated when one was."""
    for alert in found.alerts.alerts:
        rule = found.rules.get(alert.rule)
        if alert.state == "firing" and rule is not None and rule.watches not in ("dead_letters", "breakers_open"):
            yield Concern(
                code=alert.rule,
                severity=_severity(alert),
                says=f"{seen(alert, rule)}{asked(rule)}",
                since=alert.since,
                helps=command(SEEN[rule.watches].helps, about=alert.about),
            )


def _severity(alert: Alert) -> Severity:
    return next((one for one in SEVERITIES if one == alert.severity), "warning")


CHECKS: tuple[Callable[[Observed], Iterator[Concern]], ...] = (
    _workers,
    _lost_workers,
    _alerts,
    _pauses,
    _limits,
    _breakers,
    _workflows,
    _job_keys,
    _unsent,
    _dead_letters,
)
"""Whoever adds a check adds it here, with a story in tests/client/test_concerns.py."""
