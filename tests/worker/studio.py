"""An application whose isolated task uses all that a worker offers."""

from __future__ import annotations

from collections.abc import Iterator

from fairlane import Fairlane, current_job
from fairlane.stores.sqlite import MemoryStore

app = Fairlane(store=MemoryStore())


@app.resource
def booth() -> Iterator[str]:
    current_job().log("the booth is open")
    yield "booth"
    current_job().log("the booth is closed")


@app.task(name="studio.recite", isolated=True, timeout=20, breaker="smtp")
def recite(text: str) -> float:
    booth()
    # Asked about in the worker's process already, which reports how this ends.
    with app.breakers.guard("smtp"):
        current_job().log(text)
    current_job().progress(1)
    return (current_job().deadline_at - app.runtime.clock.now()).total_seconds()
