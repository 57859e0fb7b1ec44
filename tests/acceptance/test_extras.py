"""`pip install fairlane` is enough to enqueue and to work on SQLite; whatever needs an extra names it in one line."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions
from pathlib import Path
from typing import Any

import pytest

from fairlane.extras import PACKAGES

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "fairlane"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

MOST_PACKAGES = 10
MOST_BYTES = 35_000_000

CALLERS_OWN = {"asyncpg", "pytest", "sqlalchemy"}
"""Imported only where the caller has them: to recognise what was passed in, or by the plugin that pytest loads."""
IMPORTED_AS = {"opentelemetry_api": "opentelemetry"}
"""Packages that are imported under another name than they are installed by."""
COMES_WITH = {"asgiref": "django"}
"""Packages that another one brings along."""
NOT_NEEDED_HERE = {"django_tasks"} if sys.version_info >= (3, 12) else set[str]()
"""What an extra has for other versions of Python alone: Django 6 brings tasks of its own."""
INTEGRATIONS = {"django", "fastapi", "flask", "opentelemetry", "sentry"}
"""Extras that `all` leaves out: whoever integrates Fairlane with something has it."""

PLACES = {
    "postgres": ("stores/postgres/", "supervisors/", "contrib/django/project.py", "testing/transactions.py"),
    "redis": ("stores/redis/",),
    "dashboard": ("api/", "metrics/", "web/", "cli/server.py"),
    "alerts": ("alerts/", "http.py", "smtp.py", "supervisors/providers/"),
    "uvloop": ("worker/foreman/",),
    "django": ("contrib/django/",),
    "fastapi": ("contrib/fastapi.py",),
    "flask": ("contrib/flask.py",),
    "opentelemetry": ("contrib/opentelemetry.py",),
    "sentry": ("contrib/sentry.py",),
}
"""Where in src/fairlane the packages of an extra are imported."""

SHOP = """
from fairlane import Fairlane

app = Fairlane()

@app.task
def greet(name: str) -> str:
    return f"hello {name}"
"""

EMAIL = '[alerts.email]\nhost = "localhost"\nsender = "fairlane@example.com"\nto = ["oncall@example.com"]\n'
WEBHOOK = '[alerts.webhooks.pager]\nurl = "https://hooks.example.com/fairlane"\nsecret = "0123456789abcdef"\n'

WITHOUT = """
import sys

class Without:
    def __init__(self, finder):
        self._finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {packages} else self._finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self._finder, name)

sys.meta_path[:] = map(Without, sys.meta_path)
"""


def name_of(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    name = found[0].lower().replace("-", "_")
    return IMPORTED_AS.get(name, name)


def base_install() -> dict[str, Distribution]:
    """Fairlane and everything that comes with it when no extra is named."""
    found: dict[str, Distribution] = {}
    names = ["fairlane", *PROJECT["dependencies"]]
    while names:
        name = name_of(names.pop())
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:  # for another Python, or another system
            continue
        if name != "fairlane":
            names += [text for text in found[name].requires or () if "extra ==" not in text]
    return found


def third_party_imports() -> Iterator[tuple[str, str]]:
    """Each file of src/fairlane, with each package from elsewhere that it imports."""
    for file in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in {name.partition(".")[0] for name in names} - {"fairlane", "__future__"}:
                if name not in sys.stdlib_module_names:
                    yield file.relative_to(SRC).as_posix(), name


def test_extras_declare_the_packages_that_are_asked_for() -> None:
    declared = dict(PROJECT["optional-dependencies"])
    [everything] = declared.pop("all")
    assert {extra: sorted(map(name_of, packages)) for extra, packages in declared.items()} == {
        extra: sorted(packages) for extra, packages in PACKAGES.items()
    }
    assert everything == f"fairlane[{','.join(sorted(declared.keys() - INTEGRATIONS))}]"


def test_every_import_is_declared_and_those_of_an_extra_stand_where_it_is_needed() -> None:
    base = {name_of(requirement) for requirement in PROJECT["dependencies"]}
    places: dict[str, tuple[str, ...]] = {}
    for extra, packages in PACKAGES.items():
        for package in packages:
            places[package] = places.get(package, ()) + PLACES[extra]
    found = {(file, COMES_WITH.get(name, name)) for file, name in third_party_imports()}
    undeclared = {pair for pair in found if pair[1] not in base | CALLERS_OWN and pair[1] not in places}
    misplaced = {(file, name) for file, name in found if name in places and not file.startswith(places[name])}
    assert (undeclared, misplaced) == (set(), set())
    assert base - {name for _, name in found} == {"tzdata"}, "what nothing imports; zoneinfo reads tzdata by itself"


def test_the_base_install_is_small() -> None:
    base = base_install()
    files = [Path(str(each.locate_file(file))) for each in base.values() for file in each.files or ()]
    shipped = [file for file in SRC.rglob("*") if "-pytest-" not in file.name]  # what pytest compiles for itself
    taken = sum(file.stat().st_size for file in {*files, *shipped} if file.is_file())
    assert len(base) <= MOST_PACKAGES, sorted(base)
    assert taken <= MOST_BYTES


class Bare:
    """A directory with an application, and interpreters that find the base install alone, children included."""

    def __init__(self, place: Path) -> None:
        self.place, self.url = place, f"sqlite:///{place}/jobs.db"
        installed = base_install()
        missing = {
            package
            for package, owners in packages_distributions().items()
            if not {owner.lower().replace("-", "_") for owner in owners} & installed.keys()
        }
        assert missing >= {package for packages in PACKAGES.values() for package in packages} - NOT_NEEDED_HERE
        (place / "hidden").mkdir()
        (place / "hidden" / "sitecustomize.py").write_text(WITHOUT.format(packages=missing - {"sitecustomize"}))
        (place / "shop.py").write_text(SHOP)

    def python(self, *arguments: str, url: str = "") -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("FAIRLANE_", "PYTHON"))}
        env = kept | {"PYTHONPATH": str(self.place / "hidden"), "FAIRLANE_URL": url or self.url}
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=self.place, env=env, capture_output=True, text=True, timeout=60, check=False)

    def fairlane(self, *arguments: str, url: str = "") -> subprocess.CompletedProcess[str]:
        return self.python("-m", "fairlane", *arguments, url=url)


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    return Bare(tmp_path)


def test_the_base_install_enqueues_and_works_on_sqlite(bare: Bare) -> None:
    story = (
        "from shop import app, greet\n"
        "handle = greet.enqueue(name='acme')\n"
        "with app.running(drain=True): pass\n"
        "print(handle.result(timeout=5))\n"
        "print(greet.enqueue(name='again').id)\n"
        "app.close()\n"
    )
    ran = bare.python("-c", story)
    assert ran.stderr == ""
    [result, again] = ran.stdout.splitlines()
    assert result == "hello acme"
    worked = bare.fairlane("worker", "shop:app", "--drain", "--processes", "1", "--slots", "1")
    assert worked.returncode == 0, worked.stderr
    shown = bare.fairlane("jobs", "show", again, "--json")
    assert '"completed"' in shown.stdout, shown.stderr


def test_every_command_of_the_base_install_has_its_help(bare: Bare) -> None:
    story = (
        "from click.testing import CliRunner\n"
        "from fairlane.cli.main import COMMANDS, cli\n"
        "for words in ([], *([name] for name in COMMANDS)):\n"
        "    ended = CliRunner().invoke(cli, [*words, '--help'])\n"
        "    assert ended.exit_code == 0, (words, ended.output)\n"
        "print('all')\n"
    )
    ran = bare.python("-c", story)
    assert (ran.stdout, ran.stderr) == ("all\n", "")


@pytest.mark.parametrize(
    ("settings", "command", "url", "line"),
    [
        (
            "",
            "dashboard",
            "",
            "`fairlane dashboard` needs h11, which is not installed: pip install 'fairlane[dashboard]'",
        ),
        (
            "",
            "jobs list",
            "postgresql://me:hunter2@localhost/db",
            "url = \"postgresql://me:***@localhost/db\" needs psycopg, which is not installed: pip install 'fairlane[postgres]'",
        ),
        (
            EMAIL,
            "worker shop:app",
            "",
            "alerts.email needs aiosmtplib, which is not installed: pip install 'fairlane[alerts]'",
        ),
        (
            WEBHOOK,
            "worker shop:app",
            "",
            "alerts.webhooks needs httpx, which is not installed: pip install 'fairlane[alerts]'",
        ),
    ],
    ids=["dashboard", "postgres", "mail", "webhooks"],
)
def test_a_command_names_the_extra_it_needs(bare: Bare, settings: str, command: str, url: str, line: str) -> None:
    (bare.place / "fairlane.toml").write_text(settings)
    ended = bare.fairlane(*command.split(), url=url)
    assert ended.returncode == 2
    assert ended.stderr == f"fairlane: {line}\n"
    assert ended.stdout == ""


@pytest.mark.parametrize(
    ("settings", "act", "extra"),
    [
        ("", "from fairlane.api import create_api", "dashboard"),
        ("", "from fairlane.metrics import exposition", "dashboard"),
        ("", "Fairlane('postgresql://localhost/db').snapshot()", "postgres"),
        (EMAIL, "Fairlane().running().__enter__()", "alerts"),
        (WEBHOOK, "Fairlane().running().__enter__()", "alerts"),
        ("", "from fairlane.contrib.django import FairlaneBackend", "django"),
        ("", "from fairlane.contrib.fastapi import lifespan", "fastapi"),
        ("", "from fairlane.contrib.flask import init_app", "flask"),
        ("", "from fairlane.contrib.opentelemetry import instrument", "opentelemetry"),
        ("", "from fairlane.contrib.sentry import instrument", "sentry"),
    ],
    ids=[
        *("api", "metrics", "postgres", "mail", "webhooks"),
        *("django", "fastapi", "flask", "opentelemetry", "sentry"),
    ],
)
def test_python_code_meets_an_import_error_that_names_the_extra(
    bare: Bare, settings: str, act: str, extra: str
) -> None:
    (bare.place / "fairlane.toml").write_text(settings)
    story = (
        "from fairlane import ConfigError, Fairlane, MissingExtra\n"
        "try:\n"
        f"    {act}\n"
        "except ImportError as error:\n"
        "    assert isinstance(error, MissingExtra) and isinstance(error, ConfigError)\n"
        "    print(error)\n"
    )
    ran = bare.python("-c", story)
    assert ran.stderr == ""
    assert ran.stdout.endswith(f"which is not installed: pip install 'fairlane[{extra}]'\n")


def test_alerts_that_cannot_be_sent_keep_no_application_from_enqueueing(bare: Bare) -> None:
    (bare.place / "fairlane.toml").write_text(EMAIL + WEBHOOK)
    ran = bare.python("-c", "from shop import greet; print(greet.enqueue(name='acme').status())")
    assert (ran.stdout, ran.stderr) == ("pending\n", "")


def test_the_doctor_finds_alerts_that_cannot_be_sent(bare: Bare) -> None:
    (bare.place / "fairlane.toml").write_text(EMAIL)
    ended = bare.fairlane("doctor")
    assert ended.returncode == 1
    assert "alerts.email needs aiosmtplib" in ended.stdout
    assert "pip install 'fairlane[alerts]'" in ended.stdout


FIRST_GOOD = {"h11": (0, 16), "starlette": (1, 0, 1)}
"""CVE-2025-43859; CVE-2025-54121, CVE-2025-62727 and CVE-2026-48710."""


def test_no_extra_admits_a_version_with_a_known_hole() -> None:
    declared = [line for lines in PROJECT["optional-dependencies"].values() for line in lines]
    for name, first in FIRST_GOOD.items():
        floors = [line.removeprefix(f"{name}>=") for line in declared if line.startswith(f"{name}>=")]
        assert floors, f"{name} comes with fastapi or uvicorn, which admit older ones"
        assert all(tuple(map(int, floor.split("."))) >= first for floor in floors)
