"""The guide's own suite runs as printed: a user's tests with the plugin, in parallel, with unittest and with Django."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "testing.md"
FILE = re.compile(r"^```(?:python|ini)\n# (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILES = dict(FILE.findall(GUIDE.read_text("utf-8")))

DJANGO = """
from django.conf import settings

SECRET_KEY = "s"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
USE_TZ = True
"""


def run(directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own. Its pytest is spared a plugin of ours alone, which takes longer than the tests."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("FAIRLANE", "PYTEST"))}
    clean["PYTEST_ADDOPTS"] = "-p no:schemathesis"
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("suite")
    for name, text in FILES.items():
        (directory / name).write_text(text, "utf-8")
    return directory


def test_every_block_of_the_guide_goes_into_a_file() -> None:
    assert len(FILES) == len(re.findall(r"^```(?:python|ini)\n", GUIDE.read_text("utf-8"), re.MULTILINE)) == 7


def test_the_suite_of_the_guide_passes_in_parallel(suite: Path) -> None:
    ran = run(suite, "-m", "pytest", "-q", "-n", "2", "--strict-markers", "-W", "error", "--ignore=test_shop_django.py")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "7 passed" in ran.stdout


def test_the_suite_of_the_guide_passes_in_django(suite: Path) -> None:
    (suite / "project_settings.py").write_text(DJANGO, "utf-8")
    ran = run(
        suite, "-W", "error", "-m", "django", "test", "test_shop_django", DJANGO_SETTINGS_MODULE="project_settings"
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Ran 1 test" in ran.stderr


@pytest.mark.long  # tests/typing checks the same names in every run
def test_the_suite_of_the_guide_is_fully_typed(suite: Path) -> None:
    names = [name for name in FILES if name.endswith(".py") and "django" not in name]
    ran = run(suite, "-m", "mypy", "--strict", "--no-incremental", *names)
    assert ran.returncode == 0, ran.stdout
