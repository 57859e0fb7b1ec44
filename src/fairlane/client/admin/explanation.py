"""Explains in words why a job waits, from the store's facts about it.

`TABLE` has every sentence: the places it is said of, the facts that make it true, and what helps. Its rows are in the
order of their weight; a test of the conformance suite plays each of them on every store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from fairlane.client.admin.job_keys import line_at_key
from fairlane.client.context import in_scope
from fairlane.client.enqueue.options import job_id
from fairlane.client.handle import JobLike
from fairlane.client.rights import visible
from fairlane.client.steps import Steps, ask
from fairlane.core.breaker import BreakerRecord
from fairlane.core.job import DeadLetter, Job
from fairlane.core.job_keys import key_name
from fairlane.core.limits import LimitKey
from fairlane.core.names import BUILT_IN_TASKS
from fairlane.core.ops import (
    ALL_TENANTS,
    TENANT_COUNT_CAP,
    GetDeadLetter,
    GetJob,
    JobDetail,
    LimitState,
    ListBreakers,
    ListGates,
    ListLimits,
    PageNodes,
    Pause,
    Scope,
    Waiting,
    Why,
)
from fairlane.core.ops.jobs import WaitPlace
from fairlane.core.text import command, span_between
from fairlane.core.workflows import SHUT, WORKFLOW_HEADER, GateState, Node, NodeWaits, WorkflowId, waits_of
from fairlane.errors import JobNotFound

if TYPE_CHECKING:
    from fairlane.client.task import Task
    from fairlane.core.limits import Limit

PUT_OFF = {
    "NeedsNewerCode": "needs newer code",
    "MissingPrincipal": "needs a principal",
    "HandlerRefused": "needs a function that the worker may run",
}
"""What a job waits for that was put off, by the error type of its last record."""
MOST_NODES = 5_000
"""Nodes of a workflow that are looked through for those that one waits for."""
MOST_NAMED = 3


class Reason(Struct, frozen=True, kw_only=True):
    """One reason why a job waits, or why it does not."""

    code: str
    says: str
    helps: str = ""
    """What a person can do; empty: nothing is needed."""


class Explanation(Struct, frozen=True, kw_only=True):
    """Why a job waits."""

    waiting: Waiting
    reasons: tuple[Reason, ...]
    """The strongest first; never empty."""
    breaker: BreakerRecord | None = None
    """The breaker of its task, if it is not closed."""


class WaitingNode(NamedTuple):
    """A job that a workflow keeps back."""

    workflow: WorkflowId
    waits: NodeWaits | None
    """None: the workflow has more nodes than were looked through."""
    dead: tuple[Node, ...] = ()
    """Dead nodes that it waits for, directly or behind others, and that nobody has dealt with."""

    def is_behind(self, *states: GateState) -> bool:
        return self.waits is not None and self.waits.gate.state in states


class KnownJob(NamedTuple):
    """All that is known of one job."""

    waiting: Waiting
    task: Task[..., Any] | None
    breaker: BreakerRecord | None = None
    node: WaitingNode | None = None
    letter: DeadLetter | None = None
    detail: JobDetail | None = None
    key_paused_until: datetime | None = None
    """Of its key's name, for a job that is held there."""

    @property
    def job(self) -> Job:
        return self.waiting.job

    def ago(self, at: datetime | None) -> str:
        return "some time" if at is None else span_between(self.waiting.now, at)


def explain(
    job: JobLike, tenant: str | int | None, limits: tuple[Limit, ...], tasks: Mapping[str, Task[..., Any]]
) -> Steps[Explanation]:
    """Explain why this job waits, by the limits and breakers of the tasks known here."""
    asked, scope = job_id("job", job), in_scope(tenant)
    waiting = yield from ask(Why(scope=scope, id=asked, limits=limits))
    if waiting is None:
        raise JobNotFound(asked)
    waiting = visible(waiting)  # The reasons quote the notes of pauses.
    if in_scope(None) != ALL_TENANTS:
        waiting = replace(waiting, pauses=tuple(_seen_by_a_tenant(pause) for pause in waiting.pauses))
    known = KnownJob(waiting, tasks.get(waiting.job.type))
    match waiting.place:
        case "ready" | "scheduled":
            known = known._replace(breaker=(yield from _breaker(known)))
            if waiting.place == "scheduled" and waiting.job.attempt and waiting.job.status == "pending":
                known = known._replace(detail=(yield from ask(GetJob(scope=scope, id=asked))))
        case "held" if waiting.key_ahead is not None:
            known = known._replace(key_paused_until=(yield from _key_paused_until(waiting.job)))
        case "held":
            known = known._replace(node=(yield from _waiting_node(waiting.job, scope)))
        case "dead":
            found = yield from ask(GetDeadLetter(scope=scope, id=waiting.job.seq))
            known = known._replace(letter=None if found is None else found.dead_letter)
    return Explanation(waiting=waiting, reasons=tuple(_reasons(known)), breaker=known.breaker)


def _seen_by_a_tenant(pause: Pause) -> Pause:
    """A pause without who made it and why, unless it is the tenant's own."""
    return pause if pause.kind == "tenant" else replace(pause, by="", notes=None)


def _breaker(known: KnownJob) -> Steps[BreakerRecord | None]:
    """The breaker of its task, if it is not closed."""
    named = None if known.task is None else known.task.definition.breaker
    if named is None:
        return None
    kept = (yield from ask(ListBreakers())).breakers
    return next((one for one in kept if one.name == named.name and one.state != "closed"), None)


def _key_paused_until(job: Job) -> Steps[datetime | None]:
    of = LimitKey("key", key_name(job.key or ""))
    kept = (yield from ask(ListLimits())).limits
    return next((one.paused_until for one in kept if one.limit.key == of), None)


def _waiting_node(job: Job, scope: Scope) -> Steps[WaitingNode | None]:
    """The node behind a gate that the job stands for."""
    try:
        workflow = WorkflowId(UUID(job.headers[WORKFLOW_HEADER]))
    except (KeyError, ValueError):
        return None
    nodes: list[Node] = []
    after: int | None = -1
    while after is not None and len(nodes) < MOST_NODES:
        page = yield from ask(PageNodes(scope=scope, workflow=workflow, after=after))
        nodes += page.nodes
        after = page.next
    if after is not None:
        return WaitingNode(workflow, None)
    waits = waits_of(job.id, nodes, (yield from ask(ListGates(scope=scope, workflow=workflow))).gates)
    if waits is None:
        return None
    dead: list[Node] = []
    for node in waits.dead:
        letter = yield from ask(GetDeadLetter(scope=scope, id=node.job_seq))
        if letter is not None and letter.dead_letter.status == "pending_review":
            dead.append(node)
        if len(dead) == MOST_NAMED:
            break
    return WaitingNode(workflow, waits, tuple(dead))


def _reasons(known: KnownJob) -> Iterator[Reason]:
    for row in TABLE:
        if known.waiting.place in row.places:
            for facts in row.facts(known):
                yield Reason(code=row.code, says=row.says.format(**facts), helps=command(row.helps, **facts))


Facts = Mapping[str, object]


class Sentence(NamedTuple):
    """One thing that can be said of a job in one of these places."""

    places: tuple[WaitPlace, ...]
    code: str
    facts: Callable[[KnownJob], Iterable[Facts]]
    """The values of its words, for each time that it is true."""
    says: str
    helps: str = ""


def _if(
    holds: Callable[[KnownJob], object], **words: Callable[[KnownJob], object]
) -> Callable[[KnownJob], Iterable[Facts]]:
    """Said once if this holds, with these words."""
    return lambda known: ({name: word(known) for name, word in words.items()},) if holds(known) else ()


def _pauses(known: KnownJob) -> Iterator[Facts]:
    for pause in known.waiting.pauses:
        kind = "task" if pause.kind == "type" else pause.kind
        by, notes = f" by {pause.by}" if pause.by else "", f": {pause.notes}" if pause.notes else ""
        yield {"kind": kind, "name": pause.name, "by": by, "notes": notes}


def _limit_words(state: LimitState) -> dict[str, object]:
    kind = "task" if state.kind == "type" else "limit" if state.kind == "named" else state.kind
    options = (f"--{'name' if state.kind == 'named' else state.kind}", state.name)
    where = f' in queue "{state.queue}"' if state.queue else ""
    return {
        "what": f'{kind} "{state.name}"{where}',
        "used": state.leases,
        "most": state.running,
        "rate": state.rate,
        "options": (*options, "--queue", state.queue) if state.queue else options,
    }


def _full(known: KnownJob) -> Iterator[Facts]:
    for state in known.waiting.limits:
        if state.running is not None and state.leases >= state.running:
            yield _limit_words(state)


def _used_up(state: LimitState) -> bool:
    return state.rate is not None and state.starts >= state.rate.count


def _rates(known: KnownJob) -> Iterator[Facts]:
    for state in known.waiting.limits:
        if _used_up(state):
            again = (
                "" if state.free_at is None else f"; the next one in {span_between(state.free_at, known.waiting.now)}"
            )
            yield {**_limit_words(state), "again": again}


def _paused_limits(known: KnownJob) -> Iterator[Facts]:
    for state in known.waiting.limits:
        if not _used_up(state) and state.free_at is not None and state.free_at > known.waiting.now:
            yield {**_limit_words(state), "left": span_between(state.free_at, known.waiting.now)}


def _open_breaker(known: KnownJob) -> Iterator[Facts]:
    if (breaker := known.breaker) is not None:
        again = (
            "" if breaker.retry_at is None else f", tried again in {span_between(breaker.retry_at, known.waiting.now)}"
        )
        yield {"name": breaker.name, "state": breaker.state.replace("_", " "), "again": again}


def _dead_nodes(known: KnownJob) -> Iterator[Facts]:
    for node in () if known.node is None else known.node.dead:
        yield {"node": node.name, "letter": node.job_seq}


def _parents(known: KnownJob) -> Iterator[Facts]:
    if known.node is None or known.node.waits is None or not known.node.is_behind("waiting"):
        return
    parents = known.node.waits.parents
    named = [f'"{one.name}" ({"waits itself" if one.waiting else one.status})' for one in parents[:MOST_NAMED]]
    more = f" and {len(parents) - MOST_NAMED} more" if len(parents) > MOST_NAMED else ""
    yield {"parents": f"{', '.join(named)}{more}" if named else "others"}


def _put_off(known: KnownJob) -> bool:
    return known.job.status == "pending" and known.job.error_type in PUT_OFF and known.job.last_error is not None


def _asleep(known: KnownJob) -> Iterator[Facts]:
    last = known.detail.steps[-1] if known.detail is not None and known.detail.steps else None
    if last is not None and last.kind == "sleep" and last.until is not None and last.until > known.waiting.now:
        yield {"step": last.name}


def _is_fresh(known: KnownJob) -> bool:
    """Whether no attempt put it off: it was enqueued for later."""
    detail = known.detail
    return known.job.attempt == 0 or (detail is not None and not detail.attempts and len(detail.steps) > 0)


def _snoozed_itself(known: KnownJob) -> bool:
    last = known.detail.attempts[-1] if known.detail is not None and known.detail.attempts else None
    return last is not None and last.outcome == "snoozed" and last.attempt == known.job.attempt


def _why_later(known: KnownJob) -> str:
    """Which sentence about the future says why a scheduled job is not due; empty: another row says it."""
    if known.waiting.waits_for is not None or known.job.run_at <= known.waiting.now:
        return ""
    if known.job.status == "failed":
        return "rate_limited" if known.job.error_class == "rate_limited" else "retry"
    if _put_off(known):
        return "offered"
    if any(_asleep(known)):
        return "asleep"
    return "delay" if _is_fresh(known) else "snoozed" if _snoozed_itself(known) else "put_off"


def _later(code: str) -> Callable[[KnownJob], Iterable[Facts]]:
    return _if(
        lambda known: _why_later(known) == code, left=lambda known: span_between(known.job.run_at, known.waiting.now)
    )


def _at_key(code: str) -> Callable[[KnownJob], Iterable[Facts]]:
    return lambda k: [words for said, words in line_at_key(k.waiting, k.key_paused_until) if said == code]


def _is_held_for_room(known: KnownJob) -> bool:
    return known.node is None and known.waiting.key_ahead is None


def _signal(known: KnownJob) -> Iterator[Facts]:
    if (signal := known.waiting.waits_for) is not None:
        key = f' with the key "{signal.key}"' if signal.key else ""
        yield {"name": signal.name, "key": key, "until": f"{signal.until:%Y-%m-%d %H:%M:%S} UTC"}


def _letter(status: str) -> Callable[[KnownJob], Iterable[Facts]]:
    return _if(
        lambda known: known.letter is not None and known.letter.status == status,
        letter=lambda known: known.job.seq,
        again=lambda known: known.letter and known.letter.reprocessed_as,
    )


def _is_lost(known: KnownJob) -> bool:
    until = known.waiting.worker_until
    return until is None or until <= known.waiting.now


def _running(k: KnownJob) -> str:
    """How it runs: the code of the one sentence that says so."""
    return "alone" if k.waiting.suspect else "isolated" if k.task and k.task.definition.isolated else "running"


def _runs(code: str) -> Callable[[KnownJob], Iterable[Facts]]:
    return _if(lambda k: k.job.started_at is not None and _running(k) == code, span=lambda k: k.ago(k.job.started_at))


def _ended(known: KnownJob) -> Iterable[Facts]:
    return ({"ago": known.ago(known.job.finished_at)},)


WAITS: tuple[WaitPlace, ...] = ("ready", "scheduled", "held")
NEXT: tuple[WaitPlace, ...] = ("ready", "scheduled")
READY: tuple[WaitPlace, ...] = ("ready",)
LATER: tuple[WaitPlace, ...] = ("scheduled",)
HELD: tuple[WaitPlace, ...] = ("held",)
LEASED: tuple[WaitPlace, ...] = ("leased",)
DEAD: tuple[WaitPlace, ...] = ("dead",)

TABLE: tuple[Sentence, ...] = (
    Sentence(("completed",), "completed", _ended, "it does not wait: it completed {ago} ago"),
    Sentence(("cancelled",), "cancelled", _ended, "it does not wait: it was cancelled {ago} ago"),
    Sentence(DEAD, "pending_review", _letter("pending_review"),
        "it does not run again by itself: it is dead, and its dead letter {letter} waits for a person",
        "fairlane dead-letters reprocess {letter}, or discard or resolve it"),
    Sentence(DEAD, "retried", _letter("retried"),
        "it is dead; its dead letter {letter} was reprocessed as job {again}"),
    Sentence(DEAD, "resolved", _letter("resolved"), "it is dead; somebody resolved its dead letter {letter}"),
    Sentence(DEAD, "discarded", _letter("discarded"), "it is dead; somebody discarded its dead letter {letter}"),
    Sentence(LEASED, "worker_lost", _if(_is_lost),
        "the worker that claimed it has not been heard of for longer than its lease: a live worker takes the job back",
        "fairlane workers list; start a worker if none is live"),
    Sentence(LEASED, "stopping", _if(lambda k: k.job.cancel_requested), "it was asked to stop and has not ended yet"),
    Sentence(LEASED, "claimed", _if(lambda k: k.job.started_at is None),
        "a worker has claimed it and it begins when a slot is free there"),
    Sentence(LEASED, "alone", _runs("alone"),
        "it is running, for {span}, alone in a process: an attempt before ended with its process"),
    Sentence(LEASED, "isolated", _runs("isolated"), "it is running, for {span}, in a process of its own"),
    Sentence(LEASED, "running", _runs("running"), "it is running, for {span}"),
    Sentence(WAITS, "paused", _pauses, '{kind} "{name}" is paused{by}{notes}', "fairlane {kind}s resume {name}"),
    Sentence(HELD, "dead_parent", _dead_nodes,
        'it waits for node "{node}" of its workflow, which is dead: it goes on when somebody deals with dead letter '
        "{letter}", "fairlane dead-letters reprocess {letter}, or resolve it; discarding it cancels what waits"),
    Sentence(HELD, "parents", _parents, "it waits for nodes of its workflow: {parents}"),
    Sentence(HELD, "not_known",
        _if(lambda k: k.node and not k.node.waits, workflow=lambda k: k.node and k.node.workflow),
        f"which nodes of its workflow it waits for is not known here: the workflow has more than {MOST_NODES:,}",
        "fairlane workflows show {workflow}"),
    Sentence(HELD, "parents_ended", _if(lambda k: k.node and k.node.is_behind("opening", "open")),
        "the nodes that it waited for have ended: a live worker lets it go on"),
    Sentence(HELD, "not_needed", _if(lambda k: k.node and k.node.is_behind(*SHUT)),
        "the nodes that it waited for have ended so that it does not run: a live worker ends it"),
    Sentence(HELD, "key_dead", _at_key("key_dead"),
        "it is {which} at {key}, which runs {runs}; dead letter {holder} holds the line until somebody deals with it",
        "fairlane dead-letters reprocess {holder}, or resolve or discard it"),
    Sentence(HELD, "key_again", _at_key("key_again"), "it is {which} at {key}, which runs {runs}; {holders}",
        "fairlane jobs free-place {holder}, or cancel that job"),
    Sentence(HELD, "key_ordered", _at_key("key_ordered"), "it is {which} at {key}, which runs {runs}; {holders}",
        "fairlane jobs free-place {holder}, if that hangs"),
    Sentence(HELD, "key", _at_key("key"), "it is {which} at {key}, which runs {runs}; {holders}",
        "fairlane limits set --key {name} --running N, or fairlane jobs free-place {holder}"),
    Sentence(HELD, "key_closed", _at_key("key_closed"), "it is {which} at {key}, which has no places",
        "fairlane limits set --key {name} --running N"),
    Sentence(HELD, "key_paused", _at_key("key_paused"),
        "it is {which} at {key}, and keys of that name are paused for {left}"),
    Sentence(HELD, "key_rate", _at_key("key_rate"), "it is {which} at {key}, and waits for its rate of {rate}",
        "fairlane limits set --key {name} --rate N/SPAN"),
    Sentence(HELD, "key_free", _at_key("key_free"), "it is {which} at {key}: a live worker lets it in"),
    Sentence(HELD, "tenant_full",
        _if(lambda k: _is_held_for_room(k) and k.waiting.waiting_limit is not None,
            most=lambda k: k.waiting.waiting_limit, queue=lambda k: k.job.queue, tenant=lambda k: k.job.tenant),
        'its tenant is at its limit of {most} jobs in queue "{queue}"; it continues when there is room',
        "fairlane limits set --tenant {tenant} --queue {queue} --waiting N"),
    Sentence(HELD, "limit_lifted", _if(lambda k: _is_held_for_room(k) and k.waiting.waiting_limit is None),
        "it was held at its tenant's limit, which is lifted: a live worker lets it go on"),
    Sentence(NEXT, "needs",
        _if(_put_off, what=lambda k: PUT_OFF[k.job.error_type or ""], ago=lambda k: k.ago(k.job.last_error_at),
            error=lambda k: k.job.last_error),
        "it {what} and has been put off, uncharged, for {ago}: {error}",
        "start workers that have what it needs, or cancel it"),
    Sentence(LATER, "signal", _signal, 'it waits for the signal "{name}"{key} until {until}',
        "fairlane signals emit {name}"),
    Sentence(LATER, "retry", _later("retry"), "it failed and is tried again in {left}"),
    Sentence(LATER, "rate_limited", _later("rate_limited"),
        "what it calls limits its rate: it is tried again in {left}"),
    Sentence(LATER, "asleep",
        lambda k: [{**words, **later} for words in _asleep(k) for later in _later("asleep")(k)],
        'it sleeps in its step "{step}" and goes on in {left}'),
    Sentence(LATER, "delay", _later("delay"), "it is scheduled in {left}"),
    Sentence(LATER, "snoozed", _later("snoozed"), "its last attempt put it off, uncharged: it runs again in {left}"),
    Sentence(LATER, "offered", _later("offered"), "it is offered to a worker again in {left}"),
    Sentence(LATER, "put_off", _later("put_off"),
        "it was put off before it ran, as by an open breaker, and is due in {left}; by what is not kept"),
    Sentence(LATER, "due", _if(lambda k: k.job.run_at <= k.waiting.now), "it is due: a live worker makes it ready"),
    Sentence(READY, "full", _full, "{what} has {used} of {most} running", "fairlane limits set {options} --running N"),
    Sentence(READY, "rate", _rates, "{what} has used its rate of {rate}{again}",
        "fairlane limits set {options} --rate N/SPAN"),
    Sentence(READY, "limit_paused", _paused_limits, "{what} is paused for {left}"),
    Sentence(NEXT, "breaker", _open_breaker, 'breaker "{name}" is {state}{again}', "fairlane breakers reset {name}"),
    Sentence(WAITS, "no_worker", _if(lambda k: not k.waiting.workers, queue=lambda k: k.job.queue),
        'no live worker serves queue "{queue}"', "fairlane worker --queues {queue}"),
    Sentence(WAITS, "no_task",
        _if(lambda k: k.waiting.workers and not k.waiting.knowing, type=lambda k: k.job.type,
            workers=lambda k: k.waiting.workers),
        'no live worker knows task "{type}"; {workers} serve its queue', "start workers with the code that defines it"),
    Sentence(READY, "suspect", _if(lambda k: k.waiting.suspect),
        "an attempt of it ended with its process: it runs alone, in a process of its own"),
    Sentence(NEXT, "task_not_known", _if(lambda k: k.task is None and k.job.type not in BUILT_IN_TASKS),
        "its task is not registered here: whether a breaker, or limits of its code, keep it is not known",
        "--app MODULE:NAME, where it is registered"),
    Sentence(READY, "in_line", lambda k: _in_line(k.waiting), "it is ready: {place}"),
)  # fmt: skip
"""Every sentence, the strongest first."""


def _in_line(waiting: Waiting) -> Iterator[Facts]:
    parts = [f"{_count(waiting.ahead)} of its tenant before it"]
    if waiting.tenants:
        # Not that they take turns with it: some of them may be paused or at a limit.
        others = "other tenant has" if waiting.tenants == 1 else "other tenants have"
        parts.append(f"{_count(waiting.tenants)} {others} ready jobs, too")
    if waiting.more_urgent:
        parts.append(f"{_count(waiting.more_urgent)} more urgent")
    yield {"place": ", ".join(parts)}


def _count(number: int) -> str:
    return f"{number}" if number < TENANT_COUNT_CAP else f"{TENANT_COUNT_CAP} or more"
