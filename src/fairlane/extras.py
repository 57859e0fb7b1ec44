"""Optional packages: the extra of Fairlane that installs each, and the error that names it where one is missing.

`pip install fairlane` enqueues and runs workers on SQLite. Whatever needs more imports it through `needed_for`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from fairlane.errors import MissingExtra

Extra = Literal[
    "postgres", "redis", "dashboard", "alerts", "uvloop", "django", "fastapi", "flask", "opentelemetry", "sentry"
]

PACKAGES: dict[Extra, tuple[str, ...]] = {
    "postgres": ("psycopg",),
    "redis": ("redis", "hiredis"),
    "dashboard": (
        "fastapi",
        "h11",
        "jinja2",
        "markupsafe",
        "prometheus_client",
        "pydantic",
        "pydantic_core",
        "starlette",
        "uvicorn",
    ),
    "alerts": ("aiosmtplib", "httpx"),
    "uvloop": ("uvloop",),
    "django": ("django", "django_tasks"),
    "fastapi": ("fastapi",),
    "flask": ("flask",),
    "opentelemetry": ("opentelemetry",),
    "sentry": ("sentry_sdk",),
}
"""By the name they are imported under. (tests/acceptance/test_extras.py compares them with pyproject.toml.)"""


@contextmanager
def needed_for(purpose: str, extra: Extra) -> Iterator[None]:
    """Around imports: a missing package of `extra` raises `MissingExtra`; other failures stay as they are."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in PACKAGES[extra]:
            raise
        raise MissingExtra(purpose, package, extra) from error


def require(package: str, purpose: str, extra: Extra) -> None:
    """Raise `MissingExtra` unless `package` is installed; it is not imported."""
    with needed_for(purpose, extra):
        if importlib.util.find_spec(package) is None:
            raise ModuleNotFoundError(name=package)
