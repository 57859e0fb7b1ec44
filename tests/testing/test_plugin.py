"""The pytest plugin: finding the application, saying what is missing, and staying out of the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testing.test_guide import FILES, run

TEST = "def test_it(fairlane_app):\n    assert 'shop.send_welcome' in fairlane_app.tasks\n"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(FILES["shop.py"], "utf-8")
    (tmp_path / "test_it.py").write_text(TEST, "utf-8")
    return tmp_path


def test_the_application_is_found_by_the_settings_too(suite: Path) -> None:
    (suite / "fairlane.toml").write_text('app = "shop:app"\n')
    ran = run(suite, "-m", "pytest", "-q")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_fixture_of_ones_own_gives_the_application(suite: Path) -> None:
    (suite / "conftest.py").write_text(
        "import pytest, shop\n\n@pytest.fixture\ndef fairlane_application():\n    return shop.app\n"
    )
    ran = run(suite, "-m", "pytest", "-q")
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("given", "said"), [("", "which application? Set fairlane_app = module:name"), ("shp:app", 'Nearest: "shop"')]
)
def test_an_application_that_is_not_found_is_one_clear_line(suite: Path, given: str, said: str) -> None:
    (suite / "pytest.ini").write_text(f"[pytest]\nfairlane_app = {given}\n")
    ran = run(suite, "-m", "pytest", "-q")
    assert ran.returncode == 1
    assert said in ran.stdout
    assert "Traceback" not in ran.stdout


def test_an_unused_plugin_imports_nothing_of_the_client(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\n\ndef test_it():\n"
        "    assert [name for name in sys.modules if name.startswith('fairlane')] == ['fairlane', 'fairlane.pytest_plugin']\n"
    )
    ran = run(tmp_path, "-m", "pytest", "-q", "-W", "error", "--strict-config")
    assert ran.returncode == 0, ran.stdout + ran.stderr
