"""A Django project in a folder of its own, and its commands in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict

MANAGE = """
import os, sys
from django.core.management import execute_from_command_line

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
execute_from_command_line(sys.argv)
"""


def on_postgresql(dsn: str) -> dict[str, Any]:
    """An entry of DATABASES."""
    about = conninfo_to_dict(dsn)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    given = {name: str(about.get(word) or "") for name, word in names.items()}
    return {"ENGINE": "django.db.backends.postgresql", **given}


class DjangoProject:
    """Files by name; its settings read DATABASES["default"] from the environment, as JSON."""

    def __init__(self, place: Path, files: Mapping[str, str], database: Mapping[str, Any]) -> None:
        self.place = place
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("FAIRLANE_", "DJANGO_"))}
        self._environment = {**kept, "DATABASE": json.dumps(database), "DJANGO_SETTINGS_MODULE": "settings"}
        for name, text in {"manage.py": MANAGE, **files}.items():
            file = place / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.lstrip(), "utf-8")

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python here; whatever it warns of is an error."""
        command = [sys.executable, "-W", "error", *arguments]
        ran = subprocess.run(
            command, cwd=self.place, env=self._environment, capture_output=True, text=True, timeout=110, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran

    @contextmanager
    def running(self, *arguments: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
        """A server, until the block ends."""
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=self.place, env=self._environment, text=True, **options
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(20)
