"""The contract of stores is importable: the store of the guide passes all of it, one with a fault does not."""

from __future__ import annotations

import ast
import os
import re
import sys
from pathlib import Path

import pytest

from fairlane.testing import conformance
from fairlane.testing.conformance import suite
from tests.testing.test_guide import FILE, run

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "writing-a-store.md"
FILES = dict(FILE.findall(GUIDE.read_text("utf-8")))
FAULT = "        self.asked[type(op).__name__] += 1\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


def test_the_suite_has_every_test_of_its_modules_and_no_name_twice() -> None:
    names = [
        node.name
        for path in Path(conformance.__path__[0]).glob("test_*.py")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name.startswith(("test_", "Test"))
    ]
    assert len(names) > 700
    assert sorted(names) == sorted(suite.TESTS)


def test_the_suite_needs_nothing_but_fairlane_and_pytest() -> None:
    needed = {*sys.stdlib_module_names, "fairlane", "msgspec", "pytest"}
    for path in Path(conformance.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert {name.partition(".")[0] for name in names} <= needed, path


def test_the_store_of_the_guide_passes_the_contract(project: Path) -> None:
    chosen = (
        ()
        if os.environ.get("FAIRLANE_LONG")
        else ("-k", "sync and not async and (claim or settle or enqueue or listener)")
    )
    ran = run(project, "-m", "pytest", "-q", "--strict-markers", "-W", "error", *chosen)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert int(re.search(r"(\d+) passed", ran.stdout)[1]) > 100


def test_a_store_that_forgets_what_it_settles_fails_it(project: Path) -> None:
    forgetful = FILES["counting.py"].replace(FAULT, FAULT + "        op = forget(op)\n")
    forget = (
        "from msgspec.structs import replace\nfrom fairlane.core.ops import Turn\n\n\n"
        "def forget(op):\n    return replace(op, outcomes=()) if isinstance(op, Turn) else op\n\n\n"
    )
    (project / "counting.py").write_text(forgetful.replace("T = TypeVar", forget + "T = TypeVar"), "utf-8")
    ran = run(project, "-m", "pytest", "-q", "-x", "-k", "settle and sync and not async")
    assert ran.returncode == 1, ran.stdout
    assert "1 failed" in ran.stdout
