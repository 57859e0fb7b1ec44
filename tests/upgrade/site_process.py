"""An application that enqueues and works at once, with whichever code of Fairlane is on the path.

python site_process.py URL FOLDER NAME    enqueues until its standard input says `stop`, works until that ends

Uses only what stays the same from release to release. Each run of a job holds a file of its own in FOLDER meanwhile: a second
run at once cannot make it, and leaves a file `twice-…`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from pathlib import Path

import fairlane
from fairlane import Fairlane

BATCH = 10
PAUSE_S = 0.05


def main(url: str, folder: Path, name: str) -> None:
    app = Fairlane(url)

    @app.task(name="upgrade.work")
    def work(job: str) -> None:
        running = folder / f"running-{job}"
        try:
            os.close(os.open(running, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            (folder / f"twice-{job}").touch()
            raise
        time.sleep(0.01)
        with (folder / f"ran-{name}").open("a") as ran:
            ran.write(f"{job}\n")
        running.unlink()

    stopped = threading.Event()

    def enqueue() -> None:
        number = 0
        with (folder / f"put-{name}").open("a") as put:
            while not stopped.wait(PAUSE_S):
                jobs = [f"{name}-{number + nth}" for nth in range(BATCH)]
                app.enqueue_many([work.using(tenant=f"tenant-{number % 3}").bind(job) for job in jobs])
                number += BATCH
                put.writelines(f"{job}\n" for job in jobs)
                put.flush()

    with app, app.running(slots=4):
        enqueuer = threading.Thread(target=enqueue)
        enqueuer.start()
        print(Path(fairlane.__file__).parent, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            sys.stdin.readline()
        stopped.set()
        enqueuer.join()
        print("stopped", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
