"""The Fairlane application behind each backend of `TASKS`: its store is a database of `DATABASES`.

`fairlane.contrib.django.project:default` is the application of the backend `default`, for the command line and for the
processes of workers. It sets Django up and imports the modules `tasks` of the installed applications: only tasks
defined in imported modules run.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, Unpack
from urllib.parse import quote, urlencode

import django
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.signals import connection_created
from django.utils.module_loading import autodiscover_modules, import_string

from fairlane import Fairlane, InvalidOption, TaskOptions
from fairlane.errors import nearest
from fairlane.extras import needed_for

F = TypeVar("F", bound=Callable[..., Any])

BACKEND = "fairlane.contrib.django.FairlaneBackend"
HIGHEST = 100
"""The highest priority of a Django task. Django's larger numbers are more urgent, Fairlane's smaller ones."""
PRIORITIES = {"high": 0, "normal": HIGHEST, "low": 2 * HIGHEST}
"""Fairlane's labels on that scale, unless the options of the backend set others."""
OWN_OPTIONS = ("database", "url", "modules", "migrate", "dashboard_url", "person")
"""Options of a backend that are not settings of Fairlane."""
TASK_OPTIONS = "fairlane_options"
DJANGOS = ("name", "priority")
"""Options of a task that are Django's to give."""


def job_options(**options: Unpack[TaskOptions]) -> Callable[[F], F]:
    """Fairlane's own options of a task, for below `@task`: `@job_options(timeout=60, retry=Retry(max_attempts=3))`."""
    require_known("task option", options, [name for name in TaskOptions.__annotations__ if name not in DJANGOS])

    def decorate(function: F) -> F:
        setattr(function, TASK_OPTIONS, {**getattr(function, TASK_OPTIONS, {}), **options})
        return function

    return decorate


def require_known(what: str, given: Iterable[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise InvalidOption(what, name, f"one of {', '.join(known)}.{nearest(name, known)}")


class Project:
    """What this process knows of the project: its tasks, and the applications made so far."""

    def __init__(self) -> None:
        self.tasks: dict[str, Any] = {}
        """Django's tasks by the type of their jobs, as they were decorated."""
        self._apps: dict[str, tuple[str | None, Fairlane]] = {}
        """By alias, with the name of the database: Django's test runner replaces that."""
        self._lock = threading.RLock()

    def add(self, task: Any) -> None:
        """Register a task with every application; `using(…)` makes copies, of which the first counts."""
        if task.module_path in self.tasks:
            return
        with self._lock:  # an application that is being made takes it from `tasks`, or is here
            if self.tasks.setdefault(task.module_path, task) is task:
                for alias, (_, app) in self._apps.items():
                    _register(app, alias, task)

    def app(self, alias: str) -> Fairlane:
        database = database_of(alias)
        name = None if database is None else str(connections[database].settings_dict["NAME"])
        found = self._apps.get(alias)
        if found is None or found[0] != name:
            with self._lock:
                found = self._apps.get(alias)
                if found is None or found[0] != name:
                    if found is not None:
                        found[1].close()
                    found = self._apps[alias] = name, self.new_app(alias)
        return found[1]

    def close(self) -> None:
        """Forget the applications: their settings have changed."""
        with self._lock:
            for _, app in self._apps.values():
                app.close()
            self._apps.clear()

    def new_app(self, alias: str) -> Fairlane:
        """An application of its own, which is connected to nothing yet."""
        options = options_of(alias)
        settings = {"priorities": PRIORITIES, **_without_own(options)}
        # Workers serve the queues that they know by name.
        settings["queues"] = {**{name: {} for name in queues_of(alias)}, **settings.get("queues", {})}
        database = database_of(alias)
        if options.get("url") is not None:
            settings["url"] = options["url"]
        elif database is not None:
            settings["url"] = database_url(database)
            if connections[database].vendor == "sqlite":
                settings.setdefault("sqlite_library", "stdlib")  # Django's own; two on one file can corrupt it
        app = Fairlane(**settings)
        for task in list(self.tasks.values()):
            _register(app, alias, task)
        return app


project = Project()


def application(alias: str = "default") -> Fairlane:
    """The Fairlane application of a backend: for `app.jobs`, `app.dead_letters`, limits, tasks of Fairlane's own."""
    return project.app(alias)


def discover(alias: str = "default") -> None:
    """Import the modules that define tasks: `tasks` of each installed application, and the option `modules`."""
    autodiscover_modules("tasks")
    for name in options_of(alias).get("modules", ()):
        importlib.import_module(name)


def reference(alias: str) -> str:
    """Where Fairlane's command line and worker processes find the application of a backend."""
    options_of(alias)
    return f"{__name__}:{alias}"


def __getattr__(alias: str) -> Fairlane:
    if alias.startswith("_"):
        raise AttributeError(alias)
    if not apps.ready:
        django.setup()
    discover(alias)
    return application(alias)


def options_of(alias: str) -> Mapping[str, Any]:
    """The `OPTIONS` of a backend."""
    options: Mapping[str, Any] = _backend(alias).options
    return options


def queues_of(alias: str) -> list[str]:
    """The `QUEUES` of a backend; none: its tasks may name any."""
    return sorted(_backend(alias).queues)


def _backend(alias: str) -> Any:
    """A backend of `TASKS`, which must be Fairlane's."""
    from fairlane.contrib.django.backend import FairlaneBackend, task_backends

    if alias not in task_backends.settings:
        raise ImproperlyConfigured(f'TASKS has no "{alias}"; expected one of {", ".join(task_backends.settings)}')
    backend = task_backends[alias]
    if not isinstance(backend, FairlaneBackend):
        raise ImproperlyConfigured(f'TASKS["{alias}"] is {type(backend).__qualname__}; Fairlane needs {BACKEND}')
    return backend


def database_of(alias: str) -> str | None:
    """The entry of `DATABASES` that keeps a backend's jobs; None: its `url` names a store elsewhere."""
    options = options_of(alias)
    if options.get("url") is not None:
        return None
    name: str = options.get("database", DEFAULT_DB_ALIAS)
    if name not in (known := list(connections)):
        raise ImproperlyConfigured(f'TASKS["{alias}"]: database = "{name}": expected one of {", ".join(known)}')
    return name


def person_hook(alias: str = "default") -> Callable[[Any], Any]:
    from fairlane.contrib.django.users import person

    given = options_of(alias).get("person", person)
    return import_string(given) if isinstance(given, str) else given  # type: ignore[no-any-return]


def dashboard_url(alias: str = "default") -> str | None:
    """Where the dashboard is mounted, for the link in Django's admin; None: nowhere that is known."""
    try:
        url: str | None = options_of(alias).get("dashboard_url", "/fairlane/")
    except ImproperlyConfigured:
        return None
    return url


def migrate(database: str) -> Sequence[str]:
    """Bring the schema of the stores on one database up to date, unless their option `migrate` is False."""
    from fairlane.contrib.django.backend import FairlaneBackend, task_backends

    done: list[str] = []
    for alias in task_backends.settings:
        backend = task_backends[alias]
        if not isinstance(backend, FairlaneBackend) or not backend.options.get("migrate", True):
            continue
        if database_of(alias) != database or is_in_memory(database):
            continue
        with project.new_app(alias) as app:
            migrator = app.runtime.store.migrator()
            steps = () if migrator is None else migrator.up()
            done += [f"{step.version:04d} {step.name} ({step.phase})" for step in steps]
    return done


def database_url(database: str = DEFAULT_DB_ALIAS) -> str:
    """The address of a database of `DATABASES`, as Fairlane writes it."""
    connection = connections[database]
    given = connection.settings_dict
    if connection.vendor == "sqlite":
        if is_in_memory(database):
            return "memory://"  # as in tests: no other process sees that database, or its jobs
        return f"sqlite:///{quote(str(given['NAME']))}"
    if connection.vendor != "postgresql":
        raise ImproperlyConfigured(
            f'DATABASES["{database}"] is on {connection.vendor}, where Fairlane keeps no jobs: give the backend the '
            'option "url" of another store, or "database" of one on PostgreSQL or SQLite'
        )
    return _postgres_url(given)


def follow_tests() -> None:
    """In tests: make the applications anew after `override_settings(TASKS=…)`, and let test databases be dropped."""
    setting_changed.connect(_on_setting_changed, dispatch_uid="fairlane.contrib.django")
    connection_created.connect(_on_connection_created, dispatch_uid="fairlane.contrib.django")


def _on_setting_changed(*, setting: str, **_: object) -> None:
    if setting in ("TASKS", "DATABASES"):
        project.close()


def _on_connection_created(*, connection: Any, **_: object) -> None:
    """Close connections to a test database: Django, connected to none, is about to create, copy or drop it."""
    if connection.alias == NO_DB_ALIAS:
        project.close()


def _without_own(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in OWN_OPTIONS}


def _register(app: Fairlane, alias: str, task: Any) -> None:
    from fairlane.contrib.django.backend import register

    if task.module_path not in app.tasks:
        register(app, alias, task)


def is_in_memory(database: str) -> bool:
    connection = connections[database]
    return connection.vendor == "sqlite" and bool(connection.is_in_memory_db())


def _postgres_url(given: Mapping[str, Any]) -> str:
    with needed_for("a backend of TASKS on PostgreSQL", "postgres"):
        from psycopg.pq import Conninfo

    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    options = dict(given.get("OPTIONS", {}))
    if role := options.pop("assume_role", None):
        options["options"] = f"{options.get('options', '')} -c role={role}".strip()
    query = {name: str(value) for name, value in options.items() if name in known and value is not None}
    host, port = str(given.get("HOST") or ""), str(given.get("PORT") or "")
    if "/" in host or "," in host or ":" in host:  # a socket, several servers, an IPv6 address
        query["host"], host = host, ""
    if port and not host:
        query["port"], port = port, ""
    user = quote(str(given.get("USER") or ""), safe="")
    word = f":{quote(str(given['PASSWORD']), safe='')}" if given.get("PASSWORD") else ""
    place = f"{user}{word}@{host}" if user or word else host
    name = quote(str(given.get("NAME") or ""), safe="")
    more = f"?{urlencode(query, quote_via=quote)}" if query else ""
    return f"postgresql://{place}{f':{port}' if port else ''}/{name}{more}"
