"""A store taken over a fork: the child opens its own connections and leaves the parent's alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

STORY = """
import os, sys, weakref
from fairlane.core.ops import ALL_TENANTS, Check, Enqueue, GetStats
from fairlane.stores.sqlite import SqliteStore
from fairlane.testing.conformance.samples import Making
import asyncio

store = SqliteStore(sys.argv[1], library=sys.argv[2])
put = lambda seed, n: store.run(Enqueue(jobs=tuple(map(lambda _: making.job(), range(n)))))
making = Making(0)
put(0, 10)
store.run(GetStats(scope=ALL_TENANTS))
asyncio.run(store.arun(Check()))
inherited = weakref.ref(store._db._writer)
child = os.fork()
if child == 0:
    making = Making(1)
    assert inherited() is not None, "the parent's connection was closed here"
    if sys.argv[3] == "uses it":
        put(1, 5)
        asyncio.run(store.arun(Check()))
        assert store._db._writer is not inherited()
        assert sum(queue.ready for queue in store.run(GetStats(scope=ALL_TENANTS)).queues) >= 15
        store.close()
    sys.exit(0)  # the interpreter ends, and drops every object it still has
making = Making(2)
put(2, 10)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
put(2, 10)
assert store._db._writer is inherited()
[queue] = store.run(GetStats(scope=ALL_TENANTS)).queues
print(queue.ready, store._db.read(lambda db: db.execute("pragma integrity_check"))[0][0])
store.close()
"""


@pytest.mark.parametrize("library", ["apsw", "stdlib"])
@pytest.mark.parametrize(("what", "jobs"), [("uses it", 35), ("only ends", 30)])
def test_a_forked_child_never_touches_its_parents_connections(
    tmp_path: Path, library: str, what: str, jobs: int
) -> None:
    command = [sys.executable, "-c", STORY, str(tmp_path / "jobs.db"), library, what]
    root = Path(__file__).parents[2]
    told = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=60, check=False)
    assert (told.stdout, told.stderr) == (f"{jobs} ok\n", "")


BUSY = """
import asyncio, os, signal, sys, threading
from fairlane.core.ops import ALL_TENANTS, Check, Enqueue, GetStats
from fairlane.stores.sqlite import SqliteStore
from fairlane.testing.conformance.samples import Making

store = SqliteStore(sys.argv[1], library=sys.argv[2])
over = threading.Event()

def enqueue(seed):
    making = Making(seed)
    while not over.is_set():
        store.run(Enqueue(jobs=(making.job(),)))
        store.run(GetStats(scope=ALL_TENANTS))

async def ask():
    while not over.is_set():
        await store.arun(Check())

threads = [threading.Thread(target=enqueue, args=(1,)), threading.Thread(target=lambda: asyncio.run(ask()))]
for thread in threads:
    thread.start()
ended = []
for number in range(int(sys.argv[3])):
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a child that hangs is killed, and shows it
        store.run(Enqueue(jobs=(Making(100 + number).job(),)))
        asyncio.run(store.arun(Check()))
        os._exit(0)
    ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
over.set()
for thread in threads:
    thread.join()
print(set(ended), store._db.read(lambda db: db.execute("pragma integrity_check"))[0][0])
store.close()
"""


@pytest.mark.parametrize("library", ["apsw", "stdlib"])
def test_a_child_forked_while_other_threads_use_the_store_can_use_it_too(tmp_path: Path, library: str) -> None:
    quiet = ["-W", "ignore::DeprecationWarning"]
    command = [sys.executable, *quiet, "-c", BUSY, str(tmp_path / "jobs.db"), library, "15"]
    ended = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=120, check=False
    )
    assert (ended.stdout, ended.stderr) == ("{0} ok\n", "")
