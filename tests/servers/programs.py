"""The programs that come with a PostgreSQL server, run to their end."""

from __future__ import annotations

from tests.servers.account import server_account
from tests.servers.postgres import PostgresServer


def run_program(server: PostgresServer, program: str, *arguments: str) -> str:
    ran = server_account().run([str(server.programs / program), *arguments])
    output = ran.stdout.decode()
    assert ran.returncode == 0, output
    return output


def run_by_psql(server: PostgresServer, database: str, text: str) -> None:
    file = server.directory / f"{database}.sql"
    file.write_text(text)
    run_program(server, "psql", server.dsn(database), "--quiet", "-v", "ON_ERROR_STOP=1", "-f", str(file))
