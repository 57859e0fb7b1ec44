"""An application whose isolated task has hooks, importable by processes of their own: `tests.worker.hooked:app`.

What happens is written to the file that SHOP_DIARY names.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator

from fairlane import CurrentJob, FailedAttempt, Fairlane, Retry, current_job
from fairlane.stores.sqlite import MemoryStore

app = Fairlane(store=MemoryStore())


def write(line: str) -> None:
    with open(os.environ["SHOP_DIARY"], "a", encoding="utf-8") as file:
        file.write(f"{current_job().arguments['how']}: {line} {os.getpid()}\n")


@app.task(name="hooked.alone", isolated=True, timeout=5, retry=Retry(max_attempts=2, delays=(0.0,)))
def alone(how: str) -> str:
    write("run")
    if how == "fail":
        raise ConnectionError("no")
    if how == "loop":
        time.sleep(60)
    return how


@app.around_job
def span(job: CurrentJob) -> Iterator[None]:
    write("enter")
    yield
    write("leave")


@app.around_job
async def outer(job: CurrentJob) -> AsyncIterator[None]:
    write("enter async")
    yield


@app.before_job
def before(job: CurrentJob) -> None:
    write("before")


@app.after_job
async def after(job: CurrentJob, result: str) -> None:
    write(f"after {result}")
    if result == "hang":
        time.sleep(60)
    if result == "die":
        os._exit(9)


@app.on_failure
def failed(job: CurrentJob, failed: FailedAttempt) -> None:
    write(f"failed {type(failed.exception).__name__} {'dead' if failed.is_dead else 'retried'}")
