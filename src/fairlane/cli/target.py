"""Which store and which application a command works with.

    store         --url, else the application's own, else FAIRLANE_URL and the settings file
    application   --app, else FAIRLANE_APP, else `app` in the settings file

A command works on a store that outlives it, and never falls back to another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fairlane.errors import ConfigError, StoreUnavailable

if TYPE_CHECKING:
    from fairlane.client.app import Fairlane
    from fairlane.client.settings.model import Settings

FLAG = "option --url"


class At(NamedTuple):
    """The store and application that `--url` and `--app` name."""

    url: str | None = None
    app: str | None = None

    def settings(self) -> Settings:
        """The settings in force. Imports the application only if its own store is used."""
        settings = self._configured()
        reference = self.app or settings.app
        if self.url is None and reference is not None:
            from fairlane.worker.application import load_application

            return load_application(reference).runtime.settings
        return settings

    def application(self) -> Fairlane | None:
        """The application itself, for commands that use its tasks."""
        reference = self.app or self._configured().app
        if reference is None:
            return None
        from fairlane.worker.application import load_application

        return load_application(reference)

    @contextmanager
    def client(self, *, creates: bool = False) -> Iterator[Fairlane]:
        """A client on that store. A SQLite file that is not there is an error, unless the command `creates`."""
        from fairlane.client.app import Fairlane

        settings = self.settings()
        _require_lasting(settings)
        if not creates:
            _require_file(settings)
        with Fairlane(settings=without_fallback(settings)) as client:
            yield client

    def _configured(self) -> Settings:
        from msgspec.structs import replace

        from fairlane.client.settings.load import load

        if self.url is None:
            return load()
        settings = load({"url": self.url})
        return replace(settings, sources={**settings.sources, "url": FLAG})


def sqlite_file(settings: Settings) -> Path | None:
    """The file of a SQLite store; None for the others."""
    from fairlane.stores.url import sqlite_path, store_named_by

    return Path(sqlite_path(settings.url)) if store_named_by(settings.url) == "sqlite" else None


def without_fallback(settings: Settings) -> Settings:
    # An operator needs the error, not an empty store in memory.
    from msgspec.structs import replace

    return replace(settings, fallback="refuse")


def _require_lasting(settings: Settings) -> None:
    if settings.url.lower().startswith("memory:"):
        raise ConfigError(
            f"url = {settings.url} ({settings.source('url')}) lives in one process and would end with this command; "
            "give --url or FAIRLANE_URL, such as sqlite:///fairlane.db"
        )


def _require_file(settings: Settings) -> None:
    file = sqlite_file(settings)
    if file is not None and not file.exists():
        raise StoreUnavailable(
            "sqlite",
            f"there is no file {file} (url from {settings.source('url')}); the first enqueue or `fairlane migrate up` "
            "creates it, --url or FAIRLANE_URL names another",
        )
