"""The package's face: what it exports and what importing it costs."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import fairlane
from fairlane.client.steps import Verbs

PROBE = """
import json, sys, time
began = time.process_time()
import fairlane
took = time.process_time() - began
fairlane.Fairlane
drivers = [name for name in ("psycopg", "apsw", "redis", "click", "asyncio", "pydantic", "sqlite3") if name in sys.modules]
print(json.dumps([took, drivers]))
"""


def test_importing_is_quick_and_loads_no_driver() -> None:
    runs = [
        json.loads(subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    ]
    assert min(took for took, _ in runs) < 0.06
    assert runs[0][1] == []


def test_every_public_name_is_there() -> None:
    for name in fairlane.__all__:
        assert getattr(fairlane, name) is not None
        assert name in dir(fairlane)
    with pytest.raises(AttributeError, match="no attribute 'Fairlain'"):
        fairlane.Fairlain  # noqa: B018


def test_what_is_loaded_lazily_is_what_type_checkers_see() -> None:
    [block] = [node for node in ast.parse(Path(fairlane.__file__).read_text()).body if isinstance(node, ast.If)]
    seen = {each.module: {name.name for name in each.names} for each in block.body if isinstance(each, ast.ImportFrom)}
    assert seen == {home: set(names.split()) for home, names in fairlane._HOMES.items()}


def test_the_package_says_its_version() -> None:
    assert fairlane.__version__ == importlib.metadata.version("fairlane")


def test_an_application_keeps_few_names_of_its_own() -> None:
    with fairlane.Fairlane("memory://") as app:
        names = {name for name in dir(app) if not name.startswith("_")}
    assert len(names) <= 37, sorted(names)


def test_every_verb_of_every_group_has_an_async_twin() -> None:
    plain = {"batch", "call", "declare", "declared", "guard", "handle", "on_enqueue", "find_principal"}
    with fairlane.Fairlane("memory://") as app:
        groups = [value for value in vars(app).values() if isinstance(value, Verbs)]
    assert len(groups) == 17
    for group in groups:
        names = {name for name in dir(group) if not name.startswith("_")} - plain
        verbs = names - {"get", "items", "keys", "values"} if isinstance(group, Mapping) else names
        for name in verbs:
            assert f"a{name}" in verbs or (name[0] == "a" and name[1:] in verbs), f"{type(group).__name__}.{name}"


def test_the_reference_names_every_verb() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "client.md").read_text()
    with fairlane.Fairlane("memory://") as app:
        groups = {name: value for name, value in vars(app).items() if isinstance(value, Verbs)}
    for name, group in groups.items():
        [row] = [line for line in page.splitlines() if line.startswith(f"| `app.{name}` |")]
        names = {verb for verb in dir(group) if not verb.startswith("_")}
        verbs = {verb for verb in names if verb[0] != "a" or verb[1:] not in names}
        of_mapping = {"get", "items", "keys", "values"} if isinstance(group, Mapping) else set()
        assert set(re.findall(r"`(\w+)`", row)) == verbs - of_mapping, name
