"""`fairlane completion`: a script that completes commands, options and names in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_FAIRLANE_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes commands and names in a shell.

    For bash put `eval "$(fairlane completion bash)"` into ~/.bashrc, for zsh `eval "$(fairlane completion zsh)"` into
    ~/.zshrc; for fish write the script to ~/.config/fish/completions/fairlane.fish. It completes queues and
    tasks that running workers serve, and tenants.
    """
    from fairlane.cli.main import NAME, cli

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(cli, {}, NAME, VARIABLE).source())
