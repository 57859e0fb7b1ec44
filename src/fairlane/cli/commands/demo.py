"""`fairlane demo`: everything at a glance, no code needed."""

from __future__ import annotations

import click

from fairlane.cli.options import prints
from fairlane.cli.printing import Printer


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 600.0),
    metavar="NUMBER",
    default=8.0,
    show_default=True,
    help="End after this long, done or not.",
)
@click.option("--keep", is_flag=True, help="Keep the database and print its URL.")
@prints
def demo(seconds: float, keep: bool, out: Printer) -> None:
    """Watch jobs of three tenants run, fail, retry and die.

    On a SQLite file in a temporary directory; ends by itself. Every number shown is read back from the store.
    """
    from fairlane.cli.demo.running import run_demo

    run_demo(out, seconds=seconds, keep=keep)
