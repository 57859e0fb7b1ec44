"""The fields of a submitted form, each read as what it should be; a wrong one is a problem that names the field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import Depends
from msgspec.structs import replace
from starlette.requests import Request

from fairlane.api.problems import Problem
from fairlane.api.request import ENVELOPE_BYTES, examined, read_json, read_text, state_of
from fairlane.core.payload.json_scan import ScanLimits
from fairlane.core.payload.redaction import without_secrets

MOST_FIELDS = 2_000
MOST_WORDS = 2_000
_KIND = "application/x-www-form-urlencoded"


class SubmittedForm:
    def __init__(self, fields: dict[str, list[str]], limits: ScanLimits) -> None:
        self._fields, self._limits = fields, limits

    def text(self, name: str) -> str | None:
        """One field; None if it is missing or blank."""
        return next((value for value in self._fields.get(name, ()) if value.strip()), None)

    def many(self, name: str) -> list[str]:
        return self._fields.get(name, [])

    def required(self, name: str) -> str:
        found = self.text(name)
        if found is None:
            raise _refused(name, "fill it in")
        return found

    def words(self, name: str) -> str | None:
        """Free text for people; secrets in it are redacted before it is stored."""
        found = self.text(name)
        if found is not None and len(found) > MOST_WORDS:
            raise _refused(name, f"at most {MOST_WORDS:,} characters")
        return None if found is None else without_secrets(found)

    def number(self, name: str) -> float | None:
        found = self.text(name)
        try:
            return None if found is None else float(found)
        except ValueError:
            raise _refused(name, "a number, such as 2.5") from None

    def whole(self, name: str) -> int | None:
        found = self.text(name)
        try:
            return None if found is None else int(found)
        except ValueError:
            raise _refused(name, "a whole number") from None

    def wholes(self, name: str) -> list[int]:
        """A field that may be given many times, such as the boxes of rows."""
        if not all(value.isdecimal() and len(value) < 19 for value in self.many(name)):
            raise _refused(name, "whole numbers")
        return [int(value) for value in self.many(name)]

    def one_of(self, name: str, known: Sequence[str]) -> str:
        found = self.required(name)
        if found not in known:
            raise _refused(name, f"one of {', '.join(known)}")
        return found

    async def json(self, name: str) -> Any:
        """A field that contains an object as JSON, read as strictly as the body of an API request."""
        text = self.required(name).encode()
        try:
            found = await examined(len(text), read_json, text, self._limits)
        except Problem as problem:
            found_wrong = "; ".join(error.message for error in problem.details.errors or ())
            raise _refused(name, f"JSON ({found_wrong})") from None
        if not isinstance(found, dict):
            raise _refused(name, "a JSON object, with { and }")
        return found


def _refused(name: str, expected: str) -> Problem:
    return Problem(422, "invalid_field", f"{name}: expected {expected}; nothing was changed")


async def _form(request: Request) -> SubmittedForm:
    payload = state_of(request).app.runtime.settings.limits
    limits = replace(payload, max_bytes=3 * payload.max_bytes + ENVELOPE_BYTES)  # Encoded, a character takes three.
    text = await read_text(request, limits.max_bytes)
    if text and request.headers.get("content-type", "").partition(";")[0].strip().lower() != _KIND:
        raise Problem(415, "unsupported_media_type", f"send the form as {_KIND}; nothing was changed")
    try:
        fields = await examined(len(text), parse_qs, text.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise Problem(400, "malformed_form", "the form cannot be read; nothing was changed") from None
    return SubmittedForm(fields, limits)


Form = Annotated[SubmittedForm, Depends(_form)]
