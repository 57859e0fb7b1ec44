"""Settings under which Django's own tests of its tasks meet Fairlane's backend: it stands in for both of Django's.

Jobs are in the testing kit, because these tests look at results at once, and tasks have one attempt, as in Django's.
"""

from __future__ import annotations

import django

if django.VERSION >= (6, 0):
    from django.tasks.backends import dummy, immediate
else:
    from django_tasks import exceptions
    from django_tasks.backends import dummy, immediate

    exceptions.InvalidTask = exceptions.InvalidTaskError
    exceptions.InvalidTaskBackend = exceptions.InvalidTaskBackendError

from typing import Any

from fairlane import Retry
from fairlane.contrib.django.backend import FairlaneBackend
from fairlane.contrib.django.project import application
from fairlane.testing import Sandbox

SECRET_KEY, USE_TZ = "only for tests", True
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
INSTALLED_APPS = ["fairlane.contrib.django", *([] if django.VERSION >= (6, 0) else ["django_tasks"])]


class KitBackend(FairlaneBackend):  # type: ignore[misc]
    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._kits: dict[Any, Sandbox] = {}

    @property
    def kit(self) -> Sandbox:
        app = application(self.alias)
        if app not in self._kits:
            self._kits[app] = app.testing(retry=Retry(max_attempts=1), profile="development").__enter__()
        return self._kits[app]


class DummyBackend(KitBackend):
    """Keeps what was enqueued."""

    @property
    def results(self) -> list[Any]:
        return [self.get_result(str(job.id)) for job in self.kit.enqueued()]

    def clear(self) -> None:
        self.kit.app.jobs.purge()

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        assert self.kit
        return super().enqueue(task, args, kwargs)


class ImmediateBackend(KitBackend):
    """Runs each task where it is enqueued."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        kit = self.kit
        result = super().enqueue(task, args, kwargs)
        kit.run_due(raising=False)
        result.refresh()
        return result


dummy.DummyBackend, immediate.ImmediateBackend = DummyBackend, ImmediateBackend
