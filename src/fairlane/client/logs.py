"""Loggers that never raise into the code that logs, and whose lines no data can forge; the running job on other lines.

Handlers, filters and formatters belong to the application: a worker adds `JobLogFilter` to its handlers, by setting.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from fairlane.client.context import CurrentJob, job_in_force
from fairlane.core.payload.storable import safe_str, traceback_of
from fairlane.core.text import INDENT, log_line
from fairlane.core.tracebacks import folded

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s[%(process)d]: %(message)s"
"""Used where the application does not configure logging itself."""
JOB_FIELDS = ("job_id", "task", "tenant", "queue", "attempt", "correlation_id")
"""What a log record made in a job says of it; in a call of several jobs, what they have in common."""


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

    def failure(
        self,
        level: int,
        msg: str,
        *args: object,
        error: BaseException | None,
        traceback: str | None,
        extra: Mapping[str, object],
    ) -> None:
        """Log a failure of the application's code with its traceback.

        The record has the exception itself (`exc_info`), for collectors of errors. What formatters print is our own
        text of it: without secrets, with Fairlane's frames folded, and indented, so that no line of it looks like one
        that the log began.
        """
        if not self.logger.isEnabledFor(level):
            return
        try:
            file, line, function, _ = self.logger.findCaller(stacklevel=2)
            shown = tuple(_shown(value) for value in args)
            fields = {name: _shown(value) for name, value in extra.items()}
            caught = None if error is None else (type(error), error, traceback_of(error))
            record = self.logger.makeRecord(self.logger.name, level, file, line, msg, shown, caught, function, fields)
            if traceback is not None:
                record.exc_text = INDENT + log_line(folded(traceback), has_lines=True)
            self.logger.handle(record)
        except BaseException as raised:  # as in `log`
            if is_ctrl_c(raised):
                raise
            self._report(raised)

    def _report(self, error: BaseException) -> None:
        if self._has_failed:
            return
        self._has_failed = True
        with suppress(BaseException):
            name = type(error).__name__
            sys.stderr.write(f"fairlane: a log handler raised {name}: lines of {self.logger.name} are lost\n")


class OutageLog:
    """Times outages of the store, however often one is met; logs when it begins, once a minute, and when it is over.

    `on_change` is called when one begins or is over.
    """

    EVERY_S = 60.0

    def __init__(self, log: GuardedLogger, monotonic: Callable[[], float]) -> None:
        self._log, self._monotonic = log, monotonic
        self._began_s: float | None = None
        self._logged_s = 0.0
        self.count = 0
        """How often the store went away or came back."""
        self.on_change: Callable[[], object] = lambda: None

    @property
    def is_on(self) -> bool:
        return self._began_s is not None

    @property
    def lasts_s(self) -> float:
        return 0.0 if self._began_s is None else self._monotonic() - self._began_s

    def failed(self, why: object, asked_s: float | None = None) -> None:
        """The store did not answer what it was asked at `asked_s`, or just now."""
        now_s = self._monotonic()
        if self._began_s is None:
            self._began_s, self._logged_s = now_s if asked_s is None else asked_s, now_s
            self.count += 1
            self._log.warning("the store does not answer; it is tried until it does: %s", why)
            self.on_change()
        elif now_s - self._logged_s >= self.EVERY_S:
            self._logged_s = now_s
            self._log.warning("the store has not answered for %.0f s: %s", self.lasts_s, why)

    def answered(self) -> None:
        if self._began_s is not None:
            self._log.warning("the store answers again, after %.1f s", self.lasts_s)
            self._began_s = None
            self.count += 1
            self.on_change()


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


class JobLogFilter(logging.Filter):
    """Adds the running job to every record that passes: `job_id`, `task`, `tenant`, `queue`, `attempt`,
    `correlation_id`.

    Outside a job they are empty, so that a format may name them; in a call of several jobs, those that differ are.
    Fields that the line itself gives stay as they are.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        job, fields = job_in_force.get(), record.__dict__
        for name, value in zip(JOB_FIELDS, ("",) * len(JOB_FIELDS) if job is None else _fields(job), strict=True):
            fields.setdefault(name, value)
        return True


class JobLogFormatter(logging.Formatter):
    """The format of a worker whose application configures no logging: lines of a job end with its id and tenant."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name that logging calls
        line = super().formatMessage(record)
        if record.name.startswith("fairlane.") or not getattr(record, "job_id", ""):
            return line
        fields = {name: getattr(record, name, "") for name in ("job_id", "tenant", "correlation_id")}
        if fields["correlation_id"] == fields["job_id"]:
            del fields["correlation_id"]
        return f"{line} [{' '.join(f'{name}={_shown(value)}' for name, value in fields.items())}]"


def configure_logging(level: int) -> None:
    """Log to standard error, unless the application has configured logging itself."""
    if logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(JobLogFormatter(LOG_FORMAT))
    logging.basicConfig(handlers=[handler], level=level)


@contextmanager
def job_on_log_lines(*, is_wanted: bool) -> Iterator[None]:
    """Inside, the handlers there are now add the running job to each record, whichever logger it is from."""
    added = [(handler, JobLogFilter()) for handler in _handlers()] if is_wanted else []
    for handler, job_filter in added:
        handler.addFilter(job_filter)
    try:
        yield
    finally:
        for handler, job_filter in added:
            handler.removeFilter(job_filter)


Unbind = Callable[[], None]


def structlog_binder(*, is_wanted: bool) -> Callable[[CurrentJob], Unbind] | None:
    """What binds a job to structlog's context variables, until the answer is called; None: structlog is not loaded."""
    structlog = sys.modules.get("structlog.contextvars")
    if structlog is None or not is_wanted:
        return None

    def bind(job: CurrentJob) -> Unbind:
        tokens = structlog.bind_contextvars(**dict(zip(JOB_FIELDS, _fields(job), strict=True)))
        return lambda: structlog.reset_contextvars(**tokens)

    return bind


def _fields(job: CurrentJob) -> tuple[object, ...]:
    if len(job.batch) > 1:
        return "", job.type, job.tenant, job.queue, "", ""
    return str(job.id), job.type, job.tenant, job.queue, job.attempt, job.correlation_id


def _handlers() -> list[logging.Handler]:
    """The handlers of all loggers, each once, that add no job yet."""
    loggers = [logging.getLogger(), *logging.getLogger().manager.loggerDict.values()]
    found = dict.fromkeys(handler for logger in loggers for handler in getattr(logger, "handlers", ()))
    return [handler for handler in found if not any(isinstance(one, JobLogFilter) for one in handler.filters)]
