"""Waiting for something another process or thread does: never longer than needed, never for ever."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(look: Callable[[], T], within_s: float = 20.0) -> T:
    """What `look` returns, once that is true."""
    give_up_at = time.monotonic() + within_s
    while not (found := look()):
        if time.monotonic() > give_up_at:
            raise AssertionError(f"not within {within_s:g} s: {getattr(look, '__qualname__', look)}, last {found!r}")
        time.sleep(0.005)
    return found
