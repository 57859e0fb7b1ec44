"""Detects changed source files of an application, to restart workers in development."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

_FOREIGN = ("site-packages", "dist-packages")


def loaded_files() -> tuple[str, ...]:
    """The source files of every imported module outside the standard library and installed packages."""
    standard = Path(sysconfig.get_paths()["stdlib"]).resolve()
    found = set()
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if not name or not name.endswith(".py"):
            continue
        path = Path(name).resolve()
        if standard not in path.parents and not any(part in _FOREIGN for part in path.parts):
            found.add(str(path))
    return tuple(sorted(found))


class FileWatcher:
    """Remembers the modification times of files."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int] | None] = {}

    def follow(self, files: Iterable[str]) -> None:
        for file in files:
            self._seen.setdefault(file, _state(file))

    def changed(self) -> list[str]:
        """Files changed since the last call."""
        now = {file: _state(file) for file in self._seen}
        changed = [file for file, state in now.items() if state != self._seen[file]]
        self._seen = now
        return changed


def _state(file: str) -> tuple[int, int] | None:
    try:
        stat = Path(file).stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size
