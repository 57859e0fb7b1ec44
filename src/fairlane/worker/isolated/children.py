"""Keeps child processes ready for isolated attempts; each runs one attempt at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from fairlane.client.context import NoteTaker, StepStore
from fairlane.client.logs import GuardedLogger
from fairlane.core.job import Lease
from fairlane.core.ops import Op
from fairlane.core.outcome import Outcome
from fairlane.errors import StoreError
from fairlane.worker.isolated.frames import (
    READY,
    ProgressNote,
    StepQuestion,
    aread_frame,
    frame,
    read_answer,
    read_question,
    write_call,
    write_reply,
)

log = GuardedLogger("fairlane.worker")

START_S = 60.0
KILL_AFTER_S = 2.0
JOBS_EACH = 500
"""A child is replaced after this many attempts: what tasks leak does not accumulate."""
STARTING = 2
"""Children that start at the same time. After a crash every slot may need one; that many interpreters starting
together would all be slow, and the first that is ready can serve the others."""


class ChildDied(Exception):
    """The process of an attempt ended under it."""

    def __init__(self, code: int | None) -> None:
        if code is not None and code < 0:
            name = signal.Signals(-code).name if -code in signal.Signals.__members__.values() else str(-code)
            super().__init__(f"its process was ended by {name}")
        else:
            super().__init__(f"its process exited with code {code}")


class ChildNotStarted(Exception):
    """No process could be started for an attempt: nothing has run, and the job is not charged."""


class Child:
    """One child process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.jobs = 0

    async def run(self, lease: Lease, notes: NoteTaker, decided: Callable[[], None], steps: StepStore) -> Outcome:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.jobs += 1
        outcome: Outcome | None = None
        with contextlib.suppress(ConnectionError):
            self.process.stdin.write(frame(write_call(lease)))
            await self.process.stdin.drain()
        try:
            while (body := await aread_frame(self.process.stdout)) is not None:
                answer = read_answer(body)
                if isinstance(answer, ProgressNote):
                    notes.take(lease, progress=answer.progress, line=answer.line)
                    continue
                if isinstance(answer, StepQuestion):
                    await self._reply(read_question(answer, steps.worker), steps)
                    continue
                outcome, is_last = answer
                if is_last:
                    return outcome
                decided()
        except asyncio.CancelledError:
            if outcome is None:
                raise
        if outcome is None:
            raise ChildDied(await self.process.wait())
        log.error("job %s (%s): its hooks did not end; its outcome stands", lease.id, lease.type)
        self.jobs = JOBS_EACH
        return outcome

    async def _reply(self, op: Op[Any], steps: StepStore) -> None:
        """Answer a question about the steps of its attempt."""
        try:
            reply = write_reply(await steps.arun(op))
        except StoreError as error:
            reply = write_reply({"store_error": str(error)})
        assert self.process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self.process.stdin.write(frame(reply))
            await self.process.stdin.drain()

    async def kill(self) -> None:
        """SIGTERM, then SIGKILL, to its whole process group."""
        for how, patience_s in ((signal.SIGTERM, KILL_AFTER_S), (signal.SIGKILL, None)):
            if self.process.returncode is None:
                try:
                    os.killpg(self.process.pid, how)
                except ProcessLookupError:
                    break
                try:
                    await asyncio.wait_for(self.process.wait(), patience_s)
                except TimeoutError:
                    continue
        # Its own children may have ignored the first signal.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


class Children:
    """Runs leases in children; a child in doubtful state is killed, not reused."""

    def __init__(self, spec: str, memory_mb: float = 0.0) -> None:
        self._spec, self._memory_mb = spec, memory_mb
        self._idle: list[Child] = []
        self._waiting = 0
        self._starting: set[asyncio.Task[None]] = set()
        self._failed: list[Exception] = []
        """Errors of failed starts, each for one waiting attempt."""
        self._changed = asyncio.Condition()

    async def run(
        self,
        lease: Lease,
        notes: NoteTaker,
        begin: Callable[[], None],
        decided: Callable[[], None],
        steps: StepStore,
    ) -> Outcome:
        """Return the child's outcome; raises `ChildDied` if its process ended. A cancellation kills the child first.

        `begin` is called when a child is ready: waiting for one does not count as run time. `decided` is called when
        the outcome is there and its hooks begin: from then on neither a cancellation nor a dead child changes it.
        """
        child = await self._acquire()
        kept = False
        try:
            begin()
            outcome = await child.run(lease, notes, decided, steps)
            kept = child.jobs < JOBS_EACH
            return outcome
        finally:
            if kept:
                self._idle.append(child)
            else:
                await asyncio.shield(child.kill())
            await self._notify()

    async def _acquire(self) -> Child:
        """A cancelled waiter leaves the child that starts for it to the next one."""
        self._waiting += 1
        try:
            async with self._changed:
                while not self._idle:
                    if self._failed:
                        raise self._failed.pop()
                    if len(self._starting) < min(STARTING, self._waiting):
                        self._starting.add(asyncio.create_task(self._start_one()))
                    await self._changed.wait()
                return self._idle.pop()
        finally:
            self._waiting -= 1
            del self._failed[self._waiting :]

    async def _start_one(self) -> None:
        try:
            self._idle.append(await self._start())
        except Exception as error:  # noqa: BLE001 - raised to one of the attempts that wait for a child
            is_known = isinstance(error, ChildNotStarted)
            reason = (
                error if is_known else ChildNotStarted(f"no process could be started: {type(error).__name__}: {error}")
            )
            self._failed = [*self._failed, reason][: self._waiting]
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._starting.discard(task)
            await asyncio.shield(self._notify())

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def close(self) -> None:
        starting = tuple(self._starting)
        for task in starting:
            task.cancel()
        await asyncio.gather(*starting, return_exceptions=True)
        idle, self._idle = self._idle, []
        await asyncio.gather(*(child.kill() for child in idle))

    async def _start(self) -> Child:
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "fairlane.worker.isolated.child",
                self._spec,
                str(self._memory_mb),
                str(os.getpid()),
                str(logging.getLogger().getEffectiveLevel()),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
                limit=2**26,
            )
        except OSError as error:
            raise ChildNotStarted(f"no process could be started: {error}") from error
        child = Child(process)
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_S):
                ready = await aread_frame(process.stdout)
                if ready != READY:
                    await process.wait()
        except TimeoutError:
            await asyncio.shield(child.kill())
            raise ChildNotStarted(f"its process was not ready within {START_S:g} s") from None
        except BaseException:
            await asyncio.shield(child.kill())
            raise
        if ready != READY:
            raise ChildNotStarted(f"the application could not be loaded there: {ChildDied(process.returncode)}")
        return child
