"""Write docs/reference/cli.md from the commands themselves.

python tools/cli_reference.py          write the page
python tools/cli_reference.py --check  fail if the page says something else than the commands
"""

from __future__ import annotations

import argparse
import difflib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from fairlane.cli.main import NAME, cli

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"
HEAD = """\
# Command line

<!-- generated from fairlane.cli by `make docs`: do not edit -->

Data goes to stdout, everything else to stderr. `--json` prints one JSON document, with the names of the
[glossary](../concepts/glossary.md). On a terminal tables have colour; with `NO_COLOR`, `TERM=dumb` or in a pipe they are plain text.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | failed: the job did, a check did, the schema is out of date |
| 2 | usage or settings: nothing was changed |
| 3 | no such job or dead letter, or another tenant's |
| 4 | conflict: its state does not allow the act, or the key is taken and `--on-duplicate raise` was given |
| 5 | denied by the database role or the file system |
| 69 | the store cannot be reached |
| 130 | interrupted |

An error of usage is one line; `FAIRLANE_DEBUG=1` shows the traceback.

**The store** is the one of `--url`, else the application's own, else `FAIRLANE_URL` or the settings file. **The application** is found
by `--app`, else `FAIRLANE_APP`, else `app` in `fairlane.toml` or `[tool.fairlane]`; the working directory is on the import path.
Commands see all tenants unless `--tenant` or `FAIRLANE_TENANT` names one; `--all-tenants` overrides the variable.

**Spans** are written `90s`, `5m`, `1h30m`, `2d`; **instants** `2030-01-01T09:00Z`, `in 5m`, `5m ago`. Acting on several jobs at once asks
first; away from a terminal it needs `--yes`.

**Filters** of `jobs list` are options or words, all of which must match: `fairlane jobs list tenant:acme status:failed,dead since:1h`.
The words are status, queue, type, tenant, category, correlation_id, parent, created_by, idempotency_key, since and until.
"""


def commands(group: click.Group, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        yield command, inner
        if isinstance(command, click.Group):
            yield from commands(command, inner)


def described(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"## {context.command_path}"
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f"```\n{usage}\n```"
    yield inspect.cleandoc(command.help or "")
    records = [option.get_help_record(context) for option in command.params if isinstance(option, click.Option)]
    rows = [f"| `{in_a_cell(names)}` | {in_a_cell(text)} |" for names, text in filter(None, records)]
    if rows:
        yield "\n".join(["| option | |", "| --- | --- |", *rows])


def in_a_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def page() -> str:
    root = click.Context(cli, info_name=NAME)
    parts = [HEAD.rstrip()]
    for command, context in commands(cli, root):
        parts += described(command, context)
    return "\n\n".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the reference of the command line from the commands.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the page is out of date")
    options = parser.parse_args()
    there = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    written = page()
    if there == written:
        return 0
    if not options.check:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(written, encoding="utf-8")
        return 0
    lines = difflib.unified_diff(there.splitlines(), written.splitlines(), "as written", "as it is", lineterm="")
    print("\n".join(lines), file=sys.stderr)
    print("docs/reference/cli.md does not match the commands: run `make docs`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
