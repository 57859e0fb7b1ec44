"""Measures the resident memory of a process, and writes a heap dump of this one."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import tracemalloc
from collections import Counter
from pathlib import Path

SHOWN = 30
_PAGE = os.sysconf("SC_PAGE_SIZE")


def memory_mb(pid: int) -> float | None:
    """Resident memory; None where the system does not report it."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return pages * _PAGE / 2**20


def own_memory_mb() -> float:
    """Resident memory of this process, or its peak where the system reports only that."""
    resident = memory_mb(os.getpid())
    if resident is not None:
        return resident
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def write_dump(directory: Path | None = None) -> Path:
    """Write the dump to a new file and return its path. Stops this interpreter for a moment."""
    fd, name = tempfile.mkstemp(prefix=f"fairlane-heap-{os.getpid()}-", suffix=".txt", dir=directory)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(heap_report())
    return Path(name)


def heap_report() -> str:
    # For good: freezing again would also freeze the objects that are alive now.
    gc.unfreeze()
    gc.collect()
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for found in gc.get_objects():
        kind = f"{type(found).__module__}.{type(found).__qualname__}"
        counts[kind] += 1
        sizes[kind] += sys.getsizeof(found, 0)
    lines = [
        f"process {os.getpid()}: {own_memory_mb():.1f} MB resident, {sum(counts.values())} objects in the collector",
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
