"""Write docs/reference/python.md, every public name of the package, from signatures and docstrings.

python tools/python_reference.py          write the page
python tools/python_reference.py --check  fail if the page says something else than the code
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo, fields

import fairlane
from fairlane import Fairlane, testing
from fairlane.client.steps import Verbs

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "python.md"

HEAD = """\
# Python reference

<!-- generated from the package by `make docs`: do not edit -->

Every public name, as `from fairlane import …`. [The client](client.md) is the same at a glance. A verb has an async twin named `a…` with the same
parameters: `app.jobs.cancel(…)` and `await app.jobs.acancel(…)`; twins are not listed here.
`Settings` and the keywords of `Fairlane` are in [the settings](settings.md).
"""

SECTIONS = {
    "Tasks and handles": "Task SyncTask AsyncTask Bound Handle Draft Schedule TaskOptions EnqueueOptions",
    "Inside a job": "current_job CurrentJob tenant all_tenants timeout SyncResource AsyncResource",
    "Policies": "Retry Limit NamedLimit Rate Cron QueuePolicy Breaker PayloadValidator",
    "What is read": "Job JobDetail Attempt DeadLetter Snapshot",
    "For tests": "FakeClock SYSTEM",
}
"""Names by what they are for; those in none of them stand under "More", errors in a table."""

OF_TESTING = "Sandbox enqueued assert_enqueued assert_nothing_enqueued run_due run_attempt CollectedJob Ran Mode"
ERRORS_OF_TESTING = ("NoSandbox", "TransactionUnknown")

STARS: dict[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
WIDTH = 110
FEW = 4
"""This many keywords of an `Unpack[…]` are shown as parameters; more of them in a sentence."""


def is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def text_of(annotation: object) -> str:
    """An annotation as it is written; what a verb's steps return is what its caller gets."""
    annotation = getattr(annotation, "__forward_arg__", annotation)
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"\b(?:fairlane|msgspec|collections|typing|datetime)(?:\.\w+)*\.(\w+)", r"\1", text)
    found = re.fullmatch(r"(?:Steps|Coroutine\[Any, Any,)\[(.*)\]", text)
    return found[1] if found else text


def parameters_of(function: Callable[..., Any]) -> Iterator[str]:
    had_star = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in {"self", "cls"}:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not had_star:
            had_star = True
            yield "*"
        if 0 < len(held := held_by(function, parameter)) <= FEW:
            yield from ([] if had_star else ["*"]) + held
            continue
        stars = STARS.get(parameter.kind, "")
        had_star = had_star or stars == "*"
        annotation = "" if parameter.annotation is parameter.empty else f": {text_of(parameter.annotation)}"
        default = "" if parameter.default is parameter.empty else f" = {default_text(parameter.default)}"
        yield f"{stars}{parameter.name}{annotation}{default}"


def default_text(value: object) -> str:
    text = repr(value)
    return "…" if " object at 0x" in text or text.startswith("<") else text


def call(name: str, function: Callable[..., Any]) -> str:
    """A call with its parameters, on one line where it fits."""
    parameters = list(parameters_of(function))
    returns = inspect.signature(function).return_annotation
    end = "" if returns in {inspect.Signature.empty, "None", None} else f" -> {text_of(returns)}"
    return f"```py\n{one_line_or_more(name, parameters, end)}\n```"


def doc(value: object) -> str:
    """A docstring as Markdown: indented examples become code."""
    text = inspect.getdoc(value) or ""
    return re.sub(
        r"(?:^    .*\n?(?:\n(?=    ))?)+", lambda found: f"```py\n{inspect.cleandoc(found[0])}\n```\n", text, flags=re.M
    )


def members(owner: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties of a class and its own bases, twins left out, in the order they are written."""
    seen: dict[str, Any] = {}
    for base in reversed(owner.__mro__):
        if base.__module__.startswith("fairlane"):
            seen.update(vars(base))
    for name, value in seen.items():
        if name.startswith("_") or (name.startswith("a") and name[1:] in seen and name != "aliases"):
            continue
        if inspect.isfunction(value) or isinstance(value, (classmethod, staticmethod, property)):
            yield name, value


def methods(owner: type, prefix: str) -> Iterator[str]:
    for name, value in members(owner):
        if isinstance(value, property):
            yield f"`{prefix}{name}` — {first_line(value)}" if doc(value) else f"`{prefix}{name}`"
            continue
        function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        yield f"{call(prefix + name, function)}\n\n{doc(function)}{keywords(function)}".rstrip()


def keywords(function: Callable[..., Any]) -> str:
    """What `**options` may hold, in a sentence."""
    for parameter in inspect.signature(function).parameters.values():
        if len(held := held_by(function, parameter)) > FEW:
            return f"\n\nKeywords of `**{parameter.name}`: {', '.join(f'`{one}`' for one in held)}."
    return ""


def held_by(function: Callable[..., Any], parameter: inspect.Parameter) -> list[str]:
    """The keywords of a parameter `**options: Unpack[…]`, with their types."""
    found = re.search(r"Unpack\[(\w+)\]", str(parameter.annotation))
    if not found:
        return []
    dictionary = inspect.unwrap(function).__globals__[found[1]]
    return [
        f"{name}: {text_of(kind)}" for base in whole(dictionary) for name, kind in inspect.get_annotations(base).items()
    ]


def whole(dictionary: Any) -> Iterator[type]:
    """A `TypedDict` behind those it adds to."""
    for base in getattr(dictionary, "__orig_bases__", ()):
        if hasattr(base, "__total__"):
            yield from whole(base)
    yield dictionary


def first_line(value: object) -> str:
    return (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ")


def entry(name: str, value: Any) -> Iterator[str]:
    yield f"### {name}"
    if inspect.isfunction(value):
        yield f"{call(name, value)}\n\n{doc(value)}".rstrip()
        return
    if not isinstance(value, type):
        yield f"`{value!r}`"
        return
    if issubclass(value, Struct):
        yield f"```py\n{one_line_or_more(name, [shown(field) for field in fields(value)])}\n```"
    elif hasattr(value, "_fields"):
        yield call(name, value)
    elif "__init__" in vars(value) and not name.endswith("Task"):
        yield call(name, value.__init__)
    if text := doc(value):
        yield text
    yield from methods(value, f"{name[0].lower()}{name[1:]}.")


def shown(field: FieldInfo) -> str:
    default = (
        "" if field.required else f" = {default_text(field.default)}" if field.default is not NODEFAULT else " = …"
    )
    return f"{field.name}: {text_of(field.type)}{default}"


def one_line_or_more(name: str, parameters: list[str], end: str = "") -> str:
    line = f"{name}({', '.join(parameters)}){end}"
    if len(line) <= WIDTH:
        return line
    inner = "".join(f"    {parameter},\n" for parameter in parameters)
    return f"{name}(\n{inner}){end}"


def errors(module: ModuleType, names: Iterable[str]) -> str:
    rows = [
        f"| `{name}` | {first_line(value) if value.__doc__ else f'a `{value.__base__.__name__}`'} |"
        for name in names
        if is_error(value := getattr(module, name))
    ]
    return "| error | |\n| --- | --- |\n" + "\n".join(rows)


def testing_kit() -> Iterator[str]:
    yield "## fairlane.testing"
    yield "As `from fairlane.testing import …`; [testing your application](../guides/testing.md) shows them at work."
    for name in OF_TESTING.split():
        yield from entry(name, getattr(testing, name))
    yield errors(testing, ERRORS_OF_TESTING)


def page() -> str:
    app = Fairlane("memory://")
    parts = [
        HEAD.rstrip(),
        "## Fairlane",
        doc(Fairlane),
        call("Fairlane", Fairlane.__init__) + keywords(Fairlane.__init__),
    ]
    parts += methods(Fairlane, "app.")
    for name, group in vars(app).items():
        if isinstance(group, Verbs):
            parts += [f"## app.{name}", doc(type(group)), *methods(type(group), f"app.{name}.")]
    app.close()
    named = {name for names in SECTIONS.values() for name in names.split()} | {"Fairlane", "Settings"}
    more = [name for name in fairlane.__all__ if name not in named and not is_error(getattr(fairlane, name))]
    for title, names in [*((title, names.split()) for title, names in SECTIONS.items()), ("More", more)]:
        if names:
            parts.append(f"## {title}")
            for name in names:
                parts += entry(name, getattr(fairlane, name))
    parts += testing_kit()
    parts += ["## Errors", errors(fairlane, fairlane.__all__)]
    return "\n\n".join(part for part in parts if part) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    wanted = page()
    if parser.parse_args(arguments).check:
        if PAGE.exists() and PAGE.read_text("utf-8") == wanted:
            return 0
        print(f"{PAGE.name} is out of date: run `make docs`", file=sys.stderr)
        return 1
    PAGE.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
