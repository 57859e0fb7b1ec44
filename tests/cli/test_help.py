"""Help: every command is listed, explained, and loaded only when it is called."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from fairlane.cli.main import COMMANDS, cli
from tests.cli.conftest import Command, Run

HEAVY = ("apsw", "asyncio", "msgspec", "psycopg", "rich", "fairlane.client")


def every_command(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    found: list[tuple[tuple[str, ...], click.Command]] = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found.append(((*path, name), command))
        if isinstance(command, click.Group):
            found += every_command(command, (*path, name))
    return found


@pytest.mark.parametrize(
    ("path", "command"), every_command(cli), ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_every_command_explains_itself_and_each_option(path: tuple[str, ...], command: click.Command, run: Run) -> None:
    result = run(*path, "--help")
    assert result.exit_code == 0
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{parameter.name} has no help"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_in_the_list_is_the_first_line_of_the_command_itself(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.help is not None
    assert command.help.splitlines()[0] == COMMANDS[name]


def test_help_loads_no_driver_no_client_and_no_table_maker() -> None:
    program = f"""
import sys
from fairlane.cli.main import cli
try:
    cli.main(["--help"])
except SystemExit:
    pass
loaded = [name for name in {HEAVY!r} if name in sys.modules]
print(loaded, file=sys.stderr)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stderr.strip() == "[]"


def test_options_with_a_variable_name_it(run: Run) -> None:
    said = run("jobs", "list", "--help").stdout
    for variable in ("FAIRLANE_URL", "FAIRLANE_APP", "FAIRLANE_TENANT"):
        assert variable in said


def test_the_module_and_the_script_are_the_same_command(command: Command) -> None:
    assert command("--version").stdout.startswith("fairlane ")
    assert command("--help").stdout.startswith("Usage: fairlane ")


def test_called_without_a_command_it_shows_the_help_and_exits_with_2(command: Command) -> None:
    ran = command()
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "Commands:" in ran.stderr
