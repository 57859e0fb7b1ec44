"""Loads the settings from file, environment and arguments; reports every problem at once."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import replace

from fairlane.client.logs import GuardedLogger
from fairlane.client.settings.model import DEFAULT_PROFILE, NAMES, Settings
from fairlane.core.job import ERROR_CLASSES
from fairlane.core.limits import read_rate
from fairlane.core.names import check_queue_name, check_tenant
from fairlane.core.profiles import PROFILES, Profile, ProfileName
from fairlane.core.queues import QueuePolicy
from fairlane.core.retry import RATE_LIMITED_BASE_S, Retry
from fairlane.errors import ConfigError, FairlaneError, nearest, shown
from fairlane.stores.url import redacted, store_named_by

log = GuardedLogger("fairlane.client")

PREFIX = "FAIRLANE_"
SWITCH = "environment USE_REDIS_QUEUE"
CONFIG_VARIABLE = "FAIRLANE_CONFIG"
_TABLES = frozenset(
    {"alerts", "breaker", "category_routes", "priorities", "queues", "retry", "retry_by_class", "routes"}
)


class Given(NamedTuple):
    """One given value and its source."""

    name: str
    value: Any
    where: str
    is_text: bool = False
    """From the environment: numbers, truth values and tables arrive as text."""


def load(
    arguments: Mapping[str, Any] | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Settings:
    """Read the settings. `config` names a file to use instead of looking for one."""
    environ = os.environ if environ is None else environ
    problems: list[str] = []
    layers = [
        *_from_file(config or environ.get(CONFIG_VARIABLE) or None, directory or Path.cwd(), problems),
        *_from_document_variables(environ, problems),
        *_from_environment(environ, problems),
        *(Given(name, value, "argument") for name, value in (arguments or {}).items()),
    ]
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    profile = _profile(layers)
    for given in layers:
        if given.name not in NAMES:
            problems.append(f'{given.where}: there is no setting "{given.name}".{nearest(given.name, NAMES)}')
            continue
        try:
            values[given.name] = _converted(given, profile)
            sources[given.name] = given.where
        except (msgspec.ValidationError, msgspec.DecodeError, FairlaneError) as error:
            problems.append(_problem(given, error))
    if values.get("fallback") == "memory":
        for name, value in (("spool", "memory"), ("run_spooled", True)):
            if name not in values:
                values[name], sources[name] = value, sources["fallback"]
    if not problems:
        problems.extend(_contradictions(Settings(**values), sources))
    if problems:
        raise ConfigError("settings were not accepted: " + "; ".join(problems))
    urls = [given for given in layers if given.name == "url"]
    if len(urls) > 1 and urls[-1] == Given("url", "memory://", SWITCH):
        log.warning("USE_REDIS_QUEUE is false: jobs go to memory, and not to the url of %s", urls[-2].where)
    return Settings(**values, sources=sources)


def use_profile(profile: ProfileName) -> None:
    """Set the profile of applications that this process and its children load later and that name none in code."""
    os.environ[PREFIX + "PROFILE"] = profile


def without_settings() -> dict[str, str]:
    """The environment without settings: for a process that has a file with its own."""
    return {name: value for name, value in os.environ.items() if not name.startswith((PREFIX, "USE_REDIS_QUEUE"))}


def _from_file(config: str | os.PathLike[str] | None, directory: Path, problems: list[str]) -> Iterator[Given]:
    if config is not None:
        found = Path(config)
        if not found.is_file():
            problems.append(f'"{found}" is not a file; it was named as the configuration')
            return
    else:
        found = next((p for p in (directory / "fairlane.toml", directory / "pyproject.toml") if p.is_file()), Path())
        if not found.name:
            return
    import tomllib

    try:
        table = tomllib.loads(found.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        problems.append(f"{found.name} cannot be read: {error}")
        return
    where = found.name
    if found.name == "pyproject.toml":
        table, where = table.get("tool", {}).get("fairlane", {}), "pyproject.toml [tool.fairlane]"
    yield from (Given(name, value, where) for name, value in table.items())


def _from_environment(environ: Mapping[str, str], problems: list[str]) -> Iterator[Given]:
    for variable in sorted(environ):
        name = variable.removeprefix(PREFIX).lower()
        if not variable.startswith(PREFIX) or variable == CONFIG_VARIABLE or not environ[variable]:
            continue
        if name in NAMES:
            yield Given(name, environ[variable], f"environment {variable}", is_text=True)
        elif difflib.get_close_matches(name, NAMES, n=1, cutoff=0.8):
            # Only likely typing errors are refused: other versions and tools may use variables of their own.
            problems.append(f"environment {variable}: there is no such setting.{nearest(name, NAMES)}")


def _from_document_variables(environ: Mapping[str, str], problems: list[str]) -> Iterator[Given]:
    """USE_REDIS_QUEUE chooses Redis with memory as fallback, or memory; REDIS_URL alone chooses nothing."""
    timeout = environ.get("REDIS_HEALTH_CHECK_TIMEOUT")
    if timeout:
        yield Given("health_check_timeout_s", timeout, "environment REDIS_HEALTH_CHECK_TIMEOUT", is_text=True)
    switch = environ.get("USE_REDIS_QUEUE")
    if not switch:
        return
    try:
        use_redis = _truth(switch)
    except ValueError:
        problems.append(f"environment USE_REDIS_QUEUE = {shown(switch)}: expected true or false")
        return
    if not use_redis:
        yield Given("url", "memory://", SWITCH)
        return
    address = environ.get("REDIS_URL")
    yield Given(
        "url", address or "redis://localhost:6379/0", f"environment {'REDIS_URL' if address else 'USE_REDIS_QUEUE'}"
    )
    yield Given("fallback", "memory", SWITCH)


def _truth(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in {"1", "true", "yes", "on"}:
        return True
    if lowered in {"0", "false", "no", "off"}:
        return False
    raise ValueError(text)


def _profile(layers: Sequence[Given]) -> Profile:
    """The profile whose figures the tables change: the last one given."""
    names = [given.value for given in layers if given.name == "profile"]
    return PROFILES[names[-1] if names and names[-1] in PROFILES else DEFAULT_PROFILE]


def _converted(given: Given, profile: Profile) -> Any:
    kind, value = _kinds()[given.name], given.value
    if given.is_text:
        if kind in (bool, bool | None) or given.name == "wait_for_store":
            try:
                return _truth(value)
            except ValueError:
                if given.name != "wait_for_store":
                    raise msgspec.ValidationError("expected true or false") from None
        if given.name in _TABLES:
            value = msgspec.json.decode(value)
        elif given.name == "categories":
            value = tuple(part.strip() for part in value.split(",") if part.strip())
    if given.name == "queues":
        return _queues(value, profile)
    if given.name in ("retry", "breaker"):
        return _changed(getattr(profile, given.name), value)
    if given.name == "retry_by_class":
        return _retry_by_class(value, profile)
    converted = msgspec.convert(value, kind, strict=not given.is_text, str_keys=True)
    if given.name == "url":
        store_named_by(converted)
    if given.name == "default_tenant":
        check_tenant(converted)
    if given.name in ("tenant_rate", "tenant_enqueue_rate") and converted is not None:
        read_rate(given.name, converted)
    return converted


def _changed(base: Any, value: Any) -> Any:
    """A value as given, or a table over the figures that it changes."""
    if isinstance(value, type(base)):
        return value
    if not isinstance(value, Mapping):
        raise msgspec.ValidationError("expected a table")
    fields = type(base).__struct_fields__
    unknown = [key for key in value if key not in fields]
    if unknown:
        raise msgspec.ValidationError(f'there is no "{unknown[0]}".{nearest(unknown[0], fields)}')
    return msgspec.convert({**msgspec.to_builtins(base), **value}, type(base))


def _retry_by_class(value: Any, profile: Profile) -> dict[str, Retry]:
    if not isinstance(value, Mapping):
        raise msgspec.ValidationError("expected a table of policies by error class")
    classes = [kind for kind in ERROR_CLASSES if kind != "non_retryable"]
    found = {}
    for kind, given in value.items():
        if kind not in classes:
            near = nearest(str(kind), classes)
            raise msgspec.ValidationError(f'"{kind}": expected one of {", ".join(classes)}.{near}')
        base_s = RATE_LIMITED_BASE_S if kind == "rate_limited" else profile.retry.base_s
        found[kind] = _changed(replace(profile.retry, max_attempts=None, base_s=base_s), given)
        if found[kind].max_attempts is not None:
            raise msgspec.ValidationError(
                f"{kind}.max_attempts: a job has its attempts before it fails; set them in retry, a queue or a task"
            )
    return found


def _queues(value: Any, profile: Profile) -> dict[str, QueuePolicy]:
    """Queues by name, over the profile's: a table need only name what it changes."""
    if not isinstance(value, Mapping):
        raise msgspec.ValidationError("expected a table of queues by name")
    queues = dict(profile.queues)
    for name, policy in value.items():
        check_queue_name(name)
        if not isinstance(policy, QueuePolicy):
            if not isinstance(policy, Mapping):
                raise msgspec.ValidationError(f'expected a table for queue "{name}"')
            unknown = [key for key in policy if key not in QueuePolicy.__struct_fields__]
            if unknown:
                near = nearest(unknown[0], QueuePolicy.__struct_fields__)
                raise msgspec.ValidationError(f'queue "{name}" has no "{unknown[0]}".{near}')
            base = msgspec.to_builtins(queues[name]) if name in queues else {}
            policy = msgspec.convert({**base, **policy, "name": name}, QueuePolicy)
        queues[name] = policy
    return queues


def _contradictions(settings: Settings, sources: Mapping[str, str]) -> Iterator[str]:
    if settings.payload_warn_bytes > settings.payload_max_bytes:
        yield (
            f"payload_warn_bytes = {settings.payload_warn_bytes} is above "
            f"payload_max_bytes = {settings.payload_max_bytes}; "
            "no payload could be warned about"
        )
    for pattern, queue in settings.routes.items():
        if queue not in settings.queues:
            yield (
                f'{sources["routes"]}: routes sends "{pattern}" to "{queue}", which is not among the queues.'
                f"{nearest(queue, settings.queues)}"
            )

    categories = [("default_category", settings.default_category)]
    categories += [("category_routes", category) for category in settings.category_routes.values()]
    for name, category in categories:
        if category is not None and category not in settings.categories:
            yield (
                f'{sources.get(name, "default")}: {name} names "{category}", which is not among the categories.'
                f"{nearest(category, settings.categories)}"
            )


def _problem(given: Given, error: Exception) -> str:
    if given.name == "url" and isinstance(error, ConfigError):
        return f"{given.where}: {error}"
    value = shown(redacted(given.value)) if given.name == "url" and isinstance(given.value, str) else shown(given.value)
    if given.name == "alerts":
        value = "…"  # The value may contain passwords and secrets.
    choices = _choices(_kinds()[given.name])
    expectation = f"expected one of {', '.join(choices)}" if choices else str(error)
    return f"{given.where}: {given.name} = {value}: {expectation}"


def _choices(kind: Any) -> tuple[str, ...]:
    return get_args(kind) if get_origin(kind) is Literal else ()


@cache
def _kinds() -> dict[str, Any]:
    return get_type_hints(Settings, include_extras=True)
