"""Django's own tests of its tasks, `tests/tasks` of its source, with Fairlane's backend in the place of Django's.

`make` fetches them (tools/django_tests.py). Below Python 3.12 they run against the package django-tasks, by its names.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import django
import pytest

ROOT = Path(__file__).parents[2]
FETCHED = Path(sys.prefix) / "django-tests" / "tasks"
ENDED = re.compile(r"^test_\w+ \(tasks\.\w+\.(\w+\.\w+)\) \.\.\. ?(\w*)$", re.MULTILINE)

NOT_APPLICABLE = {
    "DummyBackendTestCase.test_refresh_result": "writes into the list that is DummyBackend's store",
    "DummyBackendTestCase.test_refresh_result_async": "the same",
    "ImmediateBackendTestCase.test_cannot_get_result": "ImmediateBackend keeps no results; Fairlane does",
    "ImmediateBackendTestCase.test_cannot_refresh_result": "the same",
    "ImmediateBackendTestCase.test_cannot_pass_run_after": "ImmediateBackend cannot wait; Fairlane can",
}
ABOUT_DJANGO_TASKS = {
    "CustomBackendTestCase.test_enqueue_async_task_on_non_async_backend": 'it says "tasks" where Django says "Tasks"',
    "DummyBackendTestCase.test_validate_disallowed_async_task": "the same",
    "CustomBackendTestCase.test_no_enqueue": "quotes what Python says from 3.12 on",
}


@pytest.mark.requirement("W16")
def test_djangos_own_tests_pass_but_for_those_about_its_own_backends(tmp_path: Path) -> None:
    assert FETCHED.is_dir(), f"Django's tests are not in {FETCHED.parent}: make django-tests"
    is_backport = django.VERSION < (6, 0)
    (tmp_path / "tasks").mkdir()
    for file in FETCHED.iterdir():
        text = file.read_text("utf-8")
        (tmp_path / "tasks" / file.name).write_text(
            text.replace("django.tasks", "django_tasks") if is_backport else text, "utf-8"
        )
    command = [sys.executable, "-m", "django", "test", "tasks", "--verbosity", "2"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)]),
        "DJANGO_SETTINGS_MODULE": "tests.contrib.django_own_settings",
    }
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    ended = dict(ENDED.findall(ran.stderr))
    failed = {name for name, how in ended.items() if how != "ok"}
    assert failed == {*NOT_APPLICABLE, *(ABOUT_DJANGO_TASKS if is_backport else ())}, ran.stderr
    assert len(ended) >= 76, ran.stderr
