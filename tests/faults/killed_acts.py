"""Acts on SQLite, each in a process that kills itself in the middle: python killed_acts.py FILE STRIDE

Prints a line for each kill: the act, whether it happened, how many records the audit has of it, and whether those are all.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from itertools import count, islice
from typing import Any

import apsw

from fairlane.core.ops import Op
from fairlane.stores.sqlite import SqliteStore
from fairlane.testing.conformance.scene import Scene
from tests.faults.acts import ACTS, Staged

Arm = Callable[[apsw.Connection], None]

_opened: list[apsw.Connection] = []
apsw.connection_hooks.append(_opened.append)
_numbers = count(1)


class Fuse:
    """Burns with every instruction of the database's virtual machine; kills its process at the end."""

    def __init__(self, length: int | None = None) -> None:
        self.length, self.burnt = length, 0

    def __call__(self) -> bool:
        self.burnt += 1
        if self.burnt == self.length:
            die()
        return False

    def light(self, connection: apsw.Connection) -> None:
        connection.set_progress_handler(self, 1)


def die(*_: object) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def ways_to_die(length: int, stride: int) -> list[Arm]:
    """At many points of the way, on entering the commit, and once the log has it."""
    on_the_way = [Fuse(burnt).light for burnt in range(1, length + 1, stride)]
    return [*on_the_way, lambda c: c.set_commit_hook(die), lambda c: c.set_wal_hook(die)]


def act(path: str, op: Op[object], arm: Arm) -> None:
    _opened.clear()
    store = SqliteStore(path)
    [writer] = _opened
    arm(writer)
    store.run(op)
    store.close()


def act_in_a_child(path: str, op: Op[object], arm: Arm) -> None:
    child = os.fork()
    if child == 0:
        act(path, op, arm)
        os._exit(0)
    os.waitpid(child, 0)


def staged(path: str, name: str, many: int) -> list[Staged]:
    store = SqliteStore(path)
    found = [ACTS[name](Scene(store, seed=number), f"{name}-{number:06}") for number in islice(_numbers, many)]
    store.close()
    return found


def main() -> None:
    path, stride = sys.argv[1:]
    for name in ACTS:
        whole = Fuse()
        act(path, staged(path, name, 1)[0].op, whole.light)
        ways = ways_to_die(whole.burnt, int(stride) or whole.burnt // 3)
        cuts = staged(path, name, len(ways))
        for cut, arm in zip(cuts, ways, strict=True):
            act_in_a_child(path, cut.op, arm)
        store = SqliteStore(path)
        for cut in cuts:
            records = cut.records(store)
            print(name, cut.has_happened(store), len(records), records == cut.actions)
        store.close()


if __name__ == "__main__":
    main()
