"""Which Python values have a place in JSON, and what is wrong with those that have none."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from msgspec import Raw

from fairlane.core.scan import MOST_PROBLEMS, Limits, shown_key
from fairlane.errors import shown

_Waiting = list[tuple[str, object, int]]


def plain(value: object) -> Any:
    """What stands for a value that is not JSON by nature: a pydantic model's own dump, by its method, not its name."""
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json")
    raise NotImplementedError(f"objects of type {type(value).__qualname__} cannot be stored as JSON")


def too_deep(limits: Limits) -> str:
    return f"nested deeper than {limits.max_depth} levels, or refers to itself"


def problems_in(value: object, limits: Limits) -> list[str]:
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


def _scalar_problem(item: object, limits: Limits) -> str | None:
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
