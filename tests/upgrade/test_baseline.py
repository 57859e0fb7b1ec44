"""The code of the baseline commit runs beside today's, under load, through upgrades: nothing is lost or run twice at once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlane.stores import open_store
from fairlane.stores.migrations import Migration, Migrations
from fairlane.stores.postgres import schema
from fairlane.stores.sqlite import migrator as sqlite_migrator
from tests.faults.eventually import eventually
from tests.servers.postgres import shared_server
from tests.upgrade.make_fixtures import HERE
from tests.upgrade.releases import BASELINE, Baseline, MadeUp, before_last_change, objects

UP = """
import sys
from fairlane.stores import open_store
store = open_store(sys.argv[1])
print(len(store.migrator().up()))
store.close()
"""
FUNCTIONS = """
from fairlane.stores.postgres.schema import FUNCTIONS_RELEASE, checksum
print(FUNCTIONS_RELEASE, checksum())
"""
BEHIND = 60
"""Jobs of each process that must run after each change, before the next one comes."""


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Baseline:
    return Baseline(tmp_path_factory.mktemp("baseline"))


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db" if request.param == "sqlite" else shared_server().new_database("baseline")


class Site:
    def __init__(self, url: str, folder: Path, name: str, source: Path) -> None:
        self._folder, self._name = folder, name
        command = [sys.executable, str(HERE / "site_process.py"), url, str(folder), name]
        environment = {**os.environ, "PYTHONPATH": str(source)}
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._source = source

    def runs(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith(str(self._source)), "it runs on other code"

    def lines(self, what: str) -> list[str]:
        file = self._folder / f"{what}-{self._name}"
        return file.read_text().splitlines() if file.exists() else []

    def goes_on(self) -> None:
        """It enqueues and runs more jobs."""
        put, ran = len(self.lines("put")), len(self.lines("ran"))
        eventually(lambda: len(self.lines("put")) > put + BEHIND and len(self.lines("ran")) > ran + BEHIND, 30)

    def stop(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("stop\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "stopped\n"


@contextmanager
def site(url: str, folder: Path, name: str, source: Path) -> Iterator[Site]:
    running = Site(url, folder, name, source)
    with running.process:
        try:
            running.runs()
            yield running
            running.process.communicate(timeout=30)
            assert running.process.returncode == 0
        finally:
            running.process.kill()


def upgrade(url: str) -> list[str]:
    store = open_store(url)
    migrator = store.migrator()
    assert migrator is not None
    ran = [step.name for step in migrator.up()]
    store.close()
    return ran


def be_newer(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next release adds a column and an index, and replaces all functions."""
    if url.startswith("sqlite"):
        ours = sqlite_migrator.MIGRATIONS
        step = _colour(
            ours, "alter table fairlane_job add colour text; create index fairlane_colour on fairlane_job (colour)"
        )
        newer = Migrations((*ours.expansions, *ours.contractions, step))
        monkeypatch.setattr(sqlite_migrator, "MIGRATIONS", newer)
    else:
        step = _colour(
            schema.CORE.migrations, "alter table job add colour text; create index job_colour on job (colour);"
        )
        added = "create or replace function colour_v1(_wish json) returns json language sql return _wish;"
        MadeUp(monkeypatch).become(schema.FUNCTIONS_RELEASE + 1, added, step)


def _colour(ours: Migrations, sql: str) -> Migration:
    return Migration(ours.needed.expanded + 1, "colour", "expand", sql)


def test_old_and_new_code_work_side_by_side_through_an_upgrade(
    url: str, baseline: Baseline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    baseline.run(UP, url)
    today = HERE.parent.parent / "src"
    with site(url, tmp_path, "old", baseline.source) as old:
        old.goes_on()
        upgrade(url)
        with site(url, tmp_path, "new", today) as new:
            old.goes_on()
            new.goes_on()
            with monkeypatch.context() as patch:
                be_newer(url, patch)
                assert "colour" in upgrade(url)
            old.goes_on()
            new.goes_on()
            assert baseline.run(UP, url) == "0", "an older release leaves a newer schema alone"
            old.stop()
            new.stop()
            put = sorted(old.lines("put") + new.lines("put"))
            eventually(lambda: len(old.lines("ran") + new.lines("ran")) >= len(put), 30)
            assert sorted(old.lines("ran") + new.lines("ran")) == put
    assert not list(tmp_path.glob("twice-*"))
    assert not list(tmp_path.glob("running-*"))


def test_functions_that_changed_have_a_newer_release(baseline: Baseline) -> None:
    release, checksum = baseline.run(FUNCTIONS).split()
    changed = checksum != schema.CORE.checksum
    assert int(release) + changed <= schema.FUNCTIONS_RELEASE, (
        f"functions/ differ from those of the baseline {BASELINE[:8]}: raise FUNCTIONS_RELEASE in stores/postgres/schema.py"
    )


@pytest.mark.parametrize("older", ["baseline", "before the last change"])
def test_an_upgraded_database_has_the_same_functions_views_and_types_as_a_new_one(older: str, tmp_path: Path) -> None:
    commit = BASELINE if older == "baseline" else before_last_change()
    _, found = upgraded_from(Baseline(tmp_path, commit))
    fresh = shared_server().new_database("fresh")
    upgrade(fresh)
    differ = {name for name, text in objects(fresh).items() if found.get(name) != text}
    assert not differ, "replaced in place they stay what they were: give what changed its shape another name"


def test_types_of_the_baseline_stay_what_calls_under_way_take_them_for(baseline: Baseline) -> None:
    before, found = upgraded_from(baseline)
    changed = {name for name, text in before.items() if name.startswith("c ") and found.get(name) != text}
    assert not changed, "calls of old workers fail while a type is made anew: give one with other columns another name"


def upgraded_from(older: Baseline) -> tuple[dict[str, str], dict[str, str]]:
    """What was in the schema before and behind the upgrade."""
    dsn = shared_server().new_database("upgraded")
    older.run(UP, dsn)
    before = objects(dsn)
    upgrade(dsn)
    return before, objects(dsn)
