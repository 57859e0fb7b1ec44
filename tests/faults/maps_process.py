"""An application whose map is cut off twice: between two commits of nodes, and when all of them have been added."""

from __future__ import annotations

import os
import time

from fairlane import CurrentJob, Draft, Fairlane, current_job
from fairlane.client import workflow_maps
from tests.worker.foreman.yard import diary

workflow_maps.CHUNK = 5

app = Fairlane(os.environ.get("YARD_URL", "memory://"), profile="development")


@app.task(name="maps.upto")
def upto(size: int) -> list[int]:
    return list(range(size))


@app.task(name="maps.double")
def double(number: int) -> int:
    return number * 2


@app.task(name="maps.total")
def total(doubled: list[int]) -> int:
    diary("total")
    return sum(doubled)


double_all = app.map(double, into=total)


@app.jobs.on_enqueue
def cut_between_commits(draft: Draft) -> None:
    if draft.type == "maps.double" and draft.args["number"] == 7 and current_job().attempt == 1:
        hang("halfway")


@double_all.after_job
def cut_at_the_end(job: CurrentJob, result: int) -> None:
    if job.attempt == 2:
        hang("added")


def hang(event: str) -> None:
    diary(event)
    time.sleep(300)
