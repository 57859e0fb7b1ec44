"""How long a newcomer waits: from `pip install` to a first job seen done, `import fairlane`, and first commands.

    python -m bench startup

The wheel is installed into a new environment, without pip's cache; then five lines of Python run a job. The others are the
median of several starts, each in a new process; beside them what an empty interpreter takes, which no package can go below.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from time import perf_counter

STARTS = 11
GOALS_MS = {"import fairlane": 60, "fairlane --help": 200}
GOAL_S, GOAL_PACKAGES = 60, 10
ROOT = Path(__file__).parents[1]
FIRST_JOB = """\
from fairlane import Fairlane
app = Fairlane("sqlite:///first.db")
@app.task
def greet(name: str) -> str: return f"hello {name}"
with app.running(): print(greet.enqueue("Ada").result(timeout=10))
"""


def median_ms(arguments: list[str], directory: str) -> float:
    taken = []
    for _ in range(STARTS):
        began = perf_counter()
        subprocess.run([sys.executable, *arguments], cwd=directory, check=True, capture_output=True)
        taken.append((perf_counter() - began) * 1000)
    return statistics.median(taken)


def first_job(directory: Path) -> None:
    """Install the wheel as a newcomer would, and see a job done."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", directory, ROOT], check=True)
    [wheel] = directory.glob("*.whl")
    venv.create(directory / "new", with_pip=True)
    (directory / "first.py").write_text(FIRST_JOB, "utf-8")
    python = directory / "new" / "bin" / "python"
    began = perf_counter()
    subprocess.run([python, "-m", "pip", "--quiet", "--no-cache-dir", "install", wheel], check=True)
    installed = perf_counter()
    ran = subprocess.run([python, "first.py"], cwd=directory, check=True, capture_output=True, text=True)
    seen = perf_counter()
    assert ran.stdout == "hello Ada\n"
    listed = subprocess.run([python, "-m", "pip", "freeze"], check=True, capture_output=True, text=True).stdout
    lines, packages = len(FIRST_JOB.splitlines()), len(listed.splitlines())
    print(f"{'the wheel':<24} {wheel.stat().st_size / 1e6:6.2f} MB")
    print(f"{'pip install':<24} {installed - began:6.1f} s    {packages} packages, goal: at most {GOAL_PACKAGES}")
    print(f"{'a first job, done':<24} {seen - installed:6.1f} s    {lines} lines of Python")
    print(f"{'from install to job':<24} {seen - began:6.1f} s    goal: under {GOAL_S} s")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="fairlane-bench-") as directory:
        first_job(Path(directory))
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
