"""A real PgBouncer in transaction mode before a test server: no session survives a commit."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from tests.servers.account import server_account
from tests.servers.keeper import Keeper
from tests.servers.ports import free_port
from tests.servers.postgres import SUPERUSER, PostgresServer

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 10.0
CONFIGURATION = """\
[databases]
* = host=127.0.0.1 port={server_port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
auth_user = {superuser}
auth_query = select rolname, '' from pg_catalog.pg_roles where rolname = $1
pool_mode = transaction
default_pool_size = {pool_size}
max_client_conn = 500
server_reset_query =
server_round_robin = 1
ignore_startup_parameters = extra_float_digits
admin_users = {superuser}
"""


def pgbouncer_program() -> Path | None:
    """Where PgBouncer is installed, or None."""
    found = shutil.which(
        "pgbouncer", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
    )
    return None if found is None else Path(found)


class PgBouncer:
    """A transaction pooler for every database of one server, on a port of its own.

    With few server connections handed round in turn, whatever leans on a session (prepared statements, temporary tables, `set`,
    `listen`, session locks) is found out quickly. Everybody arrives at the server as who they say they are.
    """

    def __init__(self, server: PostgresServer, *, pool_size: int = 8) -> None:
        self._server, self._pool_size = server, pool_size
        self._account = server_account()
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper: Keeper | None = None
        self._directory: Path | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        program = pgbouncer_program()
        if program is None:
            raise RuntimeError("PgBouncer is not installed: run `apt install pgbouncer`, or `make pgbouncer` as root")
        self._directory = self._account.make_directory("fairlane-pgb-")
        try:
            self._configure(self._directory)
            self._launch(program, self._directory)
        except BaseException:
            self.close()
            raise

    def dsn(self, dbname: str = "postgres", user: str = SUPERUSER) -> str:
        return f"postgresql://{quote(user, safe='')}@127.0.0.1:{self.port}/{quote(dbname, safe='')}"

    def close(self) -> None:
        """End it at once and remove its files."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._keeper is not None:
            self._keeper.dismiss()
            self._keeper = None
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _configure(self, directory: Path) -> None:
        self.port = free_port()
        users = directory / "users"
        users.write_text(f'"{SUPERUSER}" ""\n')
        settings = CONFIGURATION.format(
            port=self.port,
            server_port=self._server.port,
            users=users,
            pool_size=self._pool_size,
            superuser=SUPERUSER,
        )
        (directory / "pgbouncer.ini").write_text(settings)
        self._account.own(directory)

    def _launch(self, program: Path, directory: Path) -> None:
        with (directory / "log").open("wb") as log:
            command = [str(program), str(directory / "pgbouncer.ini")]
            self._process = self._account.popen(command, cwd=directory, log=log)
        self._keeper = Keeper(self._process.pid, directory, signal.SIGTERM)
        give_up_at = time.monotonic() + START_TIMEOUT_S
        while not self._accepts():
            if self._process.poll() is not None or time.monotonic() > give_up_at:
                said = (directory / "log").read_text(errors="replace")
                raise RuntimeError(f"PgBouncer did not start on port {self.port}:\n{said}")
            time.sleep(0.01)

    def _accepts(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True
