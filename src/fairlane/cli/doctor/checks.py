"""Runs the checks in order; what one of them needs and lacks ends those behind it."""

from __future__ import annotations

from collections.abc import Iterator

from fairlane.cli.doctor import setup, store
from fairlane.cli.doctor.setup import Finding
from fairlane.cli.output import one_line
from fairlane.cli.target import At, without_fallback
from fairlane.client.app import Fairlane
from fairlane.errors import ConfigError, FairlaneError


def examine(at: At) -> Iterator[Finding]:
    yield from setup.versions()
    try:
        settings = at.settings()
        application = at.application()
    except ConfigError as error:
        yield Finding("settings", "fail", one_line(str(error)), "correct the setting it names")
        return
    yield from setup.settings_in_force(settings)
    if application is not None:
        yield from setup.tasks(application)
    if settings.url.lower().startswith("memory:"):
        yield Finding("store", "warn", "memory: jobs end with the process", "use sqlite:/// or postgresql://")
        return
    found = list(store.schema(settings))
    yield from found
    if any(finding.check == "store" for finding in found):
        return
    try:
        yield from store.sqlite_place(settings)
        if found[0].state == "ok":
            yield from store.isolation(settings)
            with Fairlane(settings=without_fallback(settings)) as client:
                yield from store.health(client)
                if application is not None:
                    yield from store.unknown_types(client, application)
    except (FairlaneError, OSError) as error:
        yield store.unreachable(error)
