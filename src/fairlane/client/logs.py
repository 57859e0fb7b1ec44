"""Loggers that never raise into the code that logs: handlers, filters and formatters belong to the application."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import Any


class GuardedLogger(logging.LoggerAdapter[logging.Logger]):
    """The logger of this name. A line that a handler fails to take is lost, and standard error says so once."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name), {})
        self._has_failed = False

    def log(self, level: int, msg: object, *args: object, **options: Any) -> None:
        try:
            # Two frames up: `%(filename)s` names the caller, not this module.
            self.logger.log(level, msg, *args, **{"stacklevel": 2, **options})
        except BaseException as error:  # noqa: BLE001 - a subscriber can never break the caller, whatever it raises
            self._report(error)

    def _report(self, error: BaseException) -> None:
        if self._has_failed:
            return
        self._has_failed = True
        with suppress(BaseException):
            name = type(error).__name__
            sys.stderr.write(f"fairlane: a log handler raised {name}: lines of {self.logger.name} are lost\n")
