"""What a check finds, and the checks that need no store: versions, settings, the application."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Literal, NamedTuple

from fairlane.cli.output import plural
from fairlane.errors import MissingExtra
from fairlane.stores.url import redacted

if TYPE_CHECKING:
    from fairlane.client.app import Fairlane
    from fairlane.client.settings.model import Settings


State = Literal["ok", "warn", "fail"]


class Finding(NamedTuple):
    check: str
    state: State
    says: str
    remedy: str = ""


def from_sentence(check: str, state: State, sentence: str) -> Finding:
    """A sentence of the form "what is wrong: why it matters; what to do", as stores report it."""
    says, _, remedy = sentence.rpartition("; ")
    return Finding(check, state, says or sentence, remedy if says else "")


def versions() -> Iterator[Finding]:
    yield Finding("versions", "ok", f"fairlane {version('fairlane')}, Python {platform.python_version()}")


def settings_in_force(settings: Settings) -> Iterator[Finding]:
    yield Finding("url", "ok", f"{redacted(settings.url)}, from {settings.source('url')}")
    others = [f"{name} from {source}" for name, _, source in settings.shown() if source != "default" and name != "url"]
    yield Finding("settings", "ok", "; ".join(others) or "all others have their defaults")
    try:
        settings.alerts.require_extra()
    except MissingExtra as error:
        yield Finding("alerts", "fail", f"{error.purpose} needs {error.package}, which is not installed", error.remedy)
    if settings.profile != "production":
        yield Finding(
            "profile", "warn", "development: purge() is allowed", 'set profile = "production" where it counts'
        )
    if settings.fallback == "memory":
        yield Finding(
            "fallback",
            "warn",
            "the application goes on in memory when the store is away at its start, and loses those jobs when it ends",
            'set fallback = "refuse" where jobs must not be lost',
        )


def tasks(application: Fairlane) -> Iterator[Finding]:
    if application.tasks:
        yield Finding("application", "ok", f"{plural(len(application.tasks), 'task')} registered")
    else:
        yield Finding(
            "application", "warn", "no task is registered", "import the modules that define tasks where the app is made"
        )
