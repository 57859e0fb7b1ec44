"""How long a newcomer waits: `import fairlane`, `fairlane --help`, and a first command, each in a new process.

    python -m bench startup

The median of several starts; beside each what an empty interpreter takes, which no package can go below.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from time import perf_counter

STARTS = 11
GOALS_MS = {"import fairlane": 60, "fairlane --help": 200}


def median_ms(arguments: list[str], directory: str) -> float:
    taken = []
    for _ in range(STARTS):
        began = perf_counter()
        subprocess.run([sys.executable, *arguments], cwd=directory, check=True, capture_output=True)
        taken.append((perf_counter() - began) * 1000)
    return statistics.median(taken)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="fairlane-bench-") as directory:
        empty_ms = median_ms(["-c", "pass"], directory)
        print(f"{'an empty interpreter':<24} {empty_ms:6.0f} ms")
        for name, arguments in (
            ("import fairlane", ["-c", "import fairlane"]),
            ("import Fairlane", ["-c", "from fairlane import Fairlane"]),
            ("fairlane --help", ["-m", "fairlane", "--help"]),
            ("fairlane jobs --help", ["-m", "fairlane", "jobs", "--help"]),
            ("fairlane enqueue", ["-m", "fairlane", "enqueue", "mail.send", "to=7"]),
            ("fairlane jobs list", ["-m", "fairlane", "jobs", "list"]),
        ):
            whole_ms = median_ms(arguments, directory)
            # A package is imported into an interpreter that runs; a command starts its own.
            own_ms = whole_ms - empty_ms if name.startswith("import") else whole_ms
            goal = f"   goal: under {GOALS_MS[name]} ms" if name in GOALS_MS else ""
            print(f"{name:<24} {own_ms:6.0f} ms{goal}")


if __name__ == "__main__":
    main()
