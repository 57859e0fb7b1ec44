"""Secrets told apart by name, and everywhere somebody could find one later."""

from __future__ import annotations

import base64
import logging
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

PASSWORD, BEARER, IN_A_URL, IN_A_QUERY = "canary/pass word", "canary-bearer-4711", "canary-url-pass", "canary-query-tok"
CLIENT_SECRET, COOKIE, NOTED, CAUSE, LOGGED = (
    "canary-client-secret",
    "canary-cookie",
    "canary-noted",
    "canary-cause-key",
    "canary-logged",
)
CLOSING, HEADER, CORPUS = "canary-closing-pw", "canary-job-header", "canary-corpus-4711"
EVERY = (PASSWORD, BEARER, IN_A_URL, IN_A_QUERY, CLIENT_SECRET, COOKIE, NOTED, CAUSE, LOGGED, CLOSING, HEADER, CORPUS)
PLANTED = {
    place: f"canary-{place.replace(' ', '-')}-4711"
    for place in (
        *(
            "argument",
            "result",
            "header",
            "password of a store",
            "guessed token",
            "body of a request",
            "query of a request",
        ),
        *("path of a webhook", "query of a webhook", "key of a webhook"),
        *("user of a mail server", "password of a mail server", "text of a mail"),
        *("access key", "secret key", "signature", "token of a service"),
    )
}
"""Where a secret is, in an application that works with it; none of them is in what its processes print and log."""
CONTROL = "said-on-purpose"
"""What an application logs at DEBUG when it is loaded: it is in every log that is captured whole."""
SHORTEST = 12
"""So much of one is already too much."""


def spellings(secret: str) -> set[bytes]:
    """As it is, cut, quoted for a URL, and in base64 wherever in a longer text it stood."""
    raw = secret.encode()
    found = {raw, raw[:SHORTEST], raw[-SHORTEST:], quote(secret, safe="").encode()}
    for shift in range(3):
        encoded = base64.b64encode(b"\x00" * shift + raw)
        found.add(encoded[4 if shift else 0 : len(encoded) - 4])
    return {spelling for spelling in found if len(spelling) >= SHORTEST}


def hits(where: bytes, secrets: tuple[str, ...]) -> list[bytes]:
    return [spelling for secret in secrets for spelling in spellings(secret) if spelling in where]


def dumped_file(path: Path) -> bytes:
    """All of a SQLite database, its log and what was deleted from it."""
    return b"".join(file.read_bytes() for file in sorted(path.parent.glob(f"{path.name}*")))


def dumped_database(dsn: str) -> bytes:
    """Every row of every table of Fairlane's, as text."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        tables = conn.execute("select tablename from pg_tables where schemaname = 'fairlane' order by 1").fetchall()
        assert len(tables) > 20
        return b"\n".join(
            row[0].encode()
            for (table,) in tables
            for row in conn.execute(sql.SQL("select t::text from {} t").format(sql.Identifier("fairlane", table)))
        )


class Logged(logging.Handler):
    """All that is logged: what formatters print, and what a record carries beside the exception itself.

    That is there for collectors of errors such as Sentry, which scrub what they send (docs/operate/workers.md).
    """

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != "httpx":  # the test's own client, which tells where it goes
            carried = {name: value for name, value in vars(record).items() if name != "exc_info"}
            self.lines.append(f"{self.format(record)} {carried!r}")

    @property
    def text(self) -> bytes:
        return "\n".join(self.lines).encode()
