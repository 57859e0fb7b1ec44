"""Where a file may be, and who may read it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fairlane.core.ops import Enqueue, Renew
from fairlane.errors import ConfigError
from fairlane.stores.sqlite import SqliteStore
from fairlane.stores.sqlite.location import filesystem_of, located
from fairlane.testing.conformance.samples import Making
from tests.unit.test_sqlite_errors import an_unprivileged_user


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("name", [":memory:", "", "file::memory:?cache=shared", "file:x?mode=memory"])
def test_a_database_in_memory_is_refused_with_the_store_to_use_instead(name: str) -> None:
    with pytest.raises(ConfigError, match="memory://"):
        SqliteStore(name)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the directory .*nowhere is not there"):
        SqliteStore(tmp_path / "nowhere" / "jobs.db")


def test_a_directory_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a directory; name a file in it"):
        SqliteStore(tmp_path)


def test_a_directory_that_may_not_be_written_is_refused() -> None:
    with an_unprivileged_user(), pytest.raises(ConfigError, match="may not write in /usr"):
        SqliteStore("/usr/jobs.db")


@pytest.mark.parametrize("unlucky", ["jobs\0.db"])
def test_a_path_no_system_takes_is_refused(tmp_path: Path, unlucky: str) -> None:
    with pytest.raises(ConfigError, match="NUL"):
        SqliteStore(f"{tmp_path}/{unlucky}")


def test_a_library_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='"apsw" or "stdlib"'):
        SqliteStore(tmp_path / "jobs.db", library="pysqlite2")  # type: ignore[arg-type]


def test_a_network_file_system_is_refused_unless_asked_for(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/export {tmp_path} nfs4 rw 0 0\n")
    with pytest.raises(ConfigError, match=r"network file system \(nfs4\).*allow_network_filesystem"):
        located(tmp_path / "jobs.db", mounts=mounts)
    assert located(tmp_path / "jobs.db", mounts=mounts, allow_network_filesystem=True) == tmp_path / "jobs.db"


def test_the_nearest_and_latest_mount_counts(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/vda / ext4 rw 0 0\na /srv nfs rw 0 0\nb /srv ext4 rw 0 0\nc /srv/my\\040jobs cifs rw 0 0\n")
    assert filesystem_of(Path("/srv/jobs"), mounts) == "ext4"
    assert filesystem_of(Path("/srv/my jobs/deep"), mounts) == "cifs"
    assert filesystem_of(Path("/srv-other"), mounts) == "ext4"
    assert filesystem_of(Path("/srv"), tmp_path / "no such file") is None


def test_a_new_file_and_all_beside_it_are_their_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = SqliteStore(tmp_path / "jobs.db")
        worker = Making().worker_id()
        listener = store.listener(worker)
        store.run(Renew(worker=worker, wake_address=listener.address))
        store.run(Enqueue(jobs=(Making().job(),)))
        assert listener.address is not None
        files = {path: mode_of(path) for path in (*tmp_path.iterdir(), Path(listener.address))}
        listener.close()
        store.close()
    finally:
        os.umask(before)
    assert len(files) == 4, "the file, its log, its shared memory, the worker's socket"
    assert set(files.values()) == {0o600}


def test_an_applications_own_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "application.db"
    path.touch()
    path.chmod(0o640)
    SqliteStore(path).close()
    assert mode_of(path) == 0o640


def test_a_link_leads_to_the_file_itself(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "jobs.db")
    assert located(tmp_path / "link.db") == tmp_path / "jobs.db"
