"""Every process with this folder on its path has the clock that WRONG_CLOCK says: the machine's, and as many seconds more
as stand in that file. SQLite reads the clock of its process; servers are given it with each operation.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

FILE = Path(os.environ["WRONG_CLOCK"])
sys.path.append(str(Path(__file__).parents[3]))

from fairlane import stores  # noqa: E402
from fairlane.core.clock import SystemClock  # noqa: E402
from tests.support.stores import Timed  # noqa: E402

opened = stores.open_store


def now() -> datetime:
    return datetime.now(UTC) + timedelta(seconds=float(FILE.read_text() or 0))


def open_store(*args: Any, **options: Any) -> Any:
    store = opened(*args, **options)
    return store if store.name == "sqlite" else Timed(store, SystemClock())


clock: Any = SystemClock
clock.now = staticmethod(now)
for module in tuple(sys.modules.values()):
    if getattr(module, "open_store", None) is opened:
        vars(module)["open_store"] = open_store
