"""A heap dump on demand: what is in this process's memory, as text for people."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import tracemalloc
from collections import Counter
from pathlib import Path

from fairlane.worker.foreman.process import own_memory_mb

SHOWN = 30


def write_dump(directory: Path | None = None) -> Path:
    """Write the dump to a new file and return its path. Stops this interpreter for a moment."""
    fd, name = tempfile.mkstemp(prefix=f"fairlane-heap-{os.getpid()}-", suffix=".txt", dir=directory)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(dumped())
    return Path(name)


def dumped() -> str:
    gc.unfreeze()  # for good: what was loaded before the worker began is in memory, too, and frozen again it would keep what is alive now
    gc.collect()
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for found in gc.get_objects():
        kind = f"{type(found).__module__}.{type(found).__qualname__}"
        counts[kind] += 1
        sizes[kind] += sys.getsizeof(found, 0)
    lines = [
        f"process {os.getpid()}: {own_memory_mb():.1f} MB resident, {sum(counts.values())} objects known to the collector",
        "",
        "objects        bytes  type",
        *(f"{count:>7}  {sizes[kind]:>11}  {kind}" for kind, count in counts.most_common(SHOWN)),
        "",
    ]
    if tracemalloc.is_tracing():
        lines += ["allocated at:", *map(str, tracemalloc.take_snapshot().statistics("lineno")[:SHOWN])]
    else:
        lines.append("Start the worker with PYTHONTRACEMALLOC=1 to see where memory was allocated.")
    return "\n".join(lines) + "\n"
