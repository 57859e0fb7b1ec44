"""Replays a spool: its jobs go to the store in their order, each once, and leave the spool when the store has them.

A replay that dies between the two sends the same ids again, and the store answers that it has them. A job that the
store refuses, for a limit, a pause or its capacity, stays in the spool with the reason and is tried again in the next
pass; a job whose key another one holds is that one's duplicate, and an event records it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from msgspec import Struct

from fairlane.core.clock import Clock
from fairlane.core.ids import JobId
from fairlane.core.ops import AddEvents, Enqueue, EnqueueResult, LimitHit
from fairlane.core.ops.events import EventDraft
from fairlane.core.ops.pauses import Pause
from fairlane.errors import FairlaneError, StoreRefused
from fairlane.stores.base import Store
from fairlane.stores.failover.spool import Spool, SpooledJob

BATCH = 1_000
"""Jobs that one replayed enqueue carries."""


class Replayed(Struct, frozen=True, kw_only=True):
    """What became of one batch."""

    jobs: int
    duplicates: tuple[tuple[JobId, JobId], ...] = ()
    """A job whose key another one holds, and that one."""
    refused: tuple[tuple[JobId, str], ...] = ()
    """Jobs refused for another reason than at the last replay."""


class Replay:
    """Passes over one spool. `on_answer` is called whenever the store has taken or refused jobs."""

    def __init__(
        self,
        primary: Store,
        spool: Spool,
        clock: Clock,
        on_answer: Callable[[], object],
        on_news: Callable[[Replayed], object],
    ) -> None:
        self._primary, self._spool, self._clock = primary, spool, clock
        self._on_answer, self._on_news = on_answer, on_news
        self.is_ended = False

    def run_pass(self) -> None:
        """One pass over the spool, unless another process is at it."""
        with self._spool.replaying() as ours:
            if not ours:
                return
            self._spool.release_abandoned()
            after, refusals = 0, Refusals()
            while not self.is_ended and (jobs := self._spool.page(after, BATCH)):
                after = jobs[-1].seq
                refusals.done.clear()
                for _, group in groupby(jobs, key=lambda job: job.terms):
                    self._send(list(group), refusals)
                self._on_answer()
                self._note_refused(jobs, refusals)

    def _send(self, group: Sequence[SpooledJob], refusals: Refusals) -> None:
        """Enqueue jobs of equal terms. A call that is refused is sent again without the jobs that were the reason."""
        pending = [group]
        while pending:
            jobs = [job for job in pending.pop() if refusals.admits(job)]
            if not jobs:
                continue
            now, terms = self._clock.now(), jobs[0].terms
            op = Enqueue(jobs=tuple(job.as_of(now) for job in jobs), capacity=terms.capacity, limits=terms.limits)
            self._spool.note_sent(jobs)
            try:
                result = self._primary.run(op)
            except Exception as error:
                if isinstance(error, FairlaneError) and not isinstance(error, StoreRefused):
                    raise
                if len(jobs) == 1:
                    refusals.jobs[jobs[0].seq] = error.why if isinstance(error, StoreRefused) else repr(error)
                half = len(jobs) // 2
                pending += [jobs[half:], jobs[:half]]
                continue
            if result.receipts:
                self._finish(jobs, result, refusals)
                continue
            beyond = refusals.learn(result, jobs, terms.capacity)
            later = {job.seq for job in beyond}
            first = [job for job in jobs if job.seq not in later]
            if not beyond and all(map(refusals.admits, jobs)):
                refusals.jobs.update((job.seq, "the store refused its call") for job in jobs)
            pending += [beyond, first]

    def _finish(self, jobs: Sequence[SpooledJob], result: EnqueueResult, refusals: Refusals) -> None:
        done, duplicates = [], []
        for job, receipt in zip(jobs, result.receipts, strict=True):
            if receipt.disposition == "conflict":
                refusals.jobs[job.seq] = "its id is taken by a job with other content"
                continue
            done.append(job)
            if receipt.disposition == "duplicate":
                duplicates.append((job.spec, receipt))
        if duplicates:
            # Before the jobs leave the spool: who dies in between records it again rather than never.
            self._primary.run(
                AddEvents(
                    events=tuple(
                        EventDraft(
                            kind="spooled_job_duplicate",
                            tenant=spec.tenant,
                            data={"job": str(spec.id), "existing": str(receipt.id), "key": receipt.key},
                        )
                        for spec, receipt in duplicates
                    )
                )
            )
        self._spool.remove(done)
        refusals.done.update(job.seq for job in done)
        found = tuple((spec.id, receipt.id) for spec, receipt in duplicates)
        self._on_news(Replayed(jobs=len(done) - len(found), duplicates=found))

    def _note_refused(self, jobs: Iterable[SpooledJob], refusals: Refusals) -> None:
        reasons = [(job, reason) for job in jobs if (reason := refusals.reason(job)) not in (None, job.refused)]
        if reasons:
            self._spool.refuse({job.seq: reason for job, reason in reasons})
            refused = tuple((job.spec.id, reason) for job, reason in reasons)
            self._on_news(Replayed(jobs=0, refused=refused))


class Refusals:
    """What the primary refused in one pass. Later jobs of the same line are not sent, so that it keeps its order."""

    def __init__(self) -> None:
        self.jobs: dict[int, str] = {}
        self.done: set[int] = set()
        """Jobs of the page that the store has."""
        self._lines: dict[tuple[str, str], str] = {}
        self._pauses: list[Pause] = []
        self._full: str | None = None

    def admits(self, job: SpooledJob) -> bool:
        return self.reason(job) is None

    def reason(self, job: SpooledJob) -> str | None:
        """Why it stays in the spool; None: nothing is known against it."""
        spec = job.spec
        if job.seq in self.done:
            return None
        if job.seq in self.jobs:
            return self.jobs[job.seq]
        if (reason := self._lines.get((spec.tenant, spec.queue))) is not None:
            return reason
        for pause in self._pauses:
            if {"queue": spec.queue, "type": spec.type, "tenant": spec.tenant}[pause.kind] == pause.name:
                return f'{pause.kind} "{pause.name}" is paused and refuses new jobs'
        return self._full

    def learn(self, result: EnqueueResult, jobs: Sequence[SpooledJob], capacity: int | None) -> Sequence[SpooledJob]:
        """Take in why a call was refused; returns jobs that may fit when the others have been sent."""
        if result.paused is not None:
            self._pauses.append(result.paused)
            return ()
        if result.refused is not None:
            return self._learn_limit(result.refused, jobs)
        room = max((capacity or 0) - (result.depth or 0), 0)
        if 0 < room < len(jobs):
            return jobs[room:]
        self._full = f"the store has its capacity of {capacity} jobs"
        return ()

    def _learn_limit(self, hit: LimitHit, jobs: Sequence[SpooledJob]) -> Sequence[SpooledJob]:
        line = [job for job in jobs if (job.spec.tenant, job.spec.queue) == (hit.tenant, hit.queue)]
        if hit.cause == "payload_bytes":
            for job in line:
                if len(bytes(job.spec.payload)) > hit.limit:
                    self.jobs[job.seq] = f'its payload is larger than the {hit.limit} bytes of tenant "{hit.tenant}"'
            return ()
        room = max(hit.limit - hit.found, 0)
        if 0 < room < len(line):
            return line[room:]
        self._lines[hit.tenant, hit.queue] = (
            f'tenant "{hit.tenant}" is at its limit of {hit.limit} jobs in queue "{hit.queue}"'
        )
        return ()
