"""What a check finds, and the checks of the store: reachable, its schema, its durability, its clock, unknown types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from fairlane.cli.migrator import schema_of
from fairlane.cli.output import one_line
from fairlane.cli.target import sqlite_file
from fairlane.errors import FairlaneError, SchemaOutOfDate, StoreError, nearest
from fairlane.stores.migrations import require
from fairlane.stores.url import store_named_by

if TYPE_CHECKING:
    from fairlane.client.app import Fairlane
    from fairlane.client.settings.model import Settings

State = Literal["ok", "warn", "fail"]


class Finding(NamedTuple):
    check: str
    state: State
    says: str
    remedy: str = ""


def from_sentence(check: str, state: State, sentence: str) -> Finding:
    """A sentence of the form "what is wrong: why it matters; what to do", as stores report it."""
    says, _, remedy = sentence.rpartition("; ")
    return Finding(check, state, says or sentence, remedy if says else "")


SKEW_WARN_S = 2.0
SKEW_FAIL_S = 60.0
PAGES = 5
"""How many unfinished jobs are checked for unknown types: five pages, a thousand jobs."""


def schema(settings: Settings) -> Iterator[Finding]:
    """Also the first check that fails if the store cannot be reached."""
    try:
        migrator = schema_of(settings)
        state = migrator.state()
    except (FairlaneError, OSError) as error:
        yield unreachable(error)
        return
    file = sqlite_file(settings)
    if file is not None and state.expanded == 0:
        what = "holds no Fairlane schema yet" if file.exists() else "is not there yet"
        yield Finding("schema", "warn", f"{file} {what}", "the first enqueue creates it, or run `fairlane migrate up`")
        return
    try:
        require(state, migrator.needed)
    except SchemaOutOfDate as error:
        says, _, remedy = str(error).partition(": ")
        yield Finding("schema", "fail", says, remedy)
    else:
        yield Finding("schema", "ok", f"version {state.expanded}")


def sqlite_place(settings: Settings) -> Iterator[Finding]:
    """The library, the journal and the file system of a SQLite store."""
    from fairlane.stores.sqlite.connection import FIRST_SAFE_WAL, load
    from fairlane.stores.sqlite.location import filesystem_of

    file = sqlite_file(settings)
    if file is None:
        return
    connect, version = load(settings.sqlite_library)
    safe = ".".join(map(str, FIRST_SAFE_WAL))
    if tuple(map(int, version.split("."))) >= FIRST_SAFE_WAL:
        yield Finding("sqlite library", "ok", f"{settings.sqlite_library} with SQLite {version}")
    else:
        says = (
            f"{settings.sqlite_library} with SQLite {version}, older than {safe}: the slower rollback journal is used"
        )
        yield Finding("sqlite library", "warn", says, 'set sqlite_library = "apsw", or upgrade')
    kind = filesystem_of(file.resolve().parent)
    yield Finding("file system", "ok", f"{file.resolve().parent} is on {kind or 'an unknown file system'}")
    if file.exists():
        db = connect(str(file))
        try:
            [(mode,)] = db.execute("pragma journal_mode")
        finally:
            db.close()
        yield Finding("journal", "ok", str(mode))


def isolation(settings: Settings) -> Iterator[Finding]:
    """How tenants are isolated in a PostgreSQL store."""
    if not store_named_by(settings.url).startswith("postgres"):
        return
    from fairlane.cli.migrator import isolator_of

    found = isolator_of(settings).look()
    if found is None:
        return
    state, begins, remedy = _ISOLATION[found.state]
    yield Finding("isolation", state, f"{begins}: {found.says}", remedy)


_ISOLATION: dict[str, tuple[State, str, str]] = {
    "database": ("ok", "by the database", ""),
    "convention": ("ok", "by convention", "let PostgreSQL enforce it: `fairlane migrate isolate`"),
    "bypassed": ("warn", "bypassed", "log in with a role that is only granted the worker or api role"),
    "incomplete": ("fail", "incomplete", "run `fairlane migrate isolate` again"),
}


def health(client: Fairlane) -> Iterator[Finding]:
    """The store's own report, and how far its clock is from this machine's."""
    before = client.runtime.clock.now()
    found = client.statistics.health()
    after = client.runtime.clock.now()
    yield Finding("store", "ok", f"{found.store} answers: {found.server}")
    if found.durable:
        yield Finding("durability", "ok", "acknowledged writes survive a crash")
    for sentence in found.degraded:
        yield from_sentence("durability", "warn" if found.durable else "fail", sentence)
    if not found.durable and not found.degraded:
        yield Finding("durability", "warn", "jobs end with the process", "use sqlite:/// or postgresql://")
    skew_s = (found.now - (before + (after - before) / 2)).total_seconds()
    uncertain_s = (after - before).total_seconds() / 2
    off_s = max(abs(skew_s) - uncertain_s, 0.0)
    state: State = "fail" if off_s > SKEW_FAIL_S else "warn" if off_s > SKEW_WARN_S else "ok"
    says = "within a moment of this machine's" if state == "ok" else f"{skew_s:+.1f} s from this machine's"
    yield Finding("clock", state, says, "" if state == "ok" else "let both follow NTP; the store's clock decides")


def unknown_types(client: Fairlane, application: Fairlane) -> Iterator[Finding]:
    """Unfinished jobs whose type the application does not register."""
    types: dict[str, int] = {}
    before: int | None = None
    for _ in range(PAGES):
        page = client.jobs.list(status=("pending", "processing", "failed"), limit=200, before=before)
        for job in page.jobs:
            types[job.type] = types.get(job.type, 0) + 1
        before = page.next
        if before is None:
            break
    unknown = {name: number for name, number in types.items() if name not in application.tasks}
    for name, number in sorted(unknown.items()):
        yield Finding(
            "unknown type",
            "warn",
            f'{number} unfinished of type "{name}", which the application does not register.'
            f"{nearest(name, application.tasks)}",
            "deploy the code that defines it, or cancel them",
        )
    if not unknown:
        looked = "all unfinished jobs" if before is None else f"the newest {PAGES * 200} unfinished jobs"
        yield Finding("unknown type", "ok", f"none among {looked}")


def unreachable(error: Exception) -> Finding:
    remedy = (
        "check the url, and that the server runs and accepts your credentials" if isinstance(error, StoreError) else ""
    )
    return Finding("store", "fail", one_line(str(error)), remedy)
