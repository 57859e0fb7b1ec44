"""Which workers of this host are gone for certain, by real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from fairlane.core.clock import SystemClock
from fairlane.core.ids import WorkerId
from fairlane.worker.host_workers import HostWorkers, identity_of, is_gone
from tests.faults.eventually import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems say too little about their processes")
WORKER = WorkerId(UUID(int=7))
KEEPS = """
import os, sys, uuid
from pathlib import Path
from fairlane.core.clock import SystemClock
from fairlane.worker.host_workers import HostWorkers
host = HostWorkers(SystemClock(), "redis://shop", "", "", shared=Path(sys.argv[1]))
host.add(uuid.UUID(int=7), int(sys.argv[2]) or os.getpid())
"""


def host_at(shared: Path, url: str = "redis://shop") -> HostWorkers:
    return HostWorkers(SystemClock(), url, "", "", shared=shared)


def keep(shared: Path, pid: int = 0) -> subprocess.Popen[bytes]:
    """A process that has noted a worker, itself if no other is named, and waits for its input to end."""
    keeper = subprocess.Popen(
        [sys.executable, "-c", KEEPS + "print(flush=True); sys.stdin.read()", str(shared), str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert keeper.stdout is not None
    keeper.stdout.readline()
    keeper.stdout.close()
    return keeper


def end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.kill()
    process.wait()


def test_a_worker_is_gone_when_its_process_is_a_zombie_or_collected_and_not_before(tmp_path: Path) -> None:
    host, worker = host_at(tmp_path), keep(tmp_path)
    try:
        assert host.gone() == ()
        worker.send_signal(signal.SIGSTOP)
        assert host.gone() == (), "halted is not gone"
        worker.kill()
        eventually(lambda: host.gone() == (WORKER,), 10)
    finally:
        end(worker)
    assert host.gone() == (WORKER,)
    assert host_at(tmp_path, "redis://other").gone() == (), "a worker of another store"
    host.remove(WORKER)
    assert host.gone() == ()


def test_a_worker_whose_foreman_lives_is_left_to_that(tmp_path: Path) -> None:
    worker = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    keeper = keep(tmp_path, worker.pid)
    try:
        end(worker)
        assert host_at(tmp_path).gone() == ()
    finally:
        end(keeper)
    assert host_at(tmp_path).gone() == (WORKER,)


def test_a_process_with_a_thread_that_still_runs_is_not_gone() -> None:
    code = (
        "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); "
        "print(flush=True); ctypes.CDLL(None).pthread_exit(None)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        identity = identity_of(process.pid)
        assert identity is not None
        process.stdout.readline()
        state = Path(f"/proc/{process.pid}/stat")
        eventually(lambda: state.read_text().rpartition(")")[2].split()[0] == "Z", 10)
        assert not is_gone(identity)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert is_gone(identity)


def test_whoever_has_the_number_of_a_process_now_is_not_that_process() -> None:
    us = identity_of(os.getpid())
    assert us is not None
    assert not is_gone(us)
    assert is_gone(msgspec.structs.replace(us, started=us.started - 1))
    assert is_gone(msgspec.structs.replace(us, pid=2**22 + 1)), "no process has this number"


@pytest.mark.parametrize("changed", [{"boot": "another"}, {"pid_namespace": 1}, {"time_namespace": 1}])
def test_nothing_is_certain_about_a_process_of_another_boot_or_namespace(changed: dict[str, str | int]) -> None:
    us = identity_of(os.getpid())
    assert us is not None
    assert not is_gone(msgspec.structs.replace(us, pid=2**22 + 1, **changed))


def test_a_folder_that_others_may_write_to_is_not_believed(tmp_path: Path) -> None:
    end(keep(tmp_path))
    [folder] = tmp_path.iterdir()
    assert host_at(tmp_path).gone() == (WORKER,)
    folder.chmod(0o770)
    assert host_at(tmp_path).gone() == ()
    folder.chmod(0o700)
    (folder / "junk").write_bytes(b"no worker")
    assert host_at(tmp_path).gone() == (WORKER,)
    assert host_at(tmp_path / "missing").gone() == ()
