"""`fairlane doctor`: what is wrong now, most urgent first, and what is wrong with the installation, with remedies.

The checks of the installation run in order and end at the first one that lacks its prerequisites.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import click

from fairlane import __version__
from fairlane.cli.options import at_store, prints
from fairlane.cli.output import FAILED, Printer, distance, plural
from fairlane.cli.target import At, isolator_of, schema_of, spool_depth, sqlite_file, without_fallback
from fairlane.client.app import Fairlane
from fairlane.core.clock import SystemClock
from fairlane.core.ops import ReadSetBack
from fairlane.core.text import one_line
from fairlane.core.workflows import RESULT_KEY, WORKFLOW_HEADER
from fairlane.errors import (
    ConfigError,
    FairlaneError,
    MissingExtra,
    NeedsNewerCode,
    SchemaOutOfDate,
    StoreError,
    nearest,
)
from fairlane.stores.migrations import require
from fairlane.stores.url import redacted, store_named_by

if TYPE_CHECKING:
    from fairlane.client.settings.model import Settings
    from fairlane.core.job import Job, Lease

SKEW_WARN_S = 2.0
SKEW_FAIL_S = 60.0
STOPPED_LATELY = timedelta(days=1)
PAGES = 5
"""How many unfinished jobs are checked for unknown types: five pages, a thousand jobs."""

State = Literal["ok", "note", "warn", "fail"]
STATES: dict[str, State] = {"critical": "fail", "warning": "warn", "info": "note"}


class Finding(NamedTuple):
    check: str
    state: State
    says: str
    remedy: str = ""
    since: datetime | None = None
    jobs: int | None = None
    tenants: int | None = None


@click.command()
@at_store
@prints
def doctor(at: At, out: Printer) -> None:
    """Say what is wrong now, and check settings, store and application, with remedies.

    Changes nothing. Exits with 1 if a check fails or something critical is wrong; warnings do not count as failures.
    """
    findings = list(examine(at))
    findings.sort(key=lambda finding: ("fail", "warn", "note", "ok").index(finding.state))
    failed = sum(finding.state == "fail" for finding in findings)
    if out.as_json:
        out.data({"ok": not failed, "checks": [finding._asdict() for finding in findings]})
    else:
        out.table(("state", "check", "finding"), [(f.state, f.check, _with_remedy(f)) for f in findings])
        warned = sum(finding.state == "warn" for finding in findings)
        out.note(f"{plural(failed, 'failure')}, {plural(warned, 'warning')}")
    if failed:
        raise click.exceptions.Exit(FAILED)


def _with_remedy(finding: Finding) -> str:
    return f"{finding.says.rstrip('.')} → {finding.remedy}" if finding.remedy else finding.says


def examine(at: At) -> Iterator[Finding]:
    yield from _versions()
    try:
        settings = at.settings()
        application = at.application()
    except ConfigError as error:
        yield Finding("settings", "fail", one_line(str(error)), "correct the setting it names")
        return
    yield from _settings_in_force(settings)
    if application is not None:
        yield from _tasks(application)
    if settings.url.lower().startswith("memory:"):
        yield Finding("store", "warn", "memory: jobs end with the process", "use sqlite:/// or postgresql://")
        return
    yield from _spool(settings)
    found = list(_schema(settings))
    yield from found
    if any(finding.check == "store" for finding in found):
        return
    try:
        yield from _sqlite_place(settings)
        if not found or found[0].state == "ok":
            yield from _isolation(settings)
            yield from _supervisors(settings)
            with Fairlane(settings=without_fallback(settings)) as client:
                yield from _health(client)
                yield from _concerns(client)
                if application is not None:
                    yield from _unknown_types(client, application)
    except (FairlaneError, OSError) as error:
        yield _unreachable(error)


def _versions() -> Iterator[Finding]:
    yield Finding("versions", "ok", f"fairlane {__version__}, Python {platform.python_version()}")


def _settings_in_force(settings: Settings) -> Iterator[Finding]:
    yield Finding("url", "ok", f"{redacted(settings.url)}, from {settings.source('url')}")
    defaults = ("default", f"profile {settings.profile}")
    others = [
        f"{name} from {source}" for name, _, source in settings.shown() if name != "url" and source not in defaults
    ]
    yield Finding("settings", "ok", "; ".join(others) or "all others have their defaults")
    try:
        settings.alerts.require_extra()
    except MissingExtra as error:
        yield Finding("alerts", "fail", f"{error.purpose} needs {error.package}, which is not installed", error.remedy)
    if settings.profile == "development":
        yield Finding(
            "profile", "warn", "development: purge() is allowed", 'set profile = "production" on production systems'
        )
    if settings.fallback == "memory":
        yield Finding(
            "fallback",
            "warn",
            "the application keeps jobs in memory while the store is away, or if its package is missing, and loses "
            "them when it ends",
            'set fallback = "refuse" where jobs must not be lost',
        )


def _tasks(application: Fairlane) -> Iterator[Finding]:
    if application.tasks:
        yield Finding("application", "ok", f"{plural(len(application.tasks), 'task')} registered")
    else:
        yield Finding(
            "application", "warn", "no task is registered", "import the modules that define tasks where the app is made"
        )


def _spool(settings: Settings) -> Iterator[Finding]:
    """Where enqueues wait while the store is away, and what waits there now."""
    if settings.spool is None:
        return
    if settings.spool == "memory":
        yield Finding(
            "spool",
            "warn",
            "memory: enqueues made while the store is away end with their process",
            "name a directory in `spool`",
        )
        return
    try:
        depth = spool_depth(settings)
    except (FairlaneError, OSError) as error:
        yield Finding("spool", "fail", one_line(str(error)), "name a directory that the application may write")
        return
    if depth is None or depth.oldest_at is None:
        yield Finding("spool", "ok", f"{settings.spool} {'is not there yet' if depth is None else 'is empty'}")
        return
    says = f"{plural(depth.jobs, 'job')} in {settings.spool} since {depth.oldest_at:%Y-%m-%d %H:%M:%S} UTC"
    if depth.refused:
        says += f", {depth.refused} refused by the store: {depth.reason}"
    yield Finding("spool", "warn", says, "a process that uses this spool replays them when the store answers")


def _schema(settings: Settings) -> Iterator[Finding]:
    """Also the first check that fails if the store cannot be reached. A Redis store keeps no schema."""
    if store_named_by(settings.url) == "redis":
        return
    try:
        migrator = schema_of(settings)
        state = migrator.state()
    except (FairlaneError, OSError) as error:
        yield _unreachable(error)
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


def _sqlite_place(settings: Settings) -> Iterator[Finding]:
    """The library, the journal and the file system of a SQLite store."""
    from fairlane.stores.sqlite.borrowed import chosen_library
    from fairlane.stores.sqlite.connection import load
    from fairlane.stores.sqlite.journal import FIRST_SAFE_WAL
    from fairlane.stores.sqlite.location import filesystem_of

    file = sqlite_file(settings)
    if file is None:
        return
    library = chosen_library(settings.sqlite_library)
    connect, version = load(library)
    safe = ".".join(map(str, FIRST_SAFE_WAL))
    if tuple(map(int, version.split("."))) >= FIRST_SAFE_WAL:
        yield Finding("sqlite library", "ok", f"{library} with SQLite {version}")
    else:
        says = f"{library} with SQLite {version}, older than {safe}: the slower rollback journal is used"
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


def _isolation(settings: Settings) -> Iterator[Finding]:
    """How tenants are isolated in a PostgreSQL store."""
    if not store_named_by(settings.url).startswith("postgres"):
        return
    found = isolator_of(settings).look()
    if found is None:
        return
    state, begins, remedy = _ISOLATION[found.state]
    yield Finding("isolation", state, f"{begins}: {found.says}", remedy)


def _supervisors(settings: Settings) -> Iterator[Finding]:
    """What holds up or has stopped processes that supervisors in SQL drive, where they are installed."""
    if not store_named_by(settings.url).startswith("postgres"):
        return
    from fairlane.cli.target import contract_of

    if not contract_of(settings).state().expanded:
        return
    from fairlane.supervisors.function_check import examine_functions
    from fairlane.supervisors.kit import process_counts

    findings = examine_functions(settings)
    for found in findings:
        if found.state == "refused":
            says = f"{plural(found.waiting, 'task')} waiting: {found.says}"
            yield Finding("supervisors", "fail", says, found.remedy.rstrip(".;"))
    if warnings := [found for found in findings if found.state == "warning"]:
        says = f"{plural(len(warnings), 'warning')} about functions of the worker, such as {warnings[0].function}: "
        yield Finding("supervisors", "warn", says + warnings[0].says, "see `fairlane supervisors check`")
    counts, since = process_counts(settings), SystemClock().now() - STOPPED_LATELY
    for kind in counts:
        if kind.last_stopped_at is not None and kind.last_stopped_at > since:
            says = f"{kind.process}: {kind.stopped} stopped without success, the last within a day"
            again = f"start them again: `fairlane supervisors restart {kind.process} --stopped`"
            yield Finding("supervisors", "warn", says, f"see `fairlane supervisors errors`; {again}")
    if not findings:
        yield Finding("supervisors", "ok", f"open processes: {sum(kind.open for kind in counts)}")


_ISOLATION: dict[str, tuple[State, str, str]] = {
    "database": ("ok", "by the database", ""),
    "convention": ("ok", "by convention", "let PostgreSQL enforce it: `fairlane migrate isolate`"),
    "bypassed": ("warn", "bypassed", "log in with a role that is only granted the worker or api role"),
    "incomplete": ("fail", "incomplete", "run `fairlane migrate isolate` again"),
}


def _health(client: Fairlane) -> Iterator[Finding]:
    """The store's own report, and how far its clock is from this machine's."""
    before = client.runtime.clock.now()
    found = client.statistics.health()
    after = client.runtime.clock.now()
    yield Finding("store", "ok", f"{found.store} answers: {found.server}")
    yield from _newer_server(found.server)
    if found.durable:
        yield Finding("durability", "ok", "acknowledged writes survive a crash")
    for sentence in found.degraded:
        yield _from_sentence("durability", "warn" if found.durable else "fail", sentence)
    if not found.durable and not found.degraded:
        yield Finding("durability", "warn", "jobs end with the process", "use sqlite:/// or postgresql://")
    skew_s = (found.now - (before + (after - before) / 2)).total_seconds()
    uncertain_s = (after - before).total_seconds() / 2
    off_s = max(abs(skew_s) - uncertain_s, 0.0)
    state: State = "fail" if off_s > SKEW_FAIL_S else "warn" if off_s > SKEW_WARN_S else "ok"
    says = "within a moment of this machine's" if state == "ok" else f"{skew_s:+.1f} s from this machine's"
    yield Finding("clock", state, says, "" if state == "ok" else "let both follow NTP; the store's clock decides")
    past = client.runtime.store.run(ReadSetBack())
    if past.at is not None and past.now < past.at + timedelta(seconds=past.behind_s):
        says = f"the store's clock was set back by {past.behind_s:.0f} s at {past.at:%Y-%m-%d %H:%M:%S} UTC: delays, "
        says += "retries and leases of the time before began anew, and times shown from then may lie ahead"
        yield Finding("clock", "warn", says, "keep the clock right, by NTP for instance")


def _concerns(client: Fairlane) -> Iterator[Finding]:
    """What is wrong now."""
    found = client.alerts.concerns()
    for one in found.concerns:
        since = "" if one.since is None else f" ({distance(one.since, found.now)})"
        tenants = "" if one.tenants is None or one.tenants < 2 else f", of {one.tenants} tenants"
        says = f"{one.says}{tenants}{since}"
        check = one.code.replace("_", " ")
        yield Finding(check, STATES[one.severity], says, one.helps, one.since, one.jobs, one.tenants)


def _newer_server(server: str) -> Iterator[Finding]:
    """A PostgreSQL newer than this release was tested with."""
    name, _, version = server.partition(" ")
    if name == "PostgreSQL":
        from fairlane.stores.postgres.connection import NEWEST_SERVER, OLDEST_SERVER

        if int(version[:2]) > NEWEST_SERVER:
            says = f"{server} is newer than this release was tested with ({OLDEST_SERVER} to {NEWEST_SERVER})"
            yield Finding("server version", "warn", says, "see whether a newer fairlane names it")


def _unknown_types(client: Fairlane, application: Fairlane) -> Iterator[Finding]:
    """Unfinished jobs whose type the application does not register, or that no worker that met them could read."""
    types: dict[str, int] = {}
    too_new: dict[str, list[Job]] = {}
    unreadable: dict[tuple[str, str], list[Job]] = {}
    before: int | None = None
    for _ in range(PAGES):
        page = client.jobs.list(status=("pending", "processing", "failed"), limit=200, before=before)
        for job in page.jobs:
            types[job.type] = types.get(job.type, 0) + 1
            if job.status == "pending" and job.error_type == NeedsNewerCode.__name__:
                too_new.setdefault(job.type, []).append(job)
            elif job.status != "processing" and (problem := _problem(application, job)) is not None:
                unreadable.setdefault((job.type, problem), []).append(job)
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
    for name, jobs in sorted(too_new.items()):
        says = f'{len(jobs)} of type "{name}" put off, such as {jobs[0].id}: {jobs[0].last_error}'
        yield Finding("newer code", "warn", says, "start workers with the newer code, or cancel them")
    for (_, problem), jobs in sorted(unreadable.items()):
        says = f"{plural(len(jobs), 'waiting job')} cannot be read, such as {jobs[0].id}: {problem}"
        yield Finding(
            "unreadable", "warn", says, "register an upcaster, deploy the code that reads them, or cancel them"
        )
    if not unknown:
        looked = "all unfinished jobs" if before is None else f"the newest {PAGES * 200} unfinished jobs"
        yield Finding("unknown type", "ok", f"none among {looked}")


class _StoredPayload(NamedTuple):
    """What reading the arguments of a job needs of its lease."""

    payload: str
    payload_version: int
    unreadable: str | None = None


def _problem(application: Fairlane, job: Job) -> str | None:
    """Why the application could not read a waiting job's arguments; None: it can, or does not know its task.

    Of a node that takes results of others, only the version and the names can be checked before they are there.
    """
    task = application.tasks.get(job.type)
    if task is None:
        return None
    try:
        task.decode(cast("Lease", _StoredPayload(job.payload, job.payload_version)))
    except Exception as error:  # noqa: BLE001 - an upcaster is the application's code
        takes_results = WORKFLOW_HEADER in job.headers and RESULT_KEY in job.payload
        missing = task.definition.upcasters.missing(task.name, job.payload_version, task.definition.version)
        if not takes_results or missing or isinstance(error, NeedsNewerCode):
            return one_line(str(error) or type(error).__name__)
    return None


def _unreachable(error: Exception) -> Finding:
    remedy = (
        "check the url, and that the server runs and accepts your credentials" if isinstance(error, StoreError) else ""
    )
    return Finding("store", "fail", one_line(str(error)), remedy)


def _from_sentence(check: str, state: State, sentence: str) -> Finding:
    """A sentence of the form "what is wrong: why it matters; what to do", as stores report it."""
    says, _, remedy = sentence.rpartition("; ")
    return Finding(check, state, says or sentence, remedy if says else "")
