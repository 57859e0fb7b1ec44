"""`fairlane demo`: everything at a glance, no code needed."""

from __future__ import annotations

import click

from fairlane.cli.options import prints
from fairlane.cli.output import Printer


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 600.0),
    metavar="NUMBER",
    default=10.0,
    show_default=True,
    help="End so long after the workers are ready, done or not.",
)
@click.option(
    "--keep", is_flag=True, help="Keep the directory with the database and the workers' log, and print where it is."
)
@prints
def demo(seconds: float, keep: bool, out: Printer) -> None:
    """Watch jobs of three tenants run, fail, retry and die.

    A foreman with two worker processes on a SQLite file in a temporary directory: lanes, a flood, a breaker, a
    schedule. Ends by itself, or in order after Ctrl-C. Every number shown is read back from the store.
    """
    from fairlane.cli.demo.play import run_demo

    click.get_current_context().exit(run_demo(out, seconds=seconds, keep=keep))
