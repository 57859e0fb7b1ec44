"""`fairlane …` and programs that use it, in processes of their own that are forked from one which has imported Fairlane.

Each still has its own process, environment, working directory and exit; it starts in a tenth of the time. Run as a
program this is the server: it reads requests as lines of JSON and answers each with the exit code.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import select
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

NOT_HERE = {"dashboard", "demo", "dev", "worker"}
"""Commands that start processes or servers of their own."""


def can_be_forked(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a forked process is as good as a new one: not if an interpreter has to be told something at its start."""
    settings = {name for name in environment if name.startswith("PYTHON")} - {"PYTHONPATH"}
    told = {name for name in settings if environment[name] != os.environ.get(name)}
    return bool(arguments) and arguments[0] not in NOT_HERE and arguments[0][0] != "-" and not told


class Commands:
    """The server, started when first needed; it ends with this process."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None

    def run(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: str = "",
        program: str | None = None,
        strict: bool = False,
        timeout: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """`program`: a file of Python, instead of the command. `strict`: warnings are errors, as with `-W error`."""
        with tempfile.TemporaryDirectory() as directory:
            given, out, err = (Path(directory) / name for name in ("stdin", "stdout", "stderr"))
            given.write_text(stdin, "utf-8")
            asked = {"arguments": arguments, "cwd": str(cwd), "env": dict(env), "strict": strict, "program": program}
            code = self._ask({**asked, "files": [str(given), str(out), str(err)]}, timeout)
            return subprocess.CompletedProcess(["fairlane", *arguments], code, out.read_text(), err.read_text())

    def _ask(self, asked: Mapping[str, object], timeout: float) -> int:
        if self._server is None or self._server.poll() is not None:
            self._server = subprocess.Popen(
                [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
            atexit.register(self._server.kill)
        server = self._server
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(asked).encode() + b"\n")
        server.stdin.flush()
        if not select.select([server.stdout], [], [], timeout)[0]:
            os.killpg(server.pid, 9)
            raise subprocess.TimeoutExpired(str(asked["arguments"]), timeout)
        return int(server.stdout.readline())


COMMANDS = Commands()


def serve() -> str | None:
    """Answer requests until there are no more; a forked process returns with the program it was asked for."""
    for line in sys.stdin.buffer:
        pid = os.fork()
        if pid == 0:
            return become(json.loads(line))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        sys.stdout.write(f"{code}\n")
        sys.stdout.flush()
    sys.exit(0)


def become(asked: dict[str, Any]) -> str | None:
    given, out, err = asked["files"]
    for number, (file, flags) in enumerate(((given, os.O_RDONLY), (out, os.O_WRONLY), (err, os.O_WRONLY))):
        opened = os.open(file, flags | os.O_CREAT, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    os.chdir(str(asked["cwd"]))
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.path[:0] = [str(asked["cwd"]), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    program: str | None = asked["program"]
    sys.argv = [program or "fairlane", *asked["arguments"]]
    if asked["strict"]:
        warnings.simplefilter("error")
    return program


if __name__ == "__main__":
    del sys.path[0]
    from fairlane.cli.main import COMMANDS as NAMES, main

    for name in set(NAMES) - NOT_HERE:
        importlib.import_module(f"fairlane.cli.commands.{name.replace('-', '_')}")

    program = serve()
    main() if program is None else runpy.run_path(program, run_name="__main__")
