"""The fields every job carries beside its arguments, checked by the strict rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from fairlane.client.context import job_in_force, tenant_in_force
from fairlane.client.options import Options
from fairlane.client.settings import Settings
from fairlane.core.payload import encode_value
from fairlane.core.validator import PayloadValidator
from fairlane.errors import InvalidOption

if TYPE_CHECKING:
    from fairlane.client.definition import Definition

_PLACEHOLDER_ID = "00000000-0000-7000-8000-000000000000"
"""Stands for the job's own id, which is what a correlation id or key left out becomes."""


class Envelope:
    """Checks tenant, correlation id, idempotency key, category and references together with the arguments.

    With `strict_payload` each of them must have been given or inherited. Else their defaults count as given, and
    only the validator's own required fields and schemas can refuse.
    """

    def __init__(self, settings: Settings, validator: PayloadValidator | None) -> None:
        self._settings = settings
        self._validator = validator or PayloadValidator(
            categories=settings.categories, limits=settings.limits, sensitive="allow"
        )

    def problems(self, task: Definition[Any], options: Options, args: dict[str, Any]) -> list[str]:
        around = job_in_force.get()
        tenant = options.tenant or tenant_in_force.get()
        correlation = options.correlation_id or (around.correlation_id if around else None)
        key = options.idempotency_key
        if not self._settings.strict_payload:
            tenant, correlation, key = tenant or self._settings.default_tenant, _PLACEHOLDER_ID, key or _PLACEHOLDER_ID
        named = {"tenant_id": tenant, "correlation_id": correlation, "idempotency_key": key}
        text, _ = encode_value(args, limits=self._settings.limits)
        document = {
            **refs_of(task, options, args),
            **({} if text is None else msgspec.json.decode(text)),
            **{name: value for name, value in named.items() if value is not None},
        }
        return self._validator.validate_payload(document, task.category, task=task.name)[1]


def refs_of(task: Definition[Any], options: Options, args: dict[str, Any]) -> dict[str, int | str]:
    """The ids a job works on: the task's own arguments among them, then what the call added."""
    if not task.refs:
        return options.refs
    own = {name: _ref(name, args[name]) for name in task.refs if args.get(name) is not None}
    return {**own, **options.refs}


def _ref(name: str, value: object) -> int | str:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise InvalidOption(f"refs[{name!r}]", value, "an id: a whole number, text or a UUID")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InvalidOption(f"refs[{name!r}]", value, "a whole number of 64 bits; give larger ones as text")
    return value
