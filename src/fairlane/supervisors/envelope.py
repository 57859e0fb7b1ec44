"""The JSON envelope that supervisors and handlers answer with, in both shapes of the document.

    {"status": "succeeded", "payload": {…}}
    {"success": true, "payload": {…}, "error": "…", "validation_failure_message": "…"}

`status` decides where it is there, else `success`. An answer with neither is malformed.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from fairlane.errors import FairlaneError, shown

SUCCEEDED, FAILED = "succeeded", "failed"


class HandlerFailed(FairlaneError):
    """A supervisor or handler raised, or answered with something that is no envelope."""

    def __init__(self, function: str, why: str) -> None:
        self.function, self.why = function, why
        super().__init__(f"{function}: {why}")


class DBFunctionResult(Struct, frozen=True):
    """What a supervisor or handler answered."""

    status: str
    """`succeeded`, or the outcome in a word: `missing_attempt_id`, `attempt_not_found`, `max_attempts_reached`, …"""
    payload: Any = None
    error: str | None = None
    """Of an unexpected failure."""
    validation_failure_message: str | None = None
    """Why it cannot succeed, however often it is tried."""

    @property
    def succeeded(self) -> bool:
        return self.status == SUCCEEDED

    @property
    def message(self) -> str:
        """What to say of it in one line."""
        return self.validation_failure_message or self.error or self.status


def read_result(function: str, answer: Any) -> DBFunctionResult:
    """The envelope that `function` answered with; raises `HandlerFailed` where there is none."""
    if not isinstance(answer, dict):
        raise HandlerFailed(function, f"answered {shown(answer)}, not an object with a status")
    error, refusal = (_text(answer.get(name)) for name in ("error", "validation_failure_message"))
    if answer.get("status") is not None:
        status = answer["status"]
        if not isinstance(status, str) or not status:
            raise HandlerFailed(function, f"answered status {shown(status)}, not a word")
    elif isinstance(answer.get("success"), bool):
        status = SUCCEEDED if answer["success"] else "validation_failed" if refusal else FAILED
    else:
        raise HandlerFailed(function, f"answered {shown(answer)}, with neither a status nor success")
    return DBFunctionResult(status, answer.get("payload"), error, refusal)


def _text(given: Any) -> str | None:
    return given if isinstance(given, str) and given else None
