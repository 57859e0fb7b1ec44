"""Chance as a dependency: the only module that draws random numbers."""

from __future__ import annotations

import os
import random
from typing import Protocol


class Chance(Protocol):
    def fraction(self) -> float:
        """A number in [0, 1)."""
        ...

    def entropy(self, size: int) -> bytes: ...


class SystemChance:
    fraction = staticmethod(random.random)
    entropy = staticmethod(os.urandom)


class FixedChance:
    """Draws the same every run: for tests."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def fraction(self) -> float:
        return self._random.random()

    def entropy(self, size: int) -> bytes:
        return self._random.randbytes(size)
