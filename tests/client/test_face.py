"""The package's face: what it exports and what importing it costs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import fairlane

PROBE = """
import json, sys, time
began = time.perf_counter()
import fairlane
took = time.perf_counter() - began
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
    assert sorted(fairlane.__all__) == sorted(name for names in fairlane._HOMES.values() for name in names)
