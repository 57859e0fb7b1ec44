"""Opens connections with our session settings and keeps them between calls; each waits for an answer only so long.

A server's statement timeout is of no use when its answer never arrives: a router that forgot the connection, a frozen
proxy. Keepalives do not help where something in between answers them.
"""

from __future__ import annotations

import asyncio
import getpass
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.generators import execute
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from fairlane.core.clock import SystemClock
from fairlane.core.tracebacks import without_frames
from fairlane.errors import ConfigError
from fairlane.stores.postgres.errors import STORE, NoAnswer, unreachable
from fairlane.stores.url import redacted

T = TypeVar("T")

_monotonic = SystemClock().monotonic


class Connection(psycopg.Connection[Any]):
    answer_within_s: float | None = None
    """The longest silence to bear in a call; then the connection is closed and the call raises `NoAnswer`."""
    _kept: psycopg.Cursor[Any] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.prepared: dict[bytes, bytes] = {}
        """The names that `text_answer` has given to statements of this session."""

    def ask(self, statement: bytes, params: Sequence[object]) -> str | None:
        return self.wait(text_answer(self, statement, params))

    def kept_cursor(self) -> psycopg.Cursor[Any]:
        """One cursor for all calls: making one each time cost a tenth of an enqueue's time in this process."""
        if self._kept is None:
            self._kept = self.cursor(binary=True)
        return self._kept

    def wait(self, gen: PQGen[T], *args: Any, **kwargs: Any) -> T:
        if self.answer_within_s is not None:
            gen = _answered(gen, self, self.answer_within_s)
        return super().wait(gen, *args, **kwargs)

    @property
    def is_over(self) -> bool:
        """Broken, or a call that was cancelled twice still runs at the server: no other may have it."""
        return self.pgconn.transaction_status != TransactionStatus.IDLE


class AsyncConnection(psycopg.AsyncConnection[Any]):
    answer_within_s: float | None = None
    _kept: psycopg.AsyncCursor[Any] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.prepared: dict[bytes, bytes] = {}

    async def ask(self, statement: bytes, params: Sequence[object]) -> str | None:
        return await self.wait(text_answer(self, statement, params))

    def kept_cursor(self) -> psycopg.AsyncCursor[Any]:
        if self._kept is None:
            self._kept = self.cursor(binary=True)
        return self._kept

    async def wait(self, gen: PQGen[T], *args: Any, **kwargs: Any) -> T:
        if self.answer_within_s is not None:
            gen = _answered(gen, self, self.answer_within_s)
        return await super().wait(gen, *args, **kwargs)

    @property
    def is_over(self) -> bool:
        return self.pgconn.transaction_status != TransactionStatus.IDLE


def text_answer(conn: Connection | AsyncConnection, statement: bytes, params: Sequence[object]) -> PQGen[str | None]:
    """Run a statement that answers with one text, prepared in this session; parameters are texts and numbers.

    Straight through libpq: for an enqueue, psycopg's cursor took a fifth of the time this process spends.
    """
    name = conn.prepared.get(statement)
    if name is None:
        name = b"fairlane_%d" % len(conn.prepared)
        conn.pgconn.send_prepare(name, statement)
        _only(conn, (yield from execute(conn.pgconn)))
        conn.prepared[statement] = name
    texts = [None if param is None else str(param).encode() for param in params]
    if b"\0" in b"".join([text for text in texts if text]):
        raise psycopg.DataError("PostgreSQL text cannot contain NUL bytes")  # libpq would end the text there
    conn.pgconn.send_query_prepared(name, texts)
    value = _only(conn, (yield from execute(conn.pgconn))).get_value(0, 0)
    return None if value is None else value.decode()


def _only(conn: Connection | AsyncConnection, results: list[PGresult]) -> PGresult:
    for result in results:
        if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            raise psycopg.errors.error_from_result(result, encoding=conn.info.encoding)
    return results[0]


def _answered(gen: PQGen[T], conn: Connection | AsyncConnection, within_s: float) -> PQGen[T]:
    """Pass on what psycopg waits for; it resumes us ten times a second when nothing comes."""
    heard_s = _monotonic()
    try:
        state = next(gen)
        while True:
            ready = yield state
            if ready:
                heard_s = _monotonic()
            elif _monotonic() - heard_s > within_s:
                # Not to be used again: the answer may still come, and would be taken for the next call's.
                conn.pgconn.finish()
                raise NoAnswer(f"no answer within {within_s:g} s")
            state = gen.send(ready)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


_OPTIONS = " ".join(
    f"-c {setting}"
    for setting in (
        "synchronous_commit=on",  # a server-wide `off` must not lose what we acknowledge
        r"default_transaction_isolation=read\ committed",
        "timezone=UTC",  # elsewhere, instants before 1937 come with offsets down to the second
        "statement_timeout={statement_timeout_ms}",
        "lock_timeout={lock_timeout_ms}",
        "idle_in_transaction_session_timeout=60000",
        # Reported back by the server, unlike the others: tells whether these settings arrived.
        "intervalstyle=iso_8601",
    )
)


# A function or an operator of a schema in which others may make some can fit an argument better than the server's own,
# and would run as this role. (tests/supervisors/test_rights.py)
_OWN_PATH = r"-c search_path=pg_catalog,\ pg_temp"
OLDEST_SERVER, NEWEST_SERVER = 15, 18
"""Major versions of PostgreSQL: the first that is accepted, and the last that the suite has run on."""
_QUOTED = re.compile(r'"[^"]*"')


def parameters(
    dsn: str, *, statement_timeout_s: float, lock_timeout_s: float, runs_handlers: bool = False
) -> dict[str, Any]:
    """What to connect with. Only a session that runs an application's functions looks for names where the role does."""
    scheme, slashes, rest = dsn.partition("://")
    try:
        given = conninfo_to_dict(scheme.lower() + slashes + rest if slashes else dsn)
    except psycopg.ProgrammingError as error:
        shown = redacted(dsn)
        raise ConfigError(f'url = "{shown}": not a PostgreSQL address: {_why(str(error).strip(), shown)}') from None
    if "@" in str(given.get("host") or ""):
        raise ConfigError(f'url = "{redacted(dsn)}": a host has no @; in a password it is written %40')
    options = _OPTIONS.format(
        statement_timeout_ms=int(statement_timeout_s * 1000), lock_timeout_ms=int(lock_timeout_s * 1000)
    )
    if not runs_handlers:
        options = f"{options} {_OWN_PATH}"
    defaults = {
        "application_name": "fairlane",
        "connect_timeout": 5,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 20_000,
    }
    # UTF-8 whatever the environment, the role, the database or the address says: only UTF-8 carries every payload.
    ours = {"client_encoding": "UTF8", "options": f"{options} {given.get('options') or ''}".rstrip()}
    return defaults | given | ours


def _why(said: str, shown: str) -> str:
    """Why libpq takes no address: what it quotes may be the password, so only parameters that are shown are named."""
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()} | {"ssl"}
    given = [name for name, _ in parse_qsl(shown.partition("?")[2], keep_blank_values=True)]
    unknown = [name for name in given if name not in known]
    if unknown:
        return f'"{unknown[0]}" is no parameter of libpq'
    return _QUOTED.sub('"…"', said)


def refuse_old_server(conn: Connection | AsyncConnection) -> None:
    """Raise if the server is older than what the functions are written for; libpq learned its version by connecting."""
    major = conn.info.server_version // 10_000
    if 0 < major < OLDEST_SERVER:
        conn.pgconn.finish()
        raise ConfigError(
            f"the server is PostgreSQL {major}: expected PostgreSQL {OLDEST_SERVER} to {NEWEST_SERVER}; upgrade the "
            "server, or name another one in the url"
        )


def role_of(dsn: str) -> str:
    """The role that an address logs in as: the one it names, else the user of this process."""
    return str(conninfo_to_dict(dsn).get("user") or getpass.getuser())


def without_options(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if name != "options"}


class PostgresConnector:
    """Opens connections, with our session settings where the server, or a pooler before it, lets us."""

    store = STORE

    def __init__(self, params: dict[str, Any], answer_within_s: float) -> None:
        self._params, self._answer_within_s = params, answer_within_s
        self.pooled = False
        """A pooler refused or dropped our start-up settings: the server's own hold, and no session may be relied on."""

    def connect(self, *, patient: bool = False) -> Connection:
        """A new connection; a `patient` one waits for an answer as long as it takes, and prepares nothing."""
        given = self._given()
        try:
            conn = Connection.connect(**given, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            if not self._refused_options(given, error):
                raise unreachable(error) from without_frames(error)
            return self.connect(patient=patient)
        refuse_old_server(conn)
        conn.answer_within_s = None if patient else self._answer_within_s
        if not patient:
            self._prepare_if_ours(conn)
        return conn

    async def aconnect(self) -> AsyncConnection:
        given = self._given()
        try:
            conn = await AsyncConnection.connect(**given, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            if not self._refused_options(given, error):
                raise unreachable(error) from without_frames(error)
            return await self.aconnect()
        refuse_old_server(conn)
        conn.answer_within_s = self._answer_within_s
        self._prepare_if_ours(conn)
        return conn

    def _prepare_if_ours(self, conn: Connection | AsyncConnection) -> None:
        """Prepare statements where the session is ours. Behind a pooler the next call may meet another."""
        if conn.info.parameter_status("IntervalStyle") == "iso_8601":
            conn.prepare_threshold = 0
        else:
            self.pooled = True

    def _given(self) -> dict[str, Any]:
        return without_options(self._params) if self.pooled else self._params

    def _refused_options(self, given: Mapping[str, Any], error: psycopg.Error) -> bool:
        # PgBouncer answers unknown start-up parameters with a protocol violation;
        # libpq gives a failed connection no sqlstate to ask.
        refused = "options" in given and "startup parameter" in str(error)
        self.pooled = self.pooled or refused
        return refused

    def answers(self, conn: Connection) -> bool:
        try:
            conn.execute("")
        except psycopg.Error:
            conn.close()
            return False
        except BaseException:
            conn.close()
            raise
        return True

    async def aanswers(self, conn: AsyncConnection) -> bool:
        try:
            await conn.execute("")
        except psycopg.Error:
            await conn.close()
            return False
        except BaseException:
            conn.pgconn.finish()  # cancelled: nobody else has it to close it
            raise
        return True

    def end(self, conn: Connection) -> None:
        conn.close()

    async def aend(self, conn: AsyncConnection) -> None:
        await conn.close()

    def hang_up(self, conn: AsyncConnection, loop: asyncio.AbstractEventLoop) -> None:
        conn.pgconn.finish()
