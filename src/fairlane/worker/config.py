"""The configuration of a worker process: what its starter asks for, completed by the profile of the application."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from fairlane import __version__
from fairlane.core.profiles import ANY, Lane, lanes_of, processes_for, share_of
from fairlane.core.queues import QueuePolicy, read_slots
from fairlane.core.text import plural
from fairlane.errors import ConfigError, InvalidOption
from fairlane.stores.url import redacted

if TYPE_CHECKING:
    from fairlane.client.app import Fairlane
    from fairlane.client.settings.model import Settings


class WorkerConfig(Struct, frozen=True, kw_only=True):
    """What the processes of one worker do; an embedded one is a single process. Spans in seconds."""

    lanes: tuple[Lane, ...] = ()
    """Empty: one lane of `slots` and `queues` if either is given, else those of the profile."""
    slots: int | str | None = None
    """Slots of one lane for all `queues`: shared by the processes, or `"100/process"`."""
    queues: tuple[str, ...] = ()
    """The only queues served, in this order."""
    fast_slots: int | str | None = None
    """Slots of the profile's lane `fast`; 0: without it."""
    general_slots: int | str | None = None
    """Slots of the profile's lane `general`."""
    types: tuple[str, ...] = ()
    """Empty: every registered task."""
    batch: int | None = None
    """At most this many jobs claimed in one Turn for each lane. None: the profile's for the profile's lanes, else as
    many as keep the slots busy."""
    poll_s: float | None = None
    """Seconds between claims of an idle worker that receives no wake-up. None: the profile's."""
    lease_s: float = 15.0
    grace_s: float = 25.0
    """How long running jobs may take to end after a stop."""
    drain: bool = False
    """Stop when nothing is ready and nothing runs."""
    max_jobs: int | None = None
    max_memory_mb: float | None = None
    app: str | None = None
    """`module:name` from which a child process loads the application; None: nothing can run isolated."""
    isolated_memory_mb: float = 0.0
    """Address space an isolated attempt may use; 0: no cap."""

    def __post_init__(self) -> None:
        names = [lane.name for lane in self.lanes]
        if len(set(names)) < len(names):
            raise InvalidOption("lanes", names, "each with a name of its own")
        if self.poll_s is not None and not self.poll_s > 0:
            raise InvalidOption("poll_s", self.poll_s, "seconds above 0")
        if not self.lease_s > 0:
            raise InvalidOption("lease_s", self.lease_s, "seconds above 0")
        if self.grace_s < 0:
            raise InvalidOption("grace_s", self.grace_s, "seconds, 0 or more")

    def completed(self, app: Fairlane) -> WorkerConfig:
        """The same with lanes, batch and poll interval, where they are not given, from the application's profile."""
        return self.completed_by(app.runtime.settings, app.runtime.queue_slots, known_queues(app, (ANY,)))

    def completed_by(
        self, settings: Settings, code_slots: Mapping[str, int | str], known: tuple[str, ...]
    ) -> WorkerConfig:
        """The same, from settings, the slots that code gives to queues, and the names of all queues."""
        figures = settings.figures
        poll_s = figures.poll_s if self.poll_s is None else self.poll_s
        if self.lanes:
            return replace(self, poll_s=poll_s)
        lanes = lanes_of(figures.lanes, _with_slots(settings.queues, code_slots), known)
        if self.slots is not None or self.queues:
            one = Lane("general", sum(lane.slots for lane in lanes), self.queues or (ANY,))
            return replace(self, lanes=(_with_slots_of(one, self.slots),), poll_s=poll_s)
        sized = self._sized(lanes)
        # The profile's batch fits the profile's slots; with other slots a claim takes as many jobs as fill them.
        batch = figures.batch if self.batch is None and sized == lanes else self.batch
        return replace(self, lanes=sized, batch=batch, poll_s=poll_s)

    def _sized(self, lanes: tuple[Lane, ...]) -> tuple[Lane, ...]:
        sizes = {"fast": self.fast_slots, "general": self.general_slots}
        for name, slots in sizes.items():
            if slots is not None and name not in [lane.name for lane in lanes]:
                there = ", ".join(lane.name for lane in lanes)
                raise ConfigError(
                    f"--{name}-slots {slots}: the profile has no lane {name}, but {there}; set `slots` of a queue, "
                    "or the lanes by --lane"
                )
        return tuple(_with_slots_of(lane, sizes.get(lane.name)) for lane in lanes if str(sizes.get(lane.name)) != "0")

    def share(self, number: int, processes: int) -> WorkerConfig:
        """A completed one for process `number` of up to `processes`; without lanes if there are fewer slots."""
        return replace(self, lanes=share_of(self.lanes, number, processes))


def _with_slots_of(lane: Lane, slots: int | str | None) -> Lane:
    """The same lane with the slots that are asked for, if any."""
    if slots is None:
        return lane
    count, per_process = read_slots(slots, f"slots of lane {lane.name}")
    return replace(lane, slots=count, per_process=per_process)


def _with_slots(queues: Mapping[str, QueuePolicy], slots: Mapping[str, int | str]) -> Mapping[str, QueuePolicy]:
    """The same queues, with the slots that the code asks for where the settings give none."""
    asked = {name: replace(queues.get(name) or QueuePolicy(name=name), slots=count) for name, count in slots.items()}
    return {**asked, **{name: policy for name, policy in queues.items() if policy.slots or name not in asked}}


def known_queues(app: Fairlane, queues: tuple[str, ...]) -> tuple[str, ...]:
    """A lane's queues by name: `*` stands for all queues of settings and tasks, behind the ones named explicitly."""
    named = [queue for queue in queues if queue != ANY]
    if ANY in queues:
        named += [
            *app.runtime.settings.queues,
            *app.runtime.settings.routes.values(),
            *(task.definition.queue for task in app.tasks.values()),
        ]
    return tuple(dict.fromkeys(named))


MOST_NAMES = 12


def introduction(app: Fairlane, config: WorkerConfig, processes: int = 1) -> tuple[str, ...]:
    """What a worker is, in lines for its log: version, profile, slots, processes of the `processes` that are asked for,
    store, lanes, tasks, and the tenants of jobs."""
    settings = app.runtime.settings
    names = sorted(config.types or app.tasks)
    more = "" if len(names) <= MOST_NAMES else f" and {len(names) - MOST_NAMES} more"
    there_are = processes_for(config.lanes, processes)
    slots = sum(lane.slots * (there_are if lane.per_process else 1) for lane in config.lanes)
    fewer = f", not {processes}: each needs a slot" if there_are < processes else ""
    return (
        f"Fairlane {__version__} on Python {platform.python_version()}, profile {settings.profile}"
        + ("" if config.app is None else f", application {config.app}")
        + f": {plural(slots, 'slot')} in {plural(there_are, 'process')}{fewer}",
        f"store: {app.runtime.store.name}, {redacted(settings.url)} ({settings.source('url')})",
        f"lanes: {'; '.join(map(_described, config.lanes))}",
        f"{plural(len(names), 'task')}: {', '.join(names[:MOST_NAMES])}{more}",
        f"tenants: {_tenant_mode(settings)}",
    )


def _described(lane: Lane) -> str:
    queues = ", ".join("all queues" if queue == ANY else queue for queue in lane.queues)
    return f"{lane.name} with {plural(lane.slots, 'slot')}{' in each process' if lane.per_process else ''} for {queues}"


def _tenant_mode(settings: Settings) -> str:
    if settings.require_tenant:
        return "a job without one is refused"
    if settings.require_tenant is None:
        return f'jobs without one belong to "{settings.default_tenant}"; tenant=None is refused once others are in use'
    return f'jobs without one belong to "{settings.default_tenant}"'
