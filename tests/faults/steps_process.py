"""A worker whose job kills it with SIGKILL at one place: `python -m tests.faults.steps_process URL EFFECTS PLACE`.

EFFECTS is a file that counts what was really done. PLACE names where the first attempt dies: between two steps, at the
beginning of one, or behind the effect of one and before its record.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from fairlane import Fairlane, current_job, step
from fairlane.testing import run_due

URL, EFFECTS, PLACE = sys.argv[1:] if len(sys.argv) > 3 else ("memory://", "", "")

app = Fairlane(URL)


def die_at(place: str) -> None:
    if place == PLACE and current_job().attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def effect(name: str) -> str:
    die_at(f"before {name}")
    with Path(EFFECTS).open("a") as file:
        file.write(f"{name}\n")
        file.flush()
        os.fsync(file.fileno())
    die_at(f"behind {name}")
    return name


@app.task(name="order")
def order() -> list[str]:
    done = [step("charge", effect, "charge")]
    die_at("between")
    done.append(step("ship", effect, "ship"))
    die_at("at the end")
    return done


if __name__ == "__main__":
    run_due(app)
