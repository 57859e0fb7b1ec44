"""Fetches Django's own tests of its tasks, which come with its source: `python tools/django_tests.py FOLDER`.

They are Django's, so they are not in this repository. The version is the one that the tests run with from Python 3.12
on; older Pythons run them against the package django-tasks.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
TESTS = "/tests/tasks/"


def main(folder: Path) -> None:
    found = re.search(r"^(Django==[6-9]\S*)", CONSTRAINTS.read_text("utf-8"), re.MULTILINE)
    assert found is not None, "constraints.txt names no Django from 6 on"
    with tempfile.TemporaryDirectory() as place:
        options = ("--no-deps", "--no-binary=django", "--ignore-requires-python", f"--dest={place}")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", *options]
        subprocess.run([*command, found[1]], check=True)
        [source] = Path(place).glob("*.tar.gz")
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "tasks").mkdir(parents=True)
        with tarfile.open(source) as archive:
            for member in archive:
                if member.isfile() and TESTS in member.name:
                    text = archive.extractfile(member)
                    assert text is not None
                    (folder / "tasks" / Path(member.name).name).write_bytes(text.read())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
