"""Prepare an environment with what the demo needs, and show how far it is.

python tools/demo_environment.py DIRECTORY [EXTRA PACKAGE …]

On a terminal one line says which package is being installed; elsewhere each step is a line.
"""

from __future__ import annotations

import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORDS = ("Collecting ", "Obtaining ", "Downloading ", "Building ", "Preparing ", "Installing ")


def main() -> int:
    directory, *packages = sys.argv[1:]
    began = time.monotonic()
    show(f"making {directory}")
    venv.create(directory, with_pip=True, clear=True)
    command = [
        f"{directory}/bin/python",
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--progress-bar",
        "off",
    ]
    command += ["--constraint", "constraints.txt", "--editable", ".[dashboard,uvloop]", *packages]
    said: list[str] = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            said.append(line)
            word = next((word for word in WORDS if line.strip().startswith(word)), None)
            if word is not None:
                what = line.strip().removeprefix(word).split(" (")[0].split(", ")[0]
                show(f"{word.strip().lower()} {Path(what).name if '/' in what else what}"[:76])
    if pip.returncode:
        print("\n" + "".join(said[-20:]), file=sys.stderr)
        return pip.returncode
    show(f"{directory} is ready after {time.monotonic() - began:.0f} s")
    print(file=sys.stderr)
    return 0


def show(text: str) -> None:
    print(f"\r\033[K  {text}" if sys.stderr.isatty() else f"  {text}\n", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
