"""The one codec of payloads and results: Python values to exact JSON text and back.

The same values are accepted whatever store is behind: what one of them could not keep is refused here, with all
problems at once. Nothing in a text names a class or a module to load. `Upcasters` bring an old job's payload to
the shape that today's code expects.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from fairlane.core.payload.json_scan import (
    LIMITS,
    MOST_PROBLEMS,
    ScanLimits,
    is_too_deep_or_wide,
    scan,
    shown_key,
)
from fairlane.errors import InvalidOption, InvalidPayload, shown

Payload = dict[str, Any]
Upcast = Callable[[Payload], Payload]

HIGHEST_VERSION = 32_767

_Waiting = list[tuple[str, object, int]]


def plain(value: object) -> Any:
    """What stands for a value that is not JSON by nature: a pydantic model's own dump, by its method, not its name."""
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json")
    raise NotImplementedError(f"objects of type {type(value).__qualname__} cannot be stored as JSON")


def too_deep(limits: ScanLimits) -> str:
    return f"nested deeper than {limits.max_depth} levels, or refers to itself"


def problems_in(value: object, limits: ScanLimits) -> list[str]:
    """What keeps a value from being encoded, with the path to each."""
    problems: list[str] = []
    waiting: _Waiting = [("$", value, 0)]
    while waiting and len(problems) < MOST_PROBLEMS:
        path, item, depth = waiting.pop()
        if depth > limits.max_depth + 1:
            return [*problems, f"{path[:200]}: {too_deep(limits)}"]
        if isinstance(item, dict):
            problems += _key_problems(path, item)
            waiting += [
                (f"{path}.{shown_key(key if isinstance(key, str) else shown(key))}", item[key], depth + 1)
                for key in reversed(item)
            ]
        elif isinstance(item, (list, tuple, set, frozenset)):
            waiting += [(f"{path}[{at}]", each, depth + 1) for at, each in reversed(list(enumerate(item)))]
        elif problem := _scalar_problem(item, limits):
            problems.append(f"{path}: {problem}")
        elif not isinstance(item, (str, int, float, Raw, type(None))):
            problem, converted = _converted(item)
            if problem:
                problems.append(f"{path}: {problem}")
            else:
                waiting.append((path, converted, depth + 1))
    return problems


def _scalar_problem(item: object, limits: ScanLimits) -> str | None:
    if isinstance(item, float) and not math.isfinite(item):
        return f"{item} has no place in JSON; use None or text"
    if isinstance(item, int) and abs(item) >= 10**limits.max_digits:
        return f"a number of more than {limits.max_digits} digits: use text"
    return _text_problem(item) if isinstance(item, str) else None


def _text_problem(text: str) -> str | None:
    if "\x00" in text:
        return "text holds a NUL character, which not every store can keep"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "a lone surrogate is not valid Unicode text"
    return None


def _key_problems(path: str, item: dict[Any, Any]) -> list[str]:
    problems: list[str] = []
    written: set[str] = set()
    for key in item:
        problem = _text_problem(key) if isinstance(key, str) else None
        try:
            text = key if isinstance(key, str) else _key_as_text(key)
        except (TypeError, NotImplementedError):
            text, problem = "", f"a key is {type(key).__name__}, expected text"
        else:
            if text in written:
                problem = "this key comes twice once it is text"
            written.add(text)
        if problem:
            problems.append(f"{path}.{shown_key(key if isinstance(key, str) else shown(key))}: {problem}")
    return problems


def _key_as_text(key: object) -> str:
    if isinstance(key, (bool, float, type(None))):
        raise TypeError
    (text,) = msgspec.to_builtins({key: None}, str_keys=True)
    return str(text)


def _converted(item: object) -> tuple[str | None, object]:
    try:
        return None, msgspec.to_builtins(item, enc_hook=plain)
    except RecursionError:
        return "refers to itself", None
    except Exception as error:  # noqa: BLE001 - a foreign model's dump may raise anything
        return str(error)[:200] or type(error).__name__, None


_canonical = msgspec.json.Encoder(enc_hook=plain, order="sorted")
_as_read, _as_typed = msgspec.json.Encoder(), msgspec.json.Encoder(enc_hook=plain)
_read = msgspec.json.Decoder()
_UNSURE = object()
_NUMERIC = bytes(ord("0") if chr(code) in "0123456789.eE+-" else ord(" ") for code in range(256))


def encode(payload: object, *, task: str = "job", limits: ScanLimits = LIMITS) -> Raw:
    """The payload as canonical JSON text, one object: equal payloads give equal text.

    Keys are sorted, whitespace is left out. Dates, UUIDs, decimals, enums, dataclasses, msgspec structs and pydantic
    models are taken.
    """
    text, problems = encode_value(payload, limits=limits)
    if text is not None and not text.startswith(b"{"):
        problems = [f"expected one object (a dict of named values), got {type(payload).__name__}"]
    if text is None or problems:
        raise InvalidPayload(task, problems)
    return Raw(text)


def encode_value(value: object, *, limits: ScanLimits = LIMITS) -> tuple[bytes | None, list[str]]:
    """Any value as canonical JSON text, or every problem that stands in the way."""
    try:
        text = _canonical.encode(value)
    except RecursionError:
        return None, [too_deep(limits)]
    except Exception as error:  # noqa: BLE001 - a foreign model's dump may raise anything
        text = b""
        problems = problems_in(value, limits)
        if not problems:
            try:
                text = _canonical.encode(msgspec.to_builtins(value, enc_hook=plain, str_keys=True))
            except Exception:  # noqa: BLE001 - the same dump again
                problems = [str(error)]
        if problems:
            return None, problems
    # The encoder writes NaN and the infinities as null.
    if b"null" in text and (problems := problems_in(value, limits)):
        return None, problems
    if _plainly_read(text, limits) is _UNSURE and (problems := scan(text, limits)):
        return None, problems
    return text, []


AS_IT_IS = frozenset({str, int, float, bool, type(None)})
"""Types whose values are read back from JSON as they were."""


def is_read_back(value: object) -> bool:
    """Whether a value is read back from JSON as an equal one. Quick: a tuple, which becomes a list, is not."""
    try:
        return isinstance(value, (dict, list)) and bool(_read.decode(_as_typed.encode(value)) == value)
    except Exception:  # noqa: BLE001 - a foreign model's dump may raise anything; a closer look follows
        return False


def made_of(value: object) -> str | None:
    """What JSON makes of a value that is no list and no dict, in words; None: an equal one, or nothing at all."""
    if type(value) in AS_IT_IS or isinstance(value, Raw):
        return None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "base64 text"
    try:
        made = _read.decode(_as_typed.encode(value))
        if made == value:
            return None
    except Exception:  # noqa: BLE001 - a foreign model's dump, or comparison, may raise anything
        return None
    if isinstance(made, str):
        return "text"
    return "a list" if isinstance(made, list) else "a dict" if isinstance(made, dict) else "a number"


def encode_plain(
    values: Sequence[object], limits: ScanLimits = LIMITS, read_typed: Callable[[bytes], Sequence[object]] | None = None
) -> tuple[list[bytes], bytes] | None:
    """Each value as `encode_value` writes it, and all of them as one array; None: one of them needs its closer look.

    One look at the array takes the place of one at each value: a third of the time for a thousand small ones.
    `read_typed` reads the array as what is expected of its values, and raises where they do not fit.
    """
    try:
        texts = [_canonical.encode(value) for value in values]
        whole = b"[" + b",".join(texts) + b"]"
        if (
            (b"\\" in whole and b"\\u0000" in whole)
            or (b"null" in whole and any(problems_in(value, limits) for value in values))
            or (
                max(map(len, texts)) > min(limits.max_depth, limits.max_digits, limits.max_keys, limits.max_bytes)
                and any(may_break(text, limits) for text in texts)
            )
        ):
            return None
        # Each by itself: a text of several values among them may make up for another that has none.
        if read_typed is not None and [_as_typed.encode(value) for value in read_typed(whole)] == texts:
            return texts, whole
        return (texts, whole) if [_as_read.encode(value) for value in _read.decode(whole)] == texts else None
    except Exception:  # noqa: BLE001 - a foreign model's dump may raise anything; `encode_value` says what
        return None


def decode(text: bytes | str | Raw, *, task: str = "job", limits: ScanLimits = LIMITS) -> dict[str, Any]:
    """The payload a stored text holds, checked again: rows may have been written straight by SQL."""
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)
    value = _plainly_read(raw, limits)
    if value is _UNSURE:
        if problems := scan(raw, limits):
            raise InvalidPayload(task, problems)
        value = _read.decode(raw)
    if not isinstance(value, dict):
        raise InvalidPayload(task, [f"expected one object, the row holds {type(value).__name__}"])
    return value


def stored_json(text: str) -> Raw | str:
    """Stored text as the JSON it holds; the text itself where it is no JSON, as in a row written by hand."""
    try:
        raw = text.encode()
        msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return text.encode(errors="backslashreplace").decode()
    return Raw(raw)


def is_plain(text: str, keys: int, limits: ScanLimits = LIMITS) -> bool:
    """Whether a text that reads as an object of `keys` keys needs no further check.

    It needs none where nothing is nested or escaped in it and no key is repeated.
    """
    size = len(text)
    return (
        size <= limits.max_digits
        and 4 * size <= limits.max_bytes
        and "\\" not in text
        and "[" not in text
        and text.count("{") == 1
        and text.count(":") == keys <= limits.max_keys
    )


def size_warning(text: bytes | Raw, limits: ScanLimits = LIMITS) -> str | None:
    """A sentence for a payload that is accepted but heavier than it should be."""
    size = memoryview(text).nbytes
    if size <= limits.warn_bytes:
        return None
    return (
        f"the payload has {size:,} bytes, more than the recommended {limits.warn_bytes:,}: pass ids instead of content"
    )


def may_break(text: bytes, limits: ScanLimits = LIMITS) -> bool:
    """Whether a text could be over a limit or hold a NUL. Quick, and never wrong about a bad one."""
    size = len(text)
    if limits.max_depth >= size <= limits.max_digits and limits.max_keys >= size <= limits.max_bytes:
        return b"\\u0000" in text  # too short for anything else
    return (
        size > limits.max_bytes
        or (b"\\" in text and b"\\u0000" in text)
        or (
            (text.count(b"[") + text.count(b"{") > limits.max_depth or text.count(b":") > limits.max_keys)
            and is_too_deep_or_wide(text, limits)
        )
        or b"0" * (limits.max_digits + 1) in text.translate(_NUMERIC)
    )


def _plainly_read(text: bytes, limits: ScanLimits) -> Any:
    """The value of a text that the quick looks already clear; `_UNSURE` only means that `scan` has to look."""
    if may_break(text, limits):
        return _UNSURE
    try:
        value = _read.decode(text)
        # Written again it is the same, byte for byte: well-formed, and no key came twice.
        return value if _as_read.encode(value) == text else _UNSURE
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _UNSURE


class Upcasters:
    """One step per task and version, each from a version to the next."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, int], Upcast] = {}

    def register(self, task: str, from_version: int) -> Callable[[Upcast], Upcast]:
        """Decorate the function that turns a payload of `from_version` into the next version's."""
        check_version(from_version)
        if (task, from_version) in self._steps:
            raise InvalidOption("from_version", from_version, f'no second upcaster for "{task}" from this version')

        def keep(step: Upcast) -> Upcast:
            self._steps[task, from_version] = step
            return step

        return keep

    def missing(self, task: str, version: int, target: int) -> list[int]:
        """The versions from `version` up to `target` that have no upcaster."""
        return [step for step in range(version, target) if (task, step) not in self._steps]

    def upcast(self, task: str, payload: Payload, version: int, target: int) -> Payload:
        """The payload at version `target`, from `version` up. Steps may change the one given in place."""
        if missing := self.missing(task, version, target):
            steps = ", ".join(f"{step} to {step + 1}" for step in missing[:10])
            raise InvalidPayload(
                task, [f"no upcaster from version {steps}: register one with from_version={missing[0]}"]
            )
        for step in range(version, target):
            payload = self._steps[task, step](payload)
            if not isinstance(payload, dict):
                raise InvalidPayload(task, [f"the upcaster from version {step} must return a dict"])
        return payload


def check_version(version: object) -> int:
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= HIGHEST_VERSION:
        raise InvalidOption("payload_version", version, f"a whole number from 1 to {HIGHEST_VERSION}")
    return version
