"""Every setting, read in one place and passed on as values.

    file          fairlane.toml, else [tool.fairlane] in pyproject.toml, in the working directory
    environment   FAIRLANE_<NAME>, and the variables USE_REDIS_QUEUE, REDIS_URL, REDIS_HEALTH_CHECK_TIMEOUT
    arguments     Fairlane(<name>=…)

Each later one wins, setting by setting. Spans are in seconds and end in `_s`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypedDict

from msgspec import Meta, Struct, field
from msgspec.structs import force_setattr

from fairlane.client.settings.alerts import AlertSettings
from fairlane.core.breaker import BreakerPolicy
from fairlane.core.ids import SYSTEM_TENANT
from fairlane.core.job import DEFAULT_LABELS, ErrorClass
from fairlane.core.ops.enqueue import Notify
from fairlane.core.payload.json_scan import ScanLimits
from fairlane.core.payload.secrets import SensitivePolicy
from fairlane.core.profiles import PROFILES, LogJobs, Profile, ProfileName
from fairlane.core.queues import CATEGORIES, QueuePolicy
from fairlane.core.retry import Retry
from fairlane.stores import SqliteLibrary
from fairlane.stores.url import redacted

Fallback = Literal["refuse", "memory"]

DEFAULT_URL = "sqlite:///fairlane.db"
DEFAULT_PROFILE: ProfileName = "production"

_Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
_Span = Annotated[float, Meta(gt=0, le=366 * 86_400)]
_TIME = r"([01]\d|2[0-3]):[0-5]\d"
_DayWindow = Annotated[str, Meta(pattern=f"^{_TIME}-{_TIME}$")]
_Days = Annotated[float, Meta(gt=0, le=36_500)]
_Name = Annotated[str, Meta(pattern=r"^[a-z_][a-z0-9_]{0,57}$")]

_OF_PROFILE: Any = None
"""Stands for the profile's figure until the settings are made."""
FROM_PROFILE = ("retry", "fast_timeout_s", "slow_timeout_s", "breaker", "queues", "log_jobs")
"""Settings whose default is a figure of the profile."""


class Settings(Struct, frozen=True, kw_only=True):
    """How this application uses Fairlane. Shows itself without the password in its URL."""

    url: str = DEFAULT_URL
    """Where jobs are kept: `sqlite:///fairlane.db`, `postgresql://user@host/database`, `redis://host:6379/0`, `memory://`."""
    app: Annotated[str, Meta(min_length=1)] | None = None
    """Where the command line finds the application, `module:name`; only the command line imports it."""
    schema: _Name = "fairlane"
    """PostgreSQL: where Fairlane's tables and functions live."""
    key_prefix: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:-]{1,64}$")] = "fairlane"
    """Redis: what every key begins with."""
    profile: ProfileName = DEFAULT_PROFILE
    """Which set of defaults applies: `development`, which also allows `purge()`, `production` or `isolation`."""
    environment: Annotated[str, Meta(pattern=r"^[\w .:-]{1,32}$")] | None = None
    """What the header of the dashboard calls this installation, such as `staging`. None: the name of the profile."""
    fallback: Fallback = "refuse"
    """When the store's package is missing, or its server away, at start or later: `refuse`, or continue in `memory`
    with a warning: for a missing package as on `memory://`, for a server with `spool = "memory"` and
    `run_spooled = true` where these are not set."""
    sqlite_library: SqliteLibrary = "auto"
    """Which SQLite library a process uses: `apsw`, or Python's own, `stdlib`; two of them on one file can corrupt it.
    `auto`: the one of the connection that a first enqueue is given, else `stdlib` where SQLAlchemy or Django have
    loaded it, else `apsw`."""
    statement_timeout_s: _Span = 10.0
    """PostgreSQL: how long one statement may take."""
    health_check_timeout_s: _Span = 2.0
    """How long a Redis server may take to accept a connection, and any store to answer an enqueue before it is spooled;
    also `REDIS_HEALTH_CHECK_TIMEOUT`."""
    spool: Annotated[str, Meta(min_length=1)] | None = None
    """Where enqueues are kept while the store cannot be reached, until they are replayed: a directory, or `memory`.
    None: they raise `StoreUnavailable`."""
    spool_capacity: _Count = 100_000
    """Jobs that the spool takes; past it an enqueue is refused."""
    run_spooled: bool = False
    """While the store is away, a worker of this machine runs spooled jobs; true with `fallback = "memory"`."""
    wait_for_store: bool | _Span = True
    """Whether a worker whose store is away when it starts waits for it. `false`: `fairlane worker` ends at once, and
    `app.running()` raises; a number: `fairlane worker` ends after that many seconds."""
    notify: Notify = "if_waiting"
    """When an enqueue wakes workers: `if_waiting`, if one waits; `always`; `never`, they poll."""

    retry: Retry = _OF_PROFILE
    """How often and when failed jobs run again, unless their call, task, queue or error class says so. A table changes
    single figures of the profile's: `max_attempts`, `delays`, `base_s`, `factor`, `cap_s`, `jitter`."""
    retry_by_class: Mapping[ErrorClass, Retry] = {}
    """Delays by the class of the error, `transient`, `retryable` or `rate_limited`, where neither the call, the task
    nor the queue has a policy; `rate_limited` goes before those. Without one `rate_limited` waits 60, 120, 240 s, up to
    the cap of `retry`."""
    fast_timeout_s: _Span = _OF_PROFILE
    """How long an attempt of a fast task, or in a fast queue, may run unless call, task or queue sets a timeout."""
    slow_timeout_s: _Span = _OF_PROFILE
    """The same for all others."""
    breaker: BreakerPolicy = _OF_PROFILE
    """For breakers without figures of their own: `threshold` failures in a row open it for `cooldown_s` seconds, then
    `probes` calls are tried. A table changes single figures of the profile's."""

    default_tenant: str = SYSTEM_TENANT
    """The tenant of jobs for which none is given."""
    require_tenant: bool | None = None
    """Refuse a job without a tenant. Not set: refuse `using(tenant=None)` once a tenant has been used; false: never."""
    require_principal: bool = True
    """Postpone a job that requests its principal while its tenant has none; false: it gets None and continues."""
    strict_payload: bool = False
    """Require tenant, correlation id (a UUID), idempotency key, category and an object reference on every job."""
    sensitive: SensitivePolicy = "refuse"
    """What happens to payloads that hold passwords, tokens or card numbers: `refuse`, `redact` or `allow`."""
    payload_warn_bytes: _Count = 10_240
    """Payload size from which a warning is logged."""
    payload_max_bytes: _Count = 1_048_576
    """Payload size past which an enqueue is refused."""
    payload_max_depth: Annotated[int, Meta(ge=1, le=512)] = 64
    """How deep objects and lists of a payload may be nested."""
    payload_max_keys: _Count = 10_000
    """How many keys one object of a payload may have."""
    payload_max_digits: Annotated[int, Meta(ge=16, le=4_000)] = 300
    """How many digits a number of a payload may have."""

    priorities: Mapping[str, Annotated[int, Meta(ge=0, le=32_767)]] = field(default_factory=lambda: DEFAULT_LABELS)
    """Labels for priorities; lower numbers run first."""
    categories: tuple[str, ...] = CATEGORIES
    """The categories a task may have."""
    queues: Mapping[str, QueuePolicy] = _OF_PROFILE
    """What each queue grants its jobs. A table changes and adds single figures and queues; the fields are below."""
    routes: Mapping[str, str] = {}
    """Task name, exact or with `*`, to the queue its jobs go to."""
    category_routes: Mapping[str, str] = {}
    """Task name, exact or with `*`, to its category."""
    default_category: str | None = "maintenance"
    """The category of tasks that name none."""
    capacity: _Count | None = None
    """Jobs that may wait at once; past it an enqueue is refused."""
    warn_depth: _Count | None = None
    """Jobs waiting from which a warning is logged, once per crossing."""
    tenant_running: _Count | None = None
    """Jobs of one tenant that run at once, over all queues and workers."""
    tenant_rate: str | None = None
    """Jobs of one tenant that start, such as `100/min`."""
    tenant_enqueue_rate: str | None = None
    """Jobs one tenant may enqueue, such as `1000/min`; past it an enqueue is refused."""
    tenant_payload_bytes: _Count | None = None
    """The largest payload of a tenant's job; `payload_max_bytes` holds for everybody."""
    missing_data_retry_s: _Span = 1_800.0
    """When a job that raised `MissingData` runs again, unless it says when; the longest pause without a principal."""
    newer_code_wait_s: _Span = 86_400.0
    """How long a job that newer code wrote waits, uncharged, for a worker that has it; then it is a dead letter."""
    retain_completed_days: _Days = 7.0
    """How long completed and cancelled jobs are kept, and their idempotency keys with them."""
    retain_dead_letter_days: _Days = 7.0
    """How long dead letters are kept once closed; those pending review stay."""
    retain_stats_days: _Days = 30.0
    """How long statistics by minute are kept."""
    retain_signals_days: _Days = 7.0
    """How long signals are kept for jobs that wait for them later."""
    retain_between: _DayWindow | None = None
    """The hours in which retention removes anything, in UTC, as in `02:00-05:30`; may cross midnight. None: always."""
    prune_schedules: bool = False
    """A starting worker removes schedules its code no longer declares: only where all workers run the same code."""

    log_jobs: LogJobs = _OF_PROFILE
    """Workers log the start and the end of each job at this level, `info` or `debug`; `off`: only failures."""
    log_context: bool = True
    """While a job runs, the application's own log lines carry its id, task, tenant, attempt and correlation id."""
    alerts: AlertSettings = AlertSettings()
    """Rules changed or added, and where alerts are sent: mail, webhooks."""
    metrics_tenants: Annotated[int, Meta(ge=0, le=200)] = 20
    """How many tenants, the busiest, have their own labels in `/metrics`; the rest are counted as `other`."""

    api_tenant_priority: Annotated[int, Meta(ge=0, le=32_767)] = 5
    """The most urgent priority (the lowest number) that a caller of the API bound to a tenant may give."""
    api_tenant_queues: tuple[str, ...] = ()
    """Queues that a caller of the API bound to a tenant may name, beside the task's own."""
    api_tenant_max_attempts: Annotated[int, Meta(ge=1, le=1_000)] = 10
    """The highest `max_attempts` that a caller of the API bound to a tenant may give; a task's own may be higher."""
    api_streams: Annotated[int, Meta(ge=1, le=200)] = 10
    """Event streams that one credential may hold open in one process of the API."""
    api_tenant_streams: Annotated[int, Meta(ge=1, le=200)] = 50
    """Event streams that all callers bound to one tenant may hold open in one process of the API."""

    sources: Mapping[str, str] = {}
    """The source of each value, by name; values not listed are defaults."""

    def __post_init__(self) -> None:
        figures = self.figures
        for name in FROM_PROFILE:
            if getattr(self, name) is None:
                force_setattr(self, name, getattr(figures, name))

    @property
    def figures(self) -> Profile:
        """The profile's own figures."""
        return PROFILES[self.profile]

    @property
    def limits(self) -> ScanLimits:
        return ScanLimits(
            warn_bytes=self.payload_warn_bytes,
            max_bytes=self.payload_max_bytes,
            max_depth=self.payload_max_depth,
            max_keys=self.payload_max_keys,
            max_digits=self.payload_max_digits,
        )

    def source(self, name: str) -> str:
        """Where a value is from: the place that gave it, else the profile or `default`."""
        return self.sources.get(name) or (f"profile {self.profile}" if name in FROM_PROFILE else "default")

    def shown(self) -> Iterator[tuple[str, Any, str]]:
        """Name, printable value and source of each setting."""
        for name in NAMES:
            value = getattr(self, name)
            if name == "url":
                value = redacted(value)
            elif name == "alerts":
                value = value.redacted()
            yield name, value, self.source(name)

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value, _ in self.shown() if name in self.sources)
        return f"Settings({given})"


NAMES: tuple[str, ...] = tuple(name for name in Settings.__struct_fields__ if name != "sources")


class SettingArguments(TypedDict, total=False):
    """The same names, as arguments of `Fairlane(…)`."""

    app: str | None
    schema: str
    key_prefix: str
    profile: ProfileName
    environment: str | None
    fallback: Fallback
    sqlite_library: SqliteLibrary
    statement_timeout_s: float
    health_check_timeout_s: float
    spool: str | None
    spool_capacity: int
    run_spooled: bool
    wait_for_store: bool | float
    notify: Notify
    retry: Retry | Mapping[str, Any]
    retry_by_class: Mapping[ErrorClass, Retry | Mapping[str, Any]]
    fast_timeout_s: float
    slow_timeout_s: float
    breaker: BreakerPolicy | Mapping[str, Any]
    default_tenant: str
    require_tenant: bool | None
    require_principal: bool
    strict_payload: bool
    sensitive: SensitivePolicy
    payload_warn_bytes: int
    payload_max_bytes: int
    payload_max_depth: int
    payload_max_keys: int
    payload_max_digits: int
    priorities: Mapping[str, int]
    categories: tuple[str, ...]
    queues: Mapping[str, QueuePolicy | Mapping[str, Any]]
    routes: Mapping[str, str]
    category_routes: Mapping[str, str]
    default_category: str | None
    capacity: int | None
    warn_depth: int | None
    tenant_running: int | None
    tenant_rate: str | None
    tenant_enqueue_rate: str | None
    tenant_payload_bytes: int | None
    missing_data_retry_s: float
    newer_code_wait_s: float
    retain_completed_days: float
    retain_dead_letter_days: float
    retain_stats_days: float
    retain_signals_days: float
    retain_between: str | None
    prune_schedules: bool
    log_jobs: LogJobs
    log_context: bool
    alerts: AlertSettings | Mapping[str, Any]
    metrics_tenants: int
    api_tenant_priority: int
    api_tenant_queues: tuple[str, ...]
    api_tenant_max_attempts: int
    api_streams: int
    api_tenant_streams: int
