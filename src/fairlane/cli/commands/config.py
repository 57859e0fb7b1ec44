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
    from fairlane.worker.config import WorkerConfig


@click.command()
@click.option("--changed", is_flag=True, help="Leave the defaults out.")
@at_store
@lists
def config(changed: bool, at: At, out: Printer) -> None:
    """Show each setting and where it came from, without passwords.

    The figures of the profile are shown in full, and behind the settings what a worker here has unless its flags say
    otherwise: its processes, the slots that they share, and how many each of them gets. A later source wins:
    fairlane.toml or [tool.fairlane], FAIRLANE_* variables, arguments of Fairlane(…), --url.
    """
    settings = at.settings()
    shown = [entry for entry in settings.shown() if not changed or entry[0] in settings.sources]
    asked, processes, options = worker_of_environment()
    worker = {} if changed else worker_figures(settings, asked, processes)
    if out.as_json:
        listed = [{"name": name, "value": value, "source": source} for name, value, source in shown]
        out.data({"settings": listed, "worker": worker})
        return
    rows = [(*row, source) for name, value, source in shown for row in flattened(name, value)]
    source = f"profile {settings.profile}" + (f", environment: {' '.join(options)}" if options else "")
    rows += [(*row, source) for row in flattened("worker", worker) if worker]
    if rows:
        out.table(("setting", "value", "from"), rows)
    else:
        out.note("every setting has its default")


def worker_figures(settings: Settings, config: WorkerConfig, processes: int | None = None) -> dict[str, Any]:
    """What `fairlane worker` does unless its flags say otherwise; with the shares of up to `processes` of them."""
    from fairlane.core.profiles import processes_for, share_of

    config = config.completed_by(settings, {}, tuple(settings.queues))
    lanes: dict[str, dict[str, Any]] = {
        lane.name: {
            "slots": f"{lane.slots}/process" if lane.per_process else lane.slots,
            "queues": lane.queues,
            "prompt": lane.prompt,
        }
        for lane in config.lanes
    }
    figures = {"lanes": lanes, "batch": config.batch, "poll_s": config.poll_s}
    if processes is None:
        return figures
    there_are = processes_for(config.lanes, processes)
    shares = [{lane.name: lane.slots for lane in share_of(config.lanes, n, there_are)} for n in range(there_are)]
    for name, lane in lanes.items():
        lane["by_process"] = [share.get(name, 0) for share in shares]
    return {"processes": there_are, **figures}


def worker_of_environment() -> tuple[WorkerConfig, int, list[str]]:
    """What `fairlane worker` does here without flags, how many processes it may start, and the options it is given by
    variables."""
    from click.core import ParameterSource

    from fairlane.cli.commands.worker import chosen, cores, worker

    context = worker.make_context("worker", [])
    given = [
        option.opts[0]
        for option in worker.params
        if context.get_parameter_source(option.name or "") is ParameterSource.ENVIRONMENT
    ]
    return chosen("", context.params), context.params["processes"] or cores(), given


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
