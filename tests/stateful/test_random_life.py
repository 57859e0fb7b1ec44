"""A random walk through all operations: the store in memory and the model answer the same.

Rough counts above their cap are estimates, so the walk asks for rough ones below it."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from fairlane.core import ops
from fairlane.core.ids import Seq
from fairlane.core.job import DEAD_LETTER_STATUSES, STATUSES, Lease
from fairlane.core.outcome import Cancelled, Completed, Crashed, Died, Failure, Released, Retried, Snoozed
from fairlane.stores.sqlite import MemoryStore
from fairlane.testing.conformance.samples import NOON, Making
from tests.model import Model

TENANTS = ("acme", "bolt", "coop", "system")
QUEUES = ("critical", "default")
TYPES = ("mail.send", "report.make", "file.drop")

COUNTED: tuple[dict[str, Any], ...] = (
    {},
    {"rough": True},
    {"rough": True, "parts": ("queues", "dead_letters")},
    {"parts": ("ended",)},
    {"parts": ("queues",)},
)


class Wanderer:
    """Draws one operation after another, most of them sensible, some of them stale, foreign or repeated."""

    def __init__(self, seed: int) -> None:
        self.rng, self.making, self.now = random.Random(seed), Making(seed), NOON
        self.specs: list[Any] = []
        self.leases: list[Any] = []
        self.workers = [self.making.worker_id() for _ in range(3)]
        self.claim_no, self.top_seq = 0, 1
        self.marks: list[ops.Mark] = []
        self.letters: list[int] = []
        self.last_turn: ops.Turn | None = None
        self.begun: Lease | None = None
        steps = {self.enqueue: 6, self.turn: 20, self.repeat_turn: 1, self.renew: 7, self.retire: 1, self.promote: 1}
        steps |= {self.reclaim: 2, self.act: 3, self.act_on_letter: 4, self.read: 5, self.retain: 1}
        steps |= {self.interrupt: 2, self.tell: 3, self.lose: 1}
        self.planned: list[Callable[[], Any]] = []
        """What comes next of all: the rest of what chance alone would hardly ever put together."""
        self.steps: list[Callable[[], Any]] = list(steps)
        self.weights = list(steps.values())

    def next(self) -> Any:
        if self.planned:
            return self.planned.pop(0)()
        if self.rng.random() < 0.4:
            self.now += timedelta(seconds=self.rng.choice([0.000001, 0.5, 2, 2, 5, 5, 10, 25, 70]))
        return self.rng.choices(self.steps, self.weights)[0]()

    def learn(self, op: Any, answer: Any) -> None:
        if isinstance(op, ops.Enqueue):
            self.top_seq = max([self.top_seq, *(receipt.seq for receipt in answer.receipts)])
        if isinstance(op, ops.PageDeadLetters):
            self.letters += [letter.id for letter in answer.dead_letters]
        if isinstance(op, ops.Turn):
            self.leases = (self.leases + [(op.worker, lease) for lease in answer.leases])[-40:]
            self.marks = (self.marks + list(answer.marks))[-6:]

    def some(self, *choices: Any) -> Any:
        return self.rng.choice(choices)

    def scope(self) -> ops.Scope:
        return ops.ALL_TENANTS if self.rng.random() < 0.7 else ops.only(self.some(*TENANTS))

    def job_id(self) -> Any:
        return self.some(*self.specs[-60:]).id if self.specs and self.rng.random() < 0.95 else self.making.job_id()

    def enqueue(self) -> ops.Enqueue:
        jobs = []
        for _ in range(self.rng.randint(0, 4)):
            if self.specs and self.rng.random() < 0.1:
                jobs.append(self.some(*self.specs[-8:]))
                continue
            options: dict[str, Any] = {"id": self.job_id()} if self.rng.random() < 0.04 else {}
            options |= {
                "tenant": self.some(*TENANTS),
                "queue": self.some(*QUEUES),
                "priority": self.some(0, 5, 5, 10),
                "priority_scope": self.some("queue", "queue", "tenant"),
                "idempotency_key": self.some(None, None, f"key-{self.rng.randint(0, 30)}"),
                "dedup_key": self.some(None, None, f"dedup-{self.rng.randint(0, 4)}"),
                "correlation_id": self.some(None, "order-1", "order-2"),
                "parent_id": self.some(None, self.job_id()),
                "category": self.some(None, "sync"),
                "created_by": self.some(None, "ada"),
                "refs": self.some({}, {"order": 7}),
                "max_attempts": self.some(1, 2, 5),
                "timeout_s": self.some(None, None, 20.0),
                "run_at": self.some(None, None, None, self.now + timedelta(seconds=self.some(-5, 0, 3, 90))),
                "delay_s": self.some(None, None, 0.0, 0.25, 30.0),
            }
            jobs.append(self.making.job(self.some(*TYPES), payload=self.some('{"a":1}', '{"b":"ü"}'), **options))
        self.specs += jobs
        return ops.Enqueue(now=self.now, jobs=tuple(jobs), capacity=self.some(None, None, None, None, 40))

    def turn(self) -> ops.Turn:
        self.claim_no += 1
        worker = self.some(*self.workers)
        mine = [lease for holder, lease in self.leases[-15:] if holder == worker]
        met = mine if mine and self.rng.random() < 0.9 else [lease for _, lease in self.leases]
        self.last_turn = ops.Turn(
            now=self.now,
            worker=worker,
            claim_no=self.claim_no,
            outcomes=tuple(self.outcome(self.some(*met)) for _ in range(self.some(0, 0, 1, 2)) if met),
            starts=tuple(self.start(self.some(*met)) for _ in range(self.some(0, 1, 2)) if met),
            wants=tuple(self.want() for _ in range(self.some(0, 1, 1, 2))),
            waiting=self.some(True, False),
            promote_limit=self.some(0, 1, 1000),
            reclaim_limit=self.some(0, 1, 100),
        )
        return self.last_turn

    def repeat_turn(self) -> ops.Turn:
        return self.last_turn or self.turn()

    def outcome(self, lease: Lease) -> Any:
        failure = Failure(error_class="transient", error_type="IOError", message="x" * 2100, fingerprint="f")
        ended: dict[str, Any] = {
            "seq": lease.seq,
            "attempt": lease.attempt - (self.rng.random() < 0.1),
            "claim_no": lease.claim_no + (self.rng.random() < 0.05),
            "ran_s": self.some(None, 0.5),
            "ended_ago_s": self.some(0.0, 0.01),
        }
        return self.some(
            Completed(**ended, result=self.some(None, Raw(b'{"ok":true}'))),
            Retried(**ended, failure=failure, delay_s=self.some(0.0, 2.0, 60.0)),
            Died(**ended, failure=failure, charged=self.some(True, False)),
            Cancelled(**ended, reason=self.some(None, "no need")),
            Snoozed(**ended, delay_s=5.0),
            Released(**ended),
            Crashed(**ended),
        )

    def start(self, lease: Lease) -> ops.Start:
        return ops.Start(
            seq=lease.seq,
            attempt=lease.attempt,
            claim_no=lease.claim_no,
            timeout_s=10.0,
            alone=self.some(True, True, False),
        )

    def want(self) -> ops.Want:
        takes = []
        for mark in self.rng.sample(self.marks, min(len(self.marks), self.some(0, 0, 1, 3))):
            after = self.some(None, mark)
            takes.append(
                ops.Take(
                    queue=mark.queue, band=mark.band, tenant=mark.tenant, limit=self.rng.randint(0, 3), after=after
                )
            )
        return ops.Want(
            lane=self.some("fast", "general"),
            queues=self.some(QUEUES, QUEUES[::-1], QUEUES[:1], (*QUEUES, "critical")),
            limit=self.rng.randint(0, 6),
            start=self.rng.randint(0, 4),
            types=self.some(None, None, TYPES[:1], TYPES[1:]),
            takes=tuple(takes),
            discover=self.some(True, True, False),
            cursor=self.some("", *TENANTS, "b"),
            look=self.some(1, 2, 5, 1000),
            timeout_s=self.some(30.0, 300.0),
        )

    def renew(self) -> ops.Renew:
        return ops.Renew(now=self.now, worker=self.some(*self.workers), lease_s=self.some(15.0, 60.0, 600.0))

    def retire(self) -> ops.Retire:
        return ops.Retire(now=self.now, worker=self.some(*self.workers))

    def promote(self) -> ops.Promote:
        return ops.Promote(now=self.now, limit=self.some(0, 1, 1000))

    def reclaim(self) -> ops.Reclaim:
        return ops.Reclaim(now=self.now, limit=self.some(0, 1, 2, 100))

    def lose(self) -> Any:
        """A worker claims, begins a job and is not heard of again, perhaps until the job is given up; somebody may ask
        that the job is cancelled."""
        self.planned = [self.claim, self.begin, *self.some((), (self.cancel_begun,)), self.late] * self.some(1, 3)
        return replace(self.renew(), worker=self.workers[0])

    def claim(self) -> ops.Turn:
        wide = replace(self.want(), queues=QUEUES, limit=20, start=20, types=None, takes=(), discover=True, look=1000)
        return replace(self.turn(), worker=self.workers[0], outcomes=(), starts=(), wants=(wide,))

    def begin(self) -> Any:
        if not self.leases:
            return self.turn()
        worker, self.begun = max(self.leases[-20:], key=lambda held: held[1].crashes)
        start = replace(self.start(self.begun), alone=True)
        return replace(self.turn(), worker=worker, outcomes=(), starts=(start,), wants=())

    def cancel_begun(self) -> Any:
        return replace(self.act(), id=self.begun.id) if self.begun else self.turn()

    def late(self) -> Any:
        self.planned.insert(0, lambda: replace(self.renew(), worker=self.workers[0]))
        self.now += timedelta(seconds=601)
        return self.some(self.reclaim, lambda: replace(self.turn(), reclaim_limit=100))()

    def act(self) -> Any:
        who: dict[str, Any] = {
            "now": self.now,
            "scope": self.scope(),
            "id": self.job_id(),
            "by": "ada",
            "notes": self.some(None, "so"),
        }
        return self.some(
            ops.Cancel(**who),
            ops.Fail(**who, reason="no", retry_delay_s=self.some(None, 0.0, 9.0)),
            ops.Bury(**who, reason="enough"),
            ops.Reset(**who),
        )

    def interrupt(self) -> Any:
        kind, name = self.some(("queue", QUEUES[0]), ("type", TYPES[0]), ("tenant", TENANTS[0]), ("tenant", TENANTS[1]))
        who: dict[str, Any] = {"now": self.now, "kind": kind, "name": name, "by": "ada"}
        begun = {lease.seq: lease for _, lease in self.leases[-4:]}.values()
        lapse = ops.Lapse(now=self.now, worker=self.some(*self.workers), starts=tuple(self.start(one) for one in begun))
        return self.some(ops.PauseClaims(**who), ops.ResumeClaims(**who), ops.ResumeClaims(**who), lapse)

    def tell(self) -> Any:
        worker, lease = self.some(*self.leases[-10:]) if self.leases else (self.workers[0], None)
        figures = ops.StatRow(minute=NOON, type="t", queue="q", tenant="a", completed=1, run_buckets={1: 2})
        told = [
            ops.AddStats(now=self.now, worker=worker, batch=self.rng.randint(1, 9), rows=(figures,)),
            ops.ReadStats(now=self.now, since=NOON, until=self.now + timedelta(days=1)),
            ops.ListWorkers(now=self.now),
        ]
        if lease is not None:
            said: dict[str, Any] = {"progress": self.some(None, 0.5), "log": self.some((), ("a", "b"))}
            told += [
                ops.Note(
                    now=self.now, worker=worker, seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, **said
                )
            ] * 3
        return self.some(*told)

    def act_on_letter(self) -> Any:
        letter = self.some(self.rng.randint(1, self.top_seq), *self.letters[-3:])
        who: dict[str, Any] = {"now": self.now, "scope": self.scope(), "id": Seq(letter)}
        who |= {"by": self.some("ada", "bob"), "notes": self.some(None, "so")}
        new_job_id = self.job_id() if self.rng.random() < 0.2 else self.making.job_id()
        reprocess = ops.Reprocess(**who, new_job_id=new_job_id)
        acts = (reprocess, reprocess, ops.Discard(**who), ops.Resolve(**who), ops.Acknowledge(**who))
        self.planned = [lambda: self.some(*acts)] if self.rng.random() < 0.4 else []
        return self.some(*acts)

    def read(self) -> Any:
        seen: dict[str, Any] = {"now": self.now, "scope": self.scope()}
        page = seen | {
            "limit": self.some(0, 1, 3, 500),
            "before": self.some(None, self.rng.randint(0, self.top_seq + 2)),
        }
        jobs = ops.JobFilter(
            statuses=tuple(self.rng.sample(STATUSES, self.some(0, 0, 1, 3))),
            queue=self.some(None, None, *QUEUES),
            type=self.some(None, None, TYPES[0]),
            category=self.some(None, None, "sync"),
            correlation_id=self.some(None, None, "order-1", str(self.job_id())),
            parent_id=self.some(None, None, None, self.job_id()),
            created_by=self.some(None, None, "ada"),
            idempotency_key=self.some(None, None, None, str(self.job_id()), "key-1"),
            enqueued_from=self.some(None, None, NOON + (self.now - NOON) / 2),
            enqueued_before=self.some(None, None, NOON + (self.now - NOON) / 2),
            started_before=self.some(None, None, None, self.now, NOON + (self.now - NOON) / 2),
        )
        letters = ops.DeadLetterFilter(
            status=self.some(None, None, *DEAD_LETTER_STATUSES),
            acknowledged=self.some(None, None, True, False),
            queue=self.some(None, *QUEUES),
            category=self.some(None, None, "sync"),
            error_class=self.some(None, None, "transient"),
            error_type=self.some(None, None, "Buried"),
            correlation_id=self.some(None, None, "order-1"),
        )
        action = self.some(None, None, "job_bury", "job_dlq_reprocess_success")
        return self.some(
            ops.GetJob(**seen, id=self.job_id()),
            ops.GetStatus(**seen, id=self.job_id()),
            ops.PageJobs(**page, where=jobs),
            ops.PageJobs(**page),
            ops.GetDeadLetter(**seen, id=Seq(self.rng.randint(1, self.top_seq))),
            ops.PageDeadLetters(**page, where=letters),
            ops.GetStats(**seen, **self.counted(self.some(2, 100_000))),
            ops.PageAudit(**page, action=action, target=self.some(None, None, f"job:{self.job_id()}")),
        )

    def counted(self, cap: int) -> dict[str, Any]:
        how = COUNTED[self.top_seq % len(COUNTED)]
        return {"cap": 100_000 if how.get("rough") else cap, **how}

    def retain(self) -> Any:
        ages = {
            "finished_before": self.now - timedelta(seconds=200),
            "closed_before": self.now - timedelta(seconds=200),
        }
        if self.rng.random() < 0.02:
            return ops.Purge(now=self.now)
        if self.rng.random() < 0.3:
            before = self.now - timedelta(seconds=self.some(0, 100))
            return ops.DropResults(
                now=self.now, type="mail.send", finished_before=before, limit=self.some(0, 1, 3, 1000)
            )
        by_queue = self.some({}, {}, {"default": self.now - timedelta(seconds=self.some(50, 400))})
        return ops.Retain(
            now=self.now,
            limit=self.some(0, 1, 3, 1000),
            by_queue=by_queue,
            examine=self.some(1, 3, 100),
            **self.some({}, ages, ages),
        )


@pytest.mark.requirement("Q4")
@pytest.mark.parametrize("seed", range(20))
def test_a_random_life_looks_the_same_in_memory_and_in_the_model(seed: int) -> None:
    store, model, wanderer = MemoryStore(), Model(), Wanderer(seed)
    everything = (
        ops.PageJobs(scope=ops.ALL_TENANTS, limit=200),
        ops.GetStats(scope=ops.ALL_TENANTS),
        ops.PageDeadLetters(scope=ops.ALL_TENANTS, limit=200),
        ops.PageAudit(scope=ops.ALL_TENANTS, limit=200),
    )
    for step in range(600):
        op = wanderer.next()
        expected = model.run(op)
        assert store.run(op) == expected, f"step {step}: {op}"
        wanderer.learn(op, expected)
        if step % 50 == 49:
            for question in everything:
                asked = type(question)(scope=question.scope, now=wanderer.now)
                assert store.run(asked) == model.run(asked), f"step {step}"


def test_the_walk_reaches_every_place_and_every_refusal() -> None:
    """A walk that never meets a case proves nothing about it."""
    met: set[str] = set()
    for seed in range(20):
        model, wanderer = Model(), Wanderer(seed)
        for _ in range(600):
            op = wanderer.next()
            answer = model.run(op)
            wanderer.learn(op, answer)
            met |= {f"{type(op).__name__}:{part}" for part in _parts(answer)}
    assert not EXPECTED - met


EXPECTED = {f"Enqueue:{word}" for word in ("created", "replayed", "duplicate", "conflict", "full")}
EXPECTED |= {f"Turn:{word}" for word in ("leases", "refused", "cancels", "marks", "reclaimed:ready", "reclaimed:dead")}
EXPECTED |= {f"Reclaim:reclaimed:{word}" for word in ("ready", "dead", "cancelled")}
EXPECTED |= {
    f"{act}:{word}" for act in ("Cancel", "Fail", "Bury", "Reset") for word in ("not_found", "not_allowed", "done")
}
EXPECTED |= {f"{act}:{word}" for act in ("Discard", "Resolve", "Reprocess") for word in ("not_allowed", "done")}
EXPECTED |= {"Reprocess:repeated", "Acknowledge:done", "Lapse:reclaimed:ready"}


def _parts(answer: Any) -> set[str]:
    if isinstance(answer, ops.EnqueueResult):
        return {receipt.disposition for receipt in answer.receipts} | ({"full"} if answer.full else set())
    if isinstance(answer, ops.JobAct | ops.DeadLetterAct):
        repeated = {"repeated"} if getattr(answer, "repeated", False) else set()
        return {answer.refused or "done"} | repeated
    parts = {name for name in ("leases", "refused", "cancels", "marks") if getattr(answer, name, ())}
    return parts | {f"reclaimed:{taken.became}" for taken in getattr(answer, "reclaimed", ())}
