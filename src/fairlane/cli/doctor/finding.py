"""One thing a check found, and its remedy."""

from __future__ import annotations

from typing import Literal, NamedTuple

State = Literal["ok", "warn", "fail"]


class Finding(NamedTuple):
    check: str
    state: State
    says: str
    remedy: str = ""


def from_sentence(check: str, state: State, sentence: str) -> Finding:
    """A sentence of the form "what is wrong: why it matters; what to do", as stores report it."""
    says, _, remedy = sentence.rpartition("; ")
    return Finding(check, state, says or sentence, remedy if says else "")
