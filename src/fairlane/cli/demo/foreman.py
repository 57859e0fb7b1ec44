"""The demo's foreman, in its own process: `python -m fairlane.cli.demo.foreman PARENT MODULE:NAME`.

Runs like `fairlane worker --profile development --processes 2 --grace 1s`, but ignores
settings from the environment and does not outlive the demo.
"""

from __future__ import annotations

import asyncio
import logging
import sys

from fairlane.cli.demo.crew import GRACE_S, PROCESSES
from fairlane.worker.config import WorkerConfig
from fairlane.worker.foreman.foreman import CannotRun, Foreman, ForemanConfig
from fairlane.worker.foreman.messages import LOG_FORMAT
from fairlane.worker.isolated.child import die_with


async def work(app: str) -> None:
    # The profile's lanes: each process has one slot for urgent jobs and two for all.
    worker = WorkerConfig(app=app, grace_s=GRACE_S)
    await Foreman(ForemanConfig(app=app, worker=worker, processes=PROCESSES)).run()


def main() -> None:
    parent, app = sys.argv[1:3]
    die_with(int(parent))
    logging.basicConfig(format=LOG_FORMAT, level=logging.INFO)
    try:
        asyncio.run(work(app))
    except CannotRun as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
