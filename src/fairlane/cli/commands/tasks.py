"""`fairlane tasks`: pause, resume or drain the jobs of a task."""

from __future__ import annotations

import click

from fairlane.cli.commands.pauses import pausing_commands
from fairlane.cli.options import SuggestingGroup


@click.group(cls=SuggestingGroup)
def tasks() -> None:
    """Pause, resume or drain the jobs of a task."""


pausing_commands(tasks, "task", lambda client: client.tasks)
