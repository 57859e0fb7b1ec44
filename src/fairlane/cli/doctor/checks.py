"""Runs the checks of `fairlane doctor` in order; the checks end at the first one that lacks its prerequisites."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import version

from fairlane.cli.doctor import store
from fairlane.cli.doctor.store import Finding
from fairlane.cli.output import one_line, plural
from fairlane.cli.target import At, without_fallback
from fairlane.client.app import Fairlane
from fairlane.client.settings.model import Settings
from fairlane.errors import ConfigError, FairlaneError, MissingExtra
from fairlane.stores.url import redacted


def examine(at: At) -> Iterator[Finding]:
    yield from _versions()
    try:
        settings = at.settings()
        application = at.application()
    except ConfigError as error:
        yield Finding("settings", "fail", one_line(str(error)), "correct the setting it names")
        return
    yield from _settings_in_force(settings)
    if application is not None:
        yield from _tasks(application)
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


def _versions() -> Iterator[Finding]:
    yield Finding("versions", "ok", f"fairlane {version('fairlane')}, Python {platform.python_version()}")


def _settings_in_force(settings: Settings) -> Iterator[Finding]:
    yield Finding("url", "ok", f"{redacted(settings.url)}, from {settings.source('url')}")
    others = [f"{name} from {source}" for name, _, source in settings.shown() if source != "default" and name != "url"]
    yield Finding("settings", "ok", "; ".join(others) or "all others have their defaults")
    try:
        settings.alerts.require_extra()
    except MissingExtra as error:
        yield Finding("alerts", "fail", f"{error.purpose} needs {error.package}, which is not installed", error.remedy)
    if settings.profile != "production":
        yield Finding(
            "profile", "warn", "development: purge() is allowed", 'set profile = "production" on production systems'
        )
    if settings.fallback == "memory":
        yield Finding(
            "fallback",
            "warn",
            "the application uses memory if the store is unreachable at start, and loses those jobs when it ends",
            'set fallback = "refuse" where jobs must not be lost',
        )


def _tasks(application: Fairlane) -> Iterator[Finding]:
    if application.tasks:
        yield Finding("application", "ok", f"{plural(len(application.tasks), 'task')} registered")
    else:
        yield Finding(
            "application", "warn", "no task is registered", "import the modules that define tasks where the app is made"
        )
