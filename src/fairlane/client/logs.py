"""Loggers that never raise into the code that logs, and whose lines no data can forge.

Handlers, filters and formatters belong to the application.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from contextlib import suppress
from typing import Any

from fairlane.core.payload.storable import safe_str
from fairlane.core.text import log_line


class GuardedLogger(logging.LoggerAdapter[logging.Logger]):
    """The logger of this name. A line that a handler fails to take is lost, and standard error says so once."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name), {})
        self._has_failed = False

    def log(self, level: int, msg: object, *args: object, **options: Any) -> None:
        if not self.logger.isEnabledFor(level):
            return
        try:
            # Only our own format may begin a line, as before a traceback.
            has_lines = "\n" in str(msg)
            args = tuple(_shown(value, has_lines=has_lines) for value in args)
            if "extra" in options:
                options["extra"] = {name: _shown(value) for name, value in options["extra"].items()}
            # Two frames up: `%(filename)s` names the caller, not this module.
            self.logger.log(level, msg, *args, **{"stacklevel": 2, **options})
        except BaseException as error:  # a subscriber can never break the caller, whatever it raises
            if is_ctrl_c(error):
                raise
            self._report(error)

    def _report(self, error: BaseException) -> None:
        if self._has_failed:
            return
        self._has_failed = True
        with suppress(BaseException):
            name = type(error).__name__
            sys.stderr.write(f"fairlane: a log handler raised {name}: lines of {self.logger.name} are lost\n")


def is_ctrl_c(error: BaseException) -> bool:
    """Whether a person may have pressed Ctrl-C: nothing guards against that. Elsewhere than in the main thread, and in
    worker processes, whose foreman handles it, a KeyboardInterrupt is like any error of the application's code."""
    return (
        isinstance(error, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    )


def _shown(value: object, *, has_lines: bool = False) -> object:
    """An argument of a line: numbers as they are, text and anything else as printable text, errors without secrets."""
    if value is None or isinstance(value, (int, float)):
        return value
    text = value if isinstance(value, str) else safe_str(value)
    return log_line(text, has_lines=has_lines)
