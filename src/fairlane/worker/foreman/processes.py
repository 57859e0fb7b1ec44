"""What the system says of a process: its memory, whether it was halted, and how it ended."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


def memory_mb(pid: int) -> float | None:
    """Resident memory; None where the system does not say."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return pages * _PAGE / 2**20


def own_memory_mb() -> float:
    """Resident memory of this process, or its peak where the system says no more."""
    resident = memory_mb(os.getpid())
    if resident is not None:
        return resident
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def is_halted(pid: int) -> bool:
    """Stopped by SIGSTOP, a terminal or a debugger. Elsewhere than on Linux: not known, so no."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in {"T", "t"}


def ending(code: int | None) -> str:
    """How a process ended, in words."""
    if code is None or code >= 0:
        return f"exited with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
