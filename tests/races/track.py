"""Starts racers, sends them off together, and collects what each one saw."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.scene import Scene

ROOT = Path(__file__).parents[2]


class Track:
    """So many processes, each with the same store open, waiting for the next story."""

    scene: Scene

    def __init__(self, kind: str, address: str, count: int) -> None:
        self.kind, self.address, self.count = kind, address, count
        self._racers: list[subprocess.Popen[str]] = []

    @property
    def is_long(self) -> bool:
        return self.count > 8

    def __enter__(self) -> Self:
        for number in range(self.count):
            command = [sys.executable, "-m", "tests.races.racer", self.kind, self.address, str(number)]
            racer = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self._racers.append(racer)
        for racer in self._racers:
            assert self._hear(racer) == "ready"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for racer in self._racers:
            if error is not None:
                racer.kill()
            # One that has died already must not keep the pipes of the others open.
            with contextlib.suppress(BrokenPipeError), racer:
                pass

    def race(self, story: str, **params: Any) -> list[Any]:
        """Let all racers live the same story at once; returns what each of them tells."""
        call = json.dumps({"story": story, "params": params}) + "\n"
        for racer in self._racers:
            assert racer.stdin is not None
            racer.stdin.write(call)
        for racer in self._racers:
            assert racer.stdin is not None
            racer.stdin.flush()
        return [self._hear(racer) for racer in self._racers]

    def _hear(self, racer: subprocess.Popen[str]) -> Any:
        assert racer.stdout is not None
        line = racer.stdout.readline()
        assert line, f"a racer ended with {racer.wait(10)}; its traceback is above"
        return json.loads(line)
