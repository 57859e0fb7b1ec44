"""Whatever cuts an act short, act and audit record are both there or neither."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from fairlane.core.ops import ALL_TENANTS, PageAudit
from fairlane.errors import StoreError, StoreUnavailable
from fairlane.stores.postgres import PostgresStore
from fairlane.stores.sqlite import SqliteStore
from fairlane.testing.conformance.scene import Scene
from tests.faults.acts import ACTS, Staged
from tests.faults.cuts import Direction, cut_at, measure, offsets
from tests.faults.eventually import eventually
from tests.faults.places import Place
from tests.servers.proxy import Proxy
from tests.support.stores import Face, Ground

IS_LONG = bool(os.environ.get("FAIRLANE_LONG"))
SESSIONS_SINCE = (
    "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() "
    "and backend_start > to_timestamp(%s::float8 / 1e6)"
)


def test_every_act_is_staged() -> None:
    assert len(ACTS) == 30
    written = {action for name, stage in ACTS.items() for action in stage(_scene(), name).actions}
    assert len(written) == 29


def _scene() -> Scene:
    from fairlane.stores.sqlite import MemoryStore

    return Scene(MemoryStore())


class Stage(NamedTuple):
    """One database for all acts: each is about things of its own."""

    place: Place
    proxy: Proxy
    store: PostgresStore


@pytest.fixture(scope="module")
def shared(ground: Ground) -> Iterator[Stage]:
    place = Place(ground.server, ground.address("postgres").rpartition("/")[2])
    store = PostgresStore(place.dsn)
    with Proxy(place.server.port) as proxy:
        yield Stage(place, proxy, store)
    store.close()


@pytest.mark.requirement("L5", "L10")
@pytest.mark.parametrize("direction", ["sent", "received"])
@pytest.mark.parametrize("act", ACTS)
def test_an_act_cut_at_any_byte_and_its_audit_are_both_there_or_neither(
    shared: Stage, act: str, direction: Direction
) -> None:
    place, proxy, store = shared
    name = f"{act}-{direction}"
    scene = Scene(store, seed=zlib.crc32(name.encode()))
    length = measure(place, ACTS[act](scene, f"{name}-00000").op)[direction]
    began_us = place.number("select (extract(epoch from clock_timestamp()) * 1e6)::bigint")
    cuts: list[Staged] = []
    for number, offset in enumerate(offsets(length, length.call // 2), 1):
        staged = ACTS[act](scene, f"{name}-{number:05}")
        cuts.append(staged)

        def call(face: Face, staged: Staged = staged) -> None:
            try:
                face.run(staged.op)
            except StoreUnavailable as error:
                assert "may or may not" in str(error)

        cut_at(place, proxy, direction, length.before + offset, "close", call, "sync")
    # A server that lost its client finishes what it was told, and only then ends the session.
    eventually(lambda: place.number(SESSIONS_SINCE, began_us) == 0)
    fates = Counter(staged.has_happened(store) for staged in cuts)
    for staged in cuts:
        expected = staged.actions if staged.has_happened(store) else ()
        assert staged.records(store) == expected
    assert fates[True] >= 1
    if direction == "received":
        assert fates[False] == 0  # the answer comes after the commit


REFUSE_RECORDS = """
create function public.refuse() returns trigger language plpgsql as $$ begin raise exception 'the disk of the audit is full'; end $$;
create trigger refuse before insert on fairlane.audit for each row execute function public.refuse();
"""
REFUSE_AT_COMMIT = """
create function public.refuse() returns trigger language plpgsql as $$ begin raise exception 'not today'; end $$;
create constraint trigger refuse after insert on fairlane.audit deferrable initially deferred
for each row execute function public.refuse();
"""


@pytest.mark.requirement("L10")
@pytest.mark.parametrize("refusal", [REFUSE_RECORDS, REFUSE_AT_COMMIT], ids=["the record", "the commit"])
def test_an_act_whose_audit_cannot_be_written_does_not_happen(place: Place, store: PostgresStore, refusal: str) -> None:
    scene = Scene(store)
    every = [stage(scene, f"{name}-00001") for name, stage in ACTS.items()]
    with psycopg.connect(place.dsn, autocommit=True) as conn:
        conn.execute(refusal.encode())
    _assert_none_happens(store, every)


@pytest.mark.requirement("L10")
def test_an_act_whose_audit_cannot_be_written_does_not_happen_on_sqlite(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    scene = Scene(store)
    every = [stage(scene, f"{name}-00001") for name, stage in ACTS.items()]
    refusal = "create trigger refuse before insert on fairlane_audit begin select raise(abort, 'the disk is full'); end"
    store._db.change(lambda db: db.execute(refusal))
    _assert_none_happens(store, every)
    store.close()


def _assert_none_happens(store: PostgresStore | SqliteStore, every: list[Staged]) -> None:
    before = store.run(PageAudit(scope=ALL_TENANTS, limit=200)).records
    for staged in every:
        with pytest.raises(StoreError):
            store.run(staged.op)
        assert not staged.has_happened(store)
    assert store.run(PageAudit(scope=ALL_TENANTS, limit=200)).records == before


@pytest.fixture
def ram(tmp_path: Path) -> Iterator[Path]:
    """Who is killed loses nothing that the kernel has: memory is disk enough, and quicker."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    directory = tempfile.mkdtemp(prefix="fairlane-", dir="/dev/shm")
    yield Path(directory)
    shutil.rmtree(directory)


@pytest.mark.requirement("L10", "Q17")
def test_an_act_killed_anywhere_and_its_audit_are_both_there_or_neither_on_sqlite(ram: Path) -> None:
    stride = 10 if IS_LONG else 0
    command = [sys.executable, "-m", "tests.faults.killed_acts", str(ram / "jobs.db"), str(stride)]
    told = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (0, "")
    fates: dict[str, set[str]] = {}
    for line in told.stdout.splitlines():
        name, happened, records, are_all = line.split()
        assert (happened, are_all) == ("True", "True") or (happened, records) == ("False", "0"), line
        fates.setdefault(name, set()).add(happened)
    assert fates == {name: {"True", "False"} for name in ACTS}
