"""The guide for Django as printed, in a project that Django's own command has made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import django
import pytest

from tests.docs.page_program import BLOCK

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "django.md"
BEFORE = """
import django; django.setup()
from django.core.management import call_command
call_command("migrate", run_syncdb=True, verbosity=0)
call_command("check")
"""
AFTER = """
import shop.asgi
from django.test.utils import get_runner
from django.conf import settings
assert get_runner(settings)(verbosity=0, interactive=False).run_tests(["orders"]) == 0
"""


def run(place: Path, *arguments: str, **settings: str) -> list[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FAIRLANE_", "DJANGO_"))}
    environment = {**kept, "PYTHONPATH": str(place), **settings}
    command = [sys.executable, "-W", "error", *arguments]
    ran = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


@pytest.mark.requirement("W16")
def test_the_guide_works_as_printed(tmp_path: Path) -> None:
    run(tmp_path, "-m", "django", "startproject", "shop", ".")
    story = BEFORE
    for title, code in BLOCK.findall(PAGE.read_text("utf-8")):
        if django.VERSION < (6, 0):  # as its comments say
            code = code.replace("from django.tasks import", "from django_tasks import")
            code = code.replace('"fairlane.contrib.django"]', '"fairlane.contrib.django", "django_tasks"]')
        if not title:
            story += code
            continue
        file = tmp_path / title
        file.parent.mkdir(exist_ok=True)
        has_more = title == "shop/settings.py"
        file.write_text((file.read_text("utf-8") if has_more else "") + code, "utf-8")
    (tmp_path / "story.py").write_text(f"{story}{AFTER}", "utf-8")
    shown = run(tmp_path, "story.py", DJANGO_SETTINGS_MODULE="shop.settings")
    assert shown[0] == "System check identified no issues (0 silenced)."
    assert [line for line in shown if not line.startswith("System check")] == ["READY", "pending"]
