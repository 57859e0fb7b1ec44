"""`manage.py fairlane …`: the command line of Fairlane, with the project's tasks and database."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand

from fairlane.cli.main import cli
from fairlane.contrib.django.project import reference

NAME = "fairlane"
USAGE = 2


class Command(BaseCommand):
    help = "Fairlane's command line: `fairlane worker` runs this project's tasks, `fairlane --help` lists the rest."
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Django's own options come first; whatever else there is belongs to Fairlane's command line."""
        run(argv[2:], f"{os.path.basename(argv[0])} {argv[1]}")

    def print_help(self, prog_name: str, subcommand: str) -> None:
        run(["--help"], f"{os.path.basename(prog_name)} {subcommand}")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("args", nargs=argparse.REMAINDER)

    def handle(self, *args: Any, **_: object) -> None:
        """`call_command("fairlane", "jobs", "list")`."""
        try:
            run([str(arg) for arg in args], NAME)
        except SystemExit as end:
            if end.code:
                raise


def run(arguments: Sequence[str], program: str) -> None:
    """Run a command of Fairlane on the backend that `--backend` names, or on the default one."""
    django = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for option in ("--settings", "--pythonpath"):
        django.add_argument(option)  # read by ManagementUtility already
    django.add_argument("--backend", default="default")
    chosen, rest = django.parse_known_args(arguments)
    # Every command finds its application here, and so do the processes that a worker starts.
    try:
        os.environ["FAIRLANE_APP"] = reference(chosen.backend)  # noqa: TID251
    except ImproperlyConfigured as error:
        sys.stderr.write(f"{program}: {error}\n")
        sys.exit(USAGE)
    cli.main(rest, program)
