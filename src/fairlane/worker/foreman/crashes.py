"""Remembers which tasks of which tenants crash processes: their jobs run isolated until they behave.

Every job that ran in a process that died is charged a part, because nobody knows which one it was: those that are
innocent clear themselves by their successes. A job that crashed a process alone leaves no doubt, and neither does one
that another foreman knows. Kept in the foreman, which outlives its workers; others read it from their figures.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping

from fairlane.core.clock import Clock
from fairlane.worker.foreman.messages import JobKind, Suspects

ISOLATED_AT = 2.0
TOGETHER, ALONE = 1.0, 2.0
"""What a crash counts: of a process that ran several kinds of jobs, and of one that ran a single one."""
FROM_OUTSIDE = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP})
"""Codes of processes that somebody or the kernel has killed: that proves nothing against what ran there."""
SUCCESS = 0.1
"""What a success takes off: ten for each crash."""
MOST = 6.0
FORGET_S = 3600.0
"""A task that has crashed nothing for this long is trusted again."""
KEPT = 1000


class Crashes:
    """Scores of tasks and tenants, of which any process of this foreman has crashed lately."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._scores: dict[JobKind, float] = {}
        self._crashed_s: dict[JobKind, float] = {}
        self._isolated: set[JobKind] = set()

    def suspects(self) -> Suspects:
        """What the workers need to know."""
        return Suspects(isolated=tuple(sorted(self._isolated)), watched=tuple(sorted(self._scores)))

    def add(self, kinds: Iterable[JobKind], *, alone: bool) -> tuple[JobKind, ...]:
        """A process that ran these has died; returns those that run isolated from now on."""
        isolated = []
        for kind in kinds:
            score = min(self._scores.pop(kind, 0.0) + (ALONE if alone else TOGETHER), MOST)
            self._scores[kind], self._crashed_s[kind] = score, self._clock.monotonic()
            if score >= ISOLATED_AT and kind not in self._isolated:
                self._isolated.add(kind)
                isolated.append(kind)
        for oldest in list(self._scores)[: max(len(self._scores) - KEPT, 0)]:
            self._forget(oldest)
        return tuple(isolated)

    def succeed(self, kind: JobKind, times: int) -> bool:
        """Jobs of this kind ended well; whether it is trusted again."""
        if kind not in self._scores:
            return False
        self._scores[kind] -= SUCCESS * times
        return self._scores[kind] <= 0 and self._forget(kind)

    def forget_old(self) -> tuple[JobKind, ...]:
        """Trust again what has crashed nothing for long; returns what ran isolated until now."""
        until_s = self._clock.monotonic() - FORGET_S
        old = [kind for kind, crashed_s in self._crashed_s.items() if crashed_s < until_s]
        return tuple(kind for kind in old if self._forget(kind))

    def figures(self) -> dict[str, float]:
        """For the heartbeat, in which `fairlane workers` shows them."""
        return {figure_of(kind): round(self._scores[kind], 1) for kind in self._isolated}

    def _forget(self, kind: JobKind) -> bool:
        del self._scores[kind], self._crashed_s[kind]
        was_isolated = kind in self._isolated
        self._isolated.discard(kind)
        return was_isolated


def figure_of(kind: JobKind) -> str:
    return f"isolated.{kind.type}.{kind.tenant}"


def culprits_of(
    kinds: Iterable[JobKind], code: int | None, figures_elsewhere: Iterable[Mapping[str, float]]
) -> set[JobKind]:
    """Which of the kinds that ran in a process have crashed it beyond doubt; `code` is what it exited with."""
    ran = set(kinds)
    if len(ran) == 1 and code not in FROM_OUTSIDE:
        return ran
    known = {name for figures in figures_elsewhere for name in figures}
    return {kind for kind in ran if figure_of(kind) in known}
