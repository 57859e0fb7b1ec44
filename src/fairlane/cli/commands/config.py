"""`fairlane config`: shows each setting, the figures of its profile, and where they came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from fairlane.cli.options import at_store, lists
from fairlane.cli.output import Printer
from fairlane.cli.target import At
from fairlane.core.text import one_line

if TYPE_CHECKING:
    from fairlane.client.settings.model import Settings


@click.command()
@click.option("--changed", is_flag=True, help="Leave the defaults out.")
@at_store
@lists
def config(changed: bool, at: At, out: Printer) -> None:
    """Show each setting and where it came from, without passwords.

    The figures of the profile are shown in full, and behind the settings what a worker has unless its options say
    otherwise. A later source wins: fairlane.toml or [tool.fairlane], FAIRLANE_* variables, arguments of Fairlane(…),
    --url.
    """
    settings = at.settings()
    shown = [entry for entry in settings.shown() if not changed or entry[0] in settings.sources]
    worker = {} if changed else worker_figures(settings)
    if out.as_json:
        listed = [{"name": name, "value": value, "source": source} for name, value, source in shown]
        out.data({"settings": listed, "worker": worker})
        return
    rows = [(*row, source) for name, value, source in shown for row in flattened(name, value)]
    rows += [(*row, f"profile {settings.profile}") for row in flattened("worker", worker) if worker]
    if rows:
        out.table(("setting", "value", "from"), rows)
    else:
        out.note("every setting has its default")


def worker_figures(settings: Settings) -> dict[str, Any]:
    """What `fairlane worker` does unless its options say otherwise."""
    from fairlane.core.profiles import lanes_of

    figures = settings.figures
    lanes = lanes_of(figures.lanes, settings.queues, tuple(settings.queues))
    return {"lanes": {lane.name: lane for lane in lanes}, "batch": figures.batch, "poll_s": figures.poll_s}


def flattened(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """A value as rows: one for each field of a table, so that nothing has to be cut."""
    from msgspec import Struct, structs

    if isinstance(value, Struct):
        value = {field: item for field, item in structs.asdict(value).items() if field != "name" and item is not None}
        if "delays" in value:  # exactly these: the other figures of the policy do not apply
            value = {field: value[field] for field in ("max_attempts", "delays") if field in value}
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from flattened(f"{name}.{key}", item)
    else:
        yield name, one_line(_as_text(value))


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)) and value:
        return ", ".join(_as_text(item) for item in value)
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if value or value == 0 else "none"
