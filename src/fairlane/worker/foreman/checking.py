"""Whether an application can be run as asked: every mistake ends in one clear line before anything is claimed."""

from __future__ import annotations

from fairlane.client.app import Fairlane
from fairlane.core.ops import Check
from fairlane.errors import ConfigError, SchemaOutOfDate, StoreUnavailable, UnknownTask, nearest
from fairlane.stores.url import redacted
from fairlane.worker.config import WorkerConfig
from fairlane.worker.desk import known_queues
from fairlane.worker.foreman.messages import StorePlace
from fairlane.worker.lanes import ANY


def check_application(app: Fairlane, config: WorkerConfig) -> None:
    """Raises what is wrong with the application, its flags or its store."""
    if not app.tasks:
        raise ConfigError(
            f'app = "{config.app}" has no tasks: nothing would ever run; did you import the modules that define them?'
        )
    for name in config.types:
        if name not in app.tasks:
            raise UnknownTask(name, app.tasks)
    known = known_queues(app, (ANY,))
    for lane in config.lanes:
        for queue in lane.queues:
            if queue != ANY and queue not in known:
                raise ConfigError(
                    f'lane "{lane.name}": no queue "{queue}" among those of settings and tasks '
                    f"({', '.join(known)}).{nearest(queue, known)}"
                )
    if app.settings.url.lower().startswith("memory:"):
        raise ConfigError(
            f"url = {app.settings.url} ({app.settings.source('url')}) lives in one process, and workers have processes of "
            "their own: give a url such as sqlite:///fairlane.db, or run jobs in this process with `app.running()`"
        )
    health, migrator = app.store.run(Check()), app.store.migrator()
    if migrator is not None and health.schema_version < migrator.needed:
        # A newer schema is fine: old workers go on while new ones are rolled out.
        raise SchemaOutOfDate(health.schema_version, migrator.needed)
    if app.store.name == "memory":
        raise StoreUnavailable(
            app.settings.url.partition(":")[0],
            f"{redacted(app.settings.url)} did not answer, and a worker does not fall back to memory",
        )


def store_place(app: Fairlane) -> StorePlace:
    settings = app.settings
    return StorePlace(
        url=settings.url,
        schema=settings.schema,
        sqlite_library=settings.sqlite_library,
        statement_timeout_s=settings.statement_timeout_s,
    )
