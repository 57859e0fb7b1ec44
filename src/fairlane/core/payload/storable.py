"""Makes whatever an attempt left behind storable, so that a job always settles.

An exception may hold NUL characters, 50 MB of text, a `str()` that raises, a chain that leads back to itself: none of
that may keep its job from being recorded as failed.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b

from msgspec import Raw

from fairlane.core.job import ErrorClass
from fairlane.core.outcome import Failure
from fairlane.core.payload.codec import encode_value
from fairlane.core.payload.json_scan import LIMITS, ScanLimits
from fairlane.core.payload.redaction import without_secrets

MESSAGE_CHARS = 2_000
TRACEBACK_CHARS = 16_384
TYPE_CHARS = 200

_FRAMES_PER_EXCEPTION = 100
_MOST_LINKS = 20
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_REPLACEMENT = "\ufffd"

_VARYING = re.compile(
    r"""(?<!\w)'[^'\n]*' | "[^"\n]*" | `[^`\n]*`                     # what was quoted
      | [0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}          # UUIDs
      | 0[xX][0-9a-fA-F]+                                             # addresses
      | (?<![a-zA-Z])(?=[a-fA-F]*[0-9])[0-9a-fA-F]{7,}(?![a-zA-Z])    # digests
      | [0-9]+(?:[.,:][0-9]+)*                                        # numbers, versions, times
    """,
    re.VERBOSE,
)


class UnstorableResult(ValueError):
    """A task returned something that cannot be kept."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("the task ran to its end, but its result cannot be stored: " + "; ".join(problems))


def clean_text(text: str, limit: int) -> str:
    """Text any store can keep, at most `limit` characters: of a longer one the beginning and the end."""
    if len(text) > limit:
        note = f" … [{len(text) - limit:,} more characters] … "
        room = limit - len(note)
        text = text[:limit] if room < 2 else text[: room - room // 3] + note + text[-(room // 3) :]
    return _UNSTORABLE.sub(_REPLACEMENT, text)


def safe_str(value: object, limit: int = MESSAGE_CHARS) -> str:
    """`str(value)` without secrets, cleaned and cut, even where `str()` itself raises."""
    # Joining makes a plain str of a subclass whose methods could do anything. A `str()` may raise SystemExit, too.
    with suppress(BaseException):
        return clean_text(without_secrets("".join((str(value),))), limit)
    with suppress(BaseException):
        return clean_text(without_secrets("".join((repr(value),))), limit)
    return f"<{type_name(value)} whose str() raises>"


def type_name(value: object) -> str:
    """The name of a value's type, with its module unless everybody knows it."""
    kind = type(value)
    with suppress(BaseException):  # a metaclass may answer, too
        name, module = str(kind.__qualname__), str(kind.__module__)
        known = module in ("builtins", "fairlane.errors", __name__)
        return clean_text(name if known else f"{module}.{name}", TYPE_CHARS)
    return clean_text(str(_type_name(kind)), TYPE_CHARS)


def format_traceback(exc: BaseException, limit: int = TRACEBACK_CHARS) -> str:
    """The traceback with its causes, oldest first as Python prints it, without local variables and secrets."""
    blocks = [_format_one(one) + link for one, link in _chain(exc)]
    return clean_text(without_secrets("".join(reversed(blocks))), limit)


def fingerprint(error_type: str, message: str, task: str) -> str:
    """Alike for failures that differ only in numbers, ids, addresses and quoted values."""
    shape = _VARYING.sub("*", message[:1_000])[:200]
    parts = f"{task}\x00{error_type}\x00{shape}"
    return blake2b(parts.encode("utf-8", "replace"), digest_size=8).hexdigest()


def failure(exc: BaseException, error_class: ErrorClass, task: str) -> Failure:
    """What went wrong, ready for any store."""
    return described_failure(type_name(exc), safe_str(exc), error_class, task, traceback=format_traceback(exc))


def described_failure(
    error_type: str, message: str, error_class: ErrorClass, task: str, *, traceback: str | None = None
) -> Failure:
    """The same where words describe it, which are storable already."""
    return Failure(
        error_class=error_class,
        error_type=error_type,
        message=message,
        fingerprint=fingerprint(error_type, message, task),
        traceback=traceback,
    )


def encode_result(result: object, *, limits: ScanLimits = LIMITS) -> Raw:
    """A task's result as JSON text, exactly; what cannot be kept so (no JSON, NUL, lone surrogates, too large) raises
    UnstorableResult."""
    text, problems = encode_value(result, limits=limits)
    if text is None:
        raise UnstorableResult(problems)
    return Raw(text)


# Read past whatever a subclass puts in their place: properties that raise, return no exception, or never end.
_cause, _context, _is_context_suppressed, traceback_of = (
    vars(BaseException)[name].__get__ for name in ("__cause__", "__context__", "__suppress_context__", "__traceback__")
)
_type_name = vars(type)["__name__"].__get__


def _chain(exc: BaseException) -> Iterator[tuple[BaseException, str]]:
    """An exception and what led to it, newest first, each with the words that lead on to the newer one."""
    seen: set[int] = set()
    link = ""
    one: BaseException | None = exc
    while one is not None and id(one) not in seen and len(seen) < _MOST_LINKS:
        seen.add(id(one))
        yield one, link
        if (cause := _cause(one)) is not None:
            one, link = cause, "\nThe above exception was the direct cause of the following exception:\n\n"
        elif not _is_context_suppressed(one):
            one, link = _context(one), "\nDuring handling of the above exception, another exception occurred:\n\n"
        else:
            one = None


def _format_one(exc: BaseException) -> str:
    lines = [f"{type_name(exc)}: {safe_str(exc)}\n"]
    with suppress(BaseException):
        if isinstance(exc, BaseExceptionGroup):
            lines += [f"  | {type_name(member)}: {safe_str(member, 500)}\n" for member in exc.exceptions[:_MOST_LINKS]]
    # Source lines come from files that may have changed or gone since; a traceback without them is still one.
    with suppress(BaseException):
        frames = traceback.StackSummary.extract(traceback.walk_tb(traceback_of(exc)), limit=-_FRAMES_PER_EXCEPTION)
        if frames:
            lines = ["Traceback (most recent call last):\n", *frames.format(), *lines]
    return "".join(lines)
