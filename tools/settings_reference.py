"""Write docs/reference/settings.md from the settings, the profiles and the options of the worker.

python tools/settings_reference.py          write the page
python tools/settings_reference.py --check  fail if the page says something else than the code
"""

from __future__ import annotations

import argparse
import ast
import difflib
import inspect
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from fairlane.cli.commands.config import flattened, worker_figures
from fairlane.cli.commands.worker import worker
from fairlane.client.settings.load import CONFIG_VARIABLE, PREFIX
from fairlane.client.settings.model import FROM_PROFILE, NAMES, Settings
from fairlane.core.breaker import BreakerPolicy
from fairlane.core.profiles import PROFILES
from fairlane.core.queues import QueuePolicy
from fairlane.core.retry import Retry
from fairlane.worker.config import WorkerConfig

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "settings.md"

HEAD = f"""\
# Settings

<!-- generated from fairlane.client.settings by `make docs`: do not edit -->

A setting comes from `fairlane.toml` (or `[tool.fairlane]` in `pyproject.toml`), then from its variable, then from the argument of `Fairlane(…)`
with its name; the last one wins, setting by setting. `{CONFIG_VARIABLE}` names another file. `fairlane config` shows every value in force and its source.
Spans are in seconds and end in `_s`. In a variable, tables are JSON: `{PREFIX}RETRY='{{"max_attempts": 8, "cap_s": 60}}'`; lists are separated by commas.
"""

PROFILE_NOTE = """\
`profile` chooses one of three sets of defaults; each figure can be set on its own. A queue with `slots` has a lane of its own; queues without
share the profile's lanes, in `isolation` the lane of `default`. The options of the worker, below, change lanes, `batch` and `poll_s`."""

DOCUMENTS = f"""\
## Variables of other names

| variable | |
| --- | --- |
| `{CONFIG_VARIABLE}` | the settings file to read, instead of looking for one |
| `USE_REDIS_QUEUE` | true: `url` is `REDIS_URL`, else `redis://localhost:6379/0`, with `fallback = "memory"`; false: `url` is `memory://`. |
| `REDIS_URL` | the address that `USE_REDIS_QUEUE` chooses, `rediss://` for TLS, with user and password if needed; alone it chooses nothing |
| `REDIS_HEALTH_CHECK_TIMEOUT` | `health_check_timeout_s` |
| `WORKER_FAST_THREADS`, `WORKER_GENERAL_THREADS` | `--fast-slots`, `--general-slots` of `fairlane worker` |

`{PREFIX}URL` and the other variables with the prefix go before these."""


def docs_of(owner: type) -> dict[str, str]:
    """The docstring below each field of a class; every field has one."""
    [definition] = ast.parse(inspect.getsource(owner)).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            found[field.target.id] = " ".join(str(text.value.value).split())
    return found


def documented(owner: type[Struct], without: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    docs = docs_of(owner)
    for field in owner.__struct_fields__:
        if field not in without:
            if field not in docs:
                raise SystemExit(f"{owner.__name__}.{field} has no docstring: say what it does")
            yield field, docs[field]


def shown(value: Any) -> str:
    rows = list(flattened("", value))
    if len(rows) == 1 and not rows[0][0]:
        return f"`{rows[0][1]}`" if rows[0][1] != "none" else "none"
    return "<br>".join(f"`{name.removeprefix('.')} = {text}`" for name, text in rows)


def defaults(name: str) -> str:
    if name in FROM_PROFILE:
        return "[the profile's](#profiles)"
    return shown(getattr(Settings(), name))


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def profile_rows() -> Iterator[tuple[str, ...]]:
    """Every figure of every profile, those of the worker first."""
    columns: list[dict[str, str]] = []
    for profile in PROFILES:
        settings = Settings(profile=profile)
        found = dict(flattened("", worker_figures(settings, WorkerConfig())))
        for name in FROM_PROFILE:
            found |= dict(flattened(f".{name}", getattr(settings, name)))
        columns.append({name.removeprefix("."): text for name, text in found.items()})
    names = list(dict.fromkeys(name for column in columns for name in column))
    tops = list(dict.fromkeys(name.split(".")[0] for name in names))
    groups = list(dict.fromkeys(group_of(name) for name in names))
    for name in sorted(names, key=lambda name: (tops.index(name.split(".")[0]), groups.index(group_of(name)))):
        yield (f"`{name}`", *(column.get(name, "") for column in columns))


def group_of(name: str) -> str:
    """Rows of one lane, one queue or one policy stand together."""
    return ".".join(name.split(".")[:2]) if name.startswith(("lanes.", "queues.")) else name.split(".", maxsplit=1)[0]


def worker_rows() -> Iterator[tuple[str, str, str]]:
    for option in worker.params:
        if (variables := getattr(option, "envvar", None)) is not None:
            text = " ".join(str(getattr(option, "help", "")).split())
            yield f"`{option.opts[0]}`", ", ".join(f"`{variable}`" for variable in variables), text


def page() -> str:
    settings = [
        (f"`{name}`", f"`{PREFIX}{name.upper()}`", defaults(name), text)
        for name, text in documented(Settings, ("sources",))
        if name in NAMES
    ]
    queue = [(f"`{name}`", text) for name, text in documented(QueuePolicy, ("name",))]
    retry = [(f"`{name}`", shown(getattr(Retry(), name)), text) for name, text in documented(Retry)]
    breaker = [(f"`{name}`", text) for name, text in documented(BreakerPolicy)]
    return (
        "\n\n".join(
            [
                HEAD.rstrip(),
                table(("setting", "variable", "default", "meaning"), settings),
                "What `alerts` holds: [alerts](../operate/alerts.md).",
                "## Profiles",
                PROFILE_NOTE,
                table(("figure", *PROFILES), list(profile_rows())),
                "A figure left empty has no default: no limit, no list, no lane. Queues that nobody configured have none of the figures of `queues`.",
                "## Fields of a queue",
                'In `[queues.NAME]`, or as `QueuePolicy(name="NAME", …)`.',
                table(("field", "meaning"), queue),
                "## Fields of a retry policy",
                "In `[retry]`, `[queues.NAME.retry]`, `[retry_by_class.CLASS]`, or as `Retry(…)`. Which policy applies: [retries](../guides/retries.md).",
                table(("field", "default", "meaning"), retry),
                "## Fields of a breaker",
                table(("field", "meaning"), breaker),
                "## Options of the worker",
                table(("option", "variable", "meaning"), list(worker_rows())),
                DOCUMENTS,
            ]
        )
        + "\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the reference of the settings from the code.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the page is out of date")
    options = parser.parse_args()
    there = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    written = page()
    if there == written:
        return 0
    if not options.check:
        PAGE.write_text(written, encoding="utf-8")
        return 0
    lines = difflib.unified_diff(there.splitlines(), written.splitlines(), "as written", "as it is", lineterm="")
    print("\n".join(lines), file=sys.stderr)
    print("docs/reference/settings.md does not match the settings: run `make docs`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
