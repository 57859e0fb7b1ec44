"""Each store beside the model: a few lives in every run, many in the long one."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.stateful.interruptions import InterruptedLives
from tests.stateful.job_keys import KeyedLives
from tests.stateful.limits import LimitedLives
from tests.stateful.records import SharedRecords
from tests.stateful.timetables import Timetables
from tests.support.stores import Face, Ground, open_at

QUICK = {"memory": 6, "sqlite-apsw": 8, "sqlite-stdlib": 3, "postgres": 6, "postgres-pgbouncer": 2, "redis": 6}
LONG_TIMES = 120
COLOURS = {
    "memory": "sync",
    "sqlite-apsw": "sync",
    "sqlite-stdlib": "async",
    "postgres": "async",
    "postgres-pgbouncer": "sync",
    "redis": "async",
}


MACHINES = {
    "lives": InterruptedLives,
    "limits": LimitedLives,
    "keys": KeyedLives,
    "timetables": Timetables,
    "keepings": SharedRecords,
}
PAIRS = [(kind, machine) for kind in QUICK for machine in MACHINES]
every_pair = pytest.mark.parametrize(("kind", "machine"), PAIRS, ids=["-".join(pair) for pair in PAIRS])


def live(ground: Ground, machine: str, kind: str, examples: int, *, same_every_time: bool) -> None:
    face = Face(open_at(kind, ground.address(kind)), COLOURS[kind])
    here: type[RuleBasedStateMachine] = type(f"{machine}_here", (MACHINES[machine],), {"open_store": lambda: face})
    how = settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        database=None,
        derandomize=same_every_time,
        print_blob=not same_every_time,
        # Shrinking takes minutes on a server; the long run, or the same seed here, gives the shortest story.
        phases=(Phase.generate,) if same_every_time else (Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(here, settings=how)  # type: ignore[no-untyped-call]
    finally:
        face.close()


@pytest.mark.requirement("W5", "W6", "W14", "Q10", "Q17", "I2", "I3", "I5", "L4", "L8", "L12", "L15")
@every_pair
def test_a_store_answers_as_the_model_whatever_happens(ground: Ground, machine: str, kind: str) -> None:
    live(ground, machine, kind, QUICK[kind] // (2 if machine in ("limits", "keys") else 1), same_every_time=True)


@pytest.mark.long
@pytest.mark.timeout(3600)
@every_pair
def test_a_store_answers_as_the_model_through_many_lives(ground: Ground, machine: str, kind: str) -> None:
    live(ground, machine, kind, QUICK[kind] * LONG_TIMES, same_every_time=False)
