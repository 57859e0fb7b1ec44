"""Print how many files of src/fairlane one `enqueue()` and one Turn of a worker cross, on SQLite.

A Turn is counted from inside one job to inside the next: the first ends and is settled, the next is claimed and begins.

    python tools/footprint.py            the two numbers, each with how often a call leads into another file
    python tools/footprint.py --files    and the files
    python tools/footprint.py --check    fail where a number is above its limit
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import fairlane
from fairlane import Fairlane

SOURCE = str(Path(fairlane.__file__).parent) + "/"
LIMITS = {"enqueue()": 20, "Turn": 40}
WARM_UP = 50
TURNS = 31
"""Looked at; what is printed is the one in the middle: now and then a heartbeat or a duty falls into one."""


class Trace(NamedTuple):
    files: frozenset[str]
    switches: int


class Tracer:
    """Notes which of our files are entered while it is on, in every thread started after it was made."""

    def __init__(self) -> None:
        self._is_on = False
        self._entered: Counter[str] = Counter()
        self._switches = 0
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def start(self) -> None:
        self._entered.clear()
        self._switches, self._is_on = 0, True

    def stop(self) -> Trace:
        self._is_on = False
        return Trace(frozenset(self._entered), self._switches)

    def end(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _profile(self, frame: FrameType, event: str, argument: object) -> None:
        if not self._is_on or event != "call" or (file := _our_file(frame)) is None:
            return
        self._entered[file] += 1
        caller = frame.f_back
        while caller is not None and _our_file(caller) is None:
            caller = caller.f_back
        self._switches += caller is None or _our_file(caller) != file


def _our_file(frame: FrameType) -> str | None:
    file = frame.f_code.co_filename
    return file.removeprefix(SOURCE) if file.startswith(SOURCE) else None


def trace_enqueue(url: str, tracer: Tracer) -> Trace:
    with Fairlane(url) as app:

        @app.task
        def add(a: int, b: int) -> int:
            return a + b

        for _ in range(WARM_UP):
            add.enqueue(1, b=2)
        tracer.start()
        add.enqueue(1, b=2)
        return tracer.stop()


def trace_turn(url: str, tracer: Tracer) -> Trace:
    traces: list[Trace] = []
    with Fairlane(url) as app:

        @app.task
        async def add(a: int, b: int) -> int:
            traces.append(tracer.stop())
            if len(traces) < WARM_UP + TURNS:
                await add.aenqueue(1, b=2)  # only now, so that every job needs a Turn of its own
            tracer.start()
            return a + b

        add.enqueue(1, b=2)
        with app.running(slots=1, drain=True):
            pass
    return sorted(traces[WARM_UP:], key=lambda trace: len(trace.files))[TURNS // 2]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--files", action="store_true", help="list the files")
    parser.add_argument("--check", action="store_true", help="fail where a number is above its limit")
    options = parser.parse_args()
    tracer = Tracer()
    measures: dict[str, Callable[[str, Tracer], Trace]] = {"enqueue()": trace_enqueue, "Turn": trace_turn}
    above = False
    for name, measure in measures.items():
        with tempfile.TemporaryDirectory() as place:
            files, switches = measure(f"sqlite:///{place}/jobs.db", tracer)
        print(f"{name:<9} {len(files)} files, {switches} switches between them (limit {LIMITS[name]} files)")
        if options.files:
            print(*(f"    {file}" for file in sorted(files)), sep="\n")
        above = above or len(files) > LIMITS[name]
    tracer.end()
    return int(options.check and above)


if __name__ == "__main__":
    sys.exit(main())
