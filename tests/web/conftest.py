"""A dashboard for every test, and a browser for those that need one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.api.conftest import nothing_configured
from tests.web.house import DashboardHouse

__all__ = ["nothing_configured"]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
# `make test` installs Chromium where it may (tools/ensure_package); elsewhere the pages are tested without a browser.
collect_ignore_glob = [] if CHROMIUM else ["test_browser*.py"]


@pytest.fixture(scope="session")
def built_dashboard() -> Iterator[DashboardHouse]:
    house = DashboardHouse()
    yield house
    house.close()


@pytest.fixture
def house(built_dashboard: DashboardHouse) -> DashboardHouse:
    built_dashboard.furnish()
    return built_dashboard


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Of one module: while it is open, no test of this process can run an event loop of its own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()
