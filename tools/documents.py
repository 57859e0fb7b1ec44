"""Check docs/reference/documents.md: every name in its second column exists.

python tools/documents.py   fail if the page names a setting, command, option, route, attribute, field, metric or SQL
                            function that is not there
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import msgspec

import fairlane
from fairlane import Fairlane
from fairlane.api import create_api
from fairlane.cli.main import cli
from fairlane.client import runtime
from fairlane.client.enqueue.options import EnqueueOptions
from fairlane.client.settings.model import Settings
from fairlane.client.task import TaskOptions
from fairlane.core import alerts, breaker, job, ops, profiles, queues, retry
from fairlane.metrics import exposition
from fairlane.stores.postgres.schema import CORE
from fairlane.stores.url import SCHEMES
from fairlane.worker.config import WorkerConfig

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "documents.md"
ROW = re.compile(r"^\| (?P<theirs>.+) \| (?P<ours>.+) \| (?P<more>\[.+) \|$", re.MULTILINE)
ROUTE = re.compile(r"(GET|POST) (/\S+)")


def main() -> int:
    unknown = list(unknown_names(PAGE.read_text(encoding="utf-8")))
    for name in unknown:
        print(f"docs/reference/documents.md names `{name}`, which is not there", file=sys.stderr)
    return 1 if unknown else 0


def unknown_names(text: str) -> Iterator[str]:
    """The names in the second column that nothing here has."""
    with Fairlane("memory://") as app:
        for row in ROW.finditer(text):
            yield from (name for name in re.findall(r"`([^`]+)`", row["ours"]) if not exists(app, name))


def exists(app: Fairlane, name: str) -> bool:
    if route := ROUTE.fullmatch(name):
        return (route[1], route[2]) in routes()
    if name.startswith("fairlane "):
        return is_command(name.split()[1:])
    if used := re.fullmatch(r"(@app\.task|task\.using)\((.*?)\)(\.enqueue\(…\))?", name):
        known: Any = TaskOptions if used[1] == "@app.task" else EnqueueOptions
        return all(option in known.__annotations__ for option in re.findall(r"(\w+)=", used[2]))
    if name.startswith(("app.", "fairlane.")):
        return has_path(app if name.startswith("app.") else fairlane, name.split(".")[1:])
    return name in words() or name in metrics(app)


def has_path(owner: object, path: list[str]) -> bool:
    for part in path:
        if not hasattr(owner, part):
            return False
        owner = getattr(owner, part)
    return True


def is_command(given: list[str]) -> bool:
    """Whether a command is there, with these options."""
    command: click.Command = cli
    context = click.Context(cli)
    for word in given:
        if word.startswith("--"):
            if not any(word in (*option.opts, *option.secondary_opts) for option in command.params):
                return False
        elif not isinstance(command, click.Group) or (found := command.get_command(context, word)) is None:
            return False
        else:
            command = found
    return True


@cache
def routes() -> frozenset[tuple[str, str]]:
    with Fairlane("memory://") as app:
        paths = create_api(app).openapi()["paths"]
    return frozenset((method.upper(), path) for path, methods in paths.items() for method in methods)


@cache
def words() -> frozenset[str]:
    """Settings, fields of what people read, statuses, kinds of events, rules of alerts, views and SQL functions."""
    modules = (runtime, job, queues, retry, breaker, profiles, ops)
    found = {name for module in modules for name in vars(module) if isinstance(getattr(module, name), type)}
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, msgspec.Struct):
                found |= set(value.__struct_fields__)
    found |= {*Settings.__struct_fields__, *WorkerConfig.__struct_fields__, *EnqueueOptions.__annotations__}
    found |= {*TaskOptions.__annotations__, *job.STATUSES, *job.DEAD_LETTER_STATUSES, *events()}
    found |= {rule.name for rule in alerts.DEFAULT_RULES}
    found |= {
        *re.findall(r"^create or replace (?:view|function) (\w+)", CORE.functions, re.MULTILINE),
        *(f"{name}://" for name in SCHEMES),
    }
    with Fairlane("memory://") as app:
        schemas = create_api(app).openapi()["components"]["schemas"]
        found |= set(msgspec.to_builtins(app.snapshot()))
    return frozenset(found | {name for schema in schemas.values() for name in schema.get("properties", ())})


def events() -> set[str]:
    """The kinds of events that the sources write."""
    sources = Path(fairlane.__file__).parent.rglob("*.py")
    return {kind for file in sources for kind in re.findall(r'EventDraft\(\s*kind="(\w+)"', file.read_text("utf-8"))}


@cache
def metrics(app: Fairlane) -> frozenset[str]:
    return frozenset(re.findall(r"^# HELP (\w+)", exposition(app).decode(), re.MULTILINE))


if __name__ == "__main__":
    sys.exit(main())
