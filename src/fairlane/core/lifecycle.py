"""Every legal move of a job between places, and who makes it.

The diagram in `docs/concepts/lifecycle.md` is generated from `MOVES`. Tests check the headers of the SQL files against
them, and that no move leaves a final place except `retain`, which removes the job.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Place = Literal["new", "ready", "scheduled", "held", "leased", "completed", "dead", "cancelled", "removed"]
"""Where a job is. `ready`, `scheduled`, `held` and `leased` are a table each; the final places share `done`; `new` and
`removed` are in none."""

Actor = Literal["client", "worker", "duty", "person"]

FINAL_PLACES: frozenset[Place] = frozenset({"completed", "dead", "cancelled"})


class Move(NamedTuple):
    verb: str
    source: Place
    target: Place
    actor: Actor


MOVES: tuple[Move, ...] = (
    Move("enqueue", "new", "ready", "client"),
    Move("enqueue", "new", "scheduled", "client"),
    Move("enqueue", "new", "held", "client"),
    Move("promote", "scheduled", "ready", "duty"),
    Move("promote", "scheduled", "held", "duty"),
    Move("let_in", "held", "ready", "worker"),
    Move("hold", "ready", "held", "person"),
    Move("unhold", "held", "ready", "duty"),
    Move("unhold", "held", "scheduled", "duty"),
    Move("claim", "ready", "leased", "worker"),
    Move("complete", "leased", "completed", "worker"),
    Move("retry", "leased", "scheduled", "worker"),
    Move("snooze", "leased", "scheduled", "worker"),
    Move("die", "leased", "dead", "worker"),
    Move("stop", "leased", "cancelled", "worker"),
    Move("release", "leased", "ready", "worker"),
    Move("release", "leased", "held", "worker"),
    Move("reclaim", "leased", "ready", "duty"),
    Move("reclaim", "leased", "held", "duty"),
    Move("reclaim", "leased", "dead", "duty"),
    Move("reclaim", "leased", "cancelled", "duty"),
    Move("cancel", "ready", "cancelled", "person"),
    Move("cancel", "scheduled", "cancelled", "person"),
    Move("cancel", "held", "cancelled", "person"),
    Move("fail", "ready", "scheduled", "person"),
    Move("fail", "scheduled", "scheduled", "person"),
    Move("fail", "held", "scheduled", "person"),
    Move("fail", "leased", "scheduled", "person"),
    Move("fail", "ready", "dead", "person"),
    Move("fail", "scheduled", "dead", "person"),
    Move("fail", "held", "dead", "person"),
    Move("fail", "leased", "dead", "person"),
    Move("fail", "leased", "cancelled", "person"),
    Move("reset", "leased", "ready", "person"),
    Move("reset", "leased", "held", "person"),
    Move("reset", "leased", "cancelled", "person"),
    Move("bury", "ready", "dead", "person"),
    Move("bury", "scheduled", "dead", "person"),
    Move("bury", "held", "dead", "person"),
    Move("bury", "leased", "dead", "person"),
    Move("retain", "completed", "removed", "duty"),
    Move("retain", "cancelled", "removed", "duty"),
    Move("retain", "dead", "removed", "duty"),
)


def is_legal(verb: str, source: Place, target: Place) -> bool:
    return any(m.verb == verb and m.source == source and m.target == target for m in MOVES)


def targets(source: Place) -> frozenset[Place]:
    return frozenset(m.target for m in MOVES if m.source == source)
