"""The pytest plugin: fixtures `fairlane_app` and `fairlane_jobs`. It imports nothing of Fairlane until one is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fairlane.client.app import Fairlane
    from fairlane.testing.sandbox import Sandbox

MARK = 'fairlane(mode="collect", **settings): how the application of the fixture fairlane_app is put under test'
OF_THE_SUITE = (
    "requirement(*ids): the rows of Fairlane's ledger that a test of fairlane.testing.conformance proves",
    "long: of tests of fairlane.testing.conformance that take long",
)
MISSING = (
    "which application? Set fairlane_app = module:name in pytest's configuration, or app in fairlane.toml, or define a "
    "fixture fairlane_application that returns it"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("fairlane_app", "the application under test, as in shop.jobs:app", default="")


def pytest_configure(config: pytest.Config) -> None:
    for mark in (MARK, *OF_THE_SUITE):
        config.addinivalue_line("markers", mark)


@pytest.fixture(scope="session")
def fairlane_application(pytestconfig: pytest.Config) -> Fairlane:
    """Your application, as it is: from `fairlane_app` in pytest's configuration, else from `app` in the settings.

    Define a fixture of this name to return another.
    """
    from fairlane.client.settings.load import load
    from fairlane.errors import ConfigError
    from fairlane.worker.application import load_application

    reference = str(pytestconfig.getini("fairlane_app")) or load(directory=pytestconfig.rootpath).app
    if not reference:
        raise pytest.UsageError(MISSING)
    try:
        return load_application(reference, pytestconfig.rootpath)
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from error


@pytest.fixture
def fairlane_jobs(request: pytest.FixtureRequest, fairlane_application: Fairlane) -> Iterator[Sandbox]:
    """What a test asks and does about jobs: `enqueued`, `assert_enqueued`, `run_due`, `advance`, `clock`."""
    mark = request.node.get_closest_marker("fairlane")
    with fairlane_application.testing(*(mark.args if mark else ()), **(mark.kwargs if mark else {})) as jobs:
        yield jobs


@pytest.fixture
def fairlane_app(fairlane_jobs: Sandbox) -> Fairlane:
    """Your own application on a store in memory, fresh for each test; afterwards it is as it was."""
    return fairlane_jobs.app
