"""Checks payloads by the strict rules: required fields, known category, nothing sensitive, not too large.

    ok, errors = PayloadValidator.validate_payload(payload, "ingestion", ["connection_id"])

On the class it works by the defaults; an instance knows the application's own categories, required fields and schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar
from uuid import UUID

import msgspec

from fairlane.core.names import check_key, check_tenant
from fairlane.core.payload.codec import encode_value, size_warning
from fairlane.core.payload.json_scan import LIMITS, ScanLimits
from fairlane.core.payload.secrets import SensitivePolicy, find
from fairlane.core.queues import CATEGORIES
from fairlane.errors import InvalidOption, nearest, shown

_P = ParamSpec("_P")
_R = TypeVar("_R")


class _ForBoth(Generic[_P, _R]):
    """A method that works on the class too, by way of an instance with the defaults."""

    def __init__(self, method: Callable[Concatenate[PayloadValidator, _P], _R]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, instance: PayloadValidator | None, owner: type[PayloadValidator]) -> Callable[_P, _R]:
        return partial(self._method, instance if instance is not None else owner())


class Review(NamedTuple):
    errors: list[str]
    warnings: list[str]


class PayloadValidator:
    """Checks payloads, and names all their problems at once.

    `required` adds fields by category or by task name; `schemas` gives a type (a msgspec struct, a dataclass, a
    TypedDict, a pydantic model) by category or by task name.
    """

    def __init__(
        self,
        categories: Iterable[str] = CATEGORIES,
        required: Mapping[str, Iterable[str]] | None = None,
        schemas: Mapping[str, Any] | None = None,
        limits: ScanLimits = LIMITS,
        sensitive: SensitivePolicy = "refuse",
    ) -> None:
        self._categories = tuple(categories)
        self._required = {name: tuple(fields) for name, fields in (required or {}).items()}
        self._schemas = dict(schemas or {})
        self._limits, self._sensitive = limits, sensitive

    def review(
        self,
        payload: object,
        category: str | None,
        additional_required: Iterable[str] | None = None,
        *,
        task: str | None = None,
        is_reference_required: bool = True,
    ) -> Review:
        """Everything there is to say about a payload. It must name an object it works on, unless its caller has."""
        if not isinstance(payload, Mapping):
            return Review([f"the payload is {type(payload).__name__}, expected a dict of named values"], [])
        errors = [*self._category_errors(category), *_envelope_errors(payload)]
        declared = self._declared(category, task, additional_required or ())
        errors += [f"{field} is missing" for field in declared if payload.get(field) is None]
        if is_reference_required and not declared and not any(_is_reference(*field) for field in payload.items()):
            errors.append("no object is referred to: expected a field named …_id or …_ids, such as document_id")
        errors += _reference_errors(payload)
        errors += self._schema_errors(payload, category, task)
        if self._sensitive == "refuse":
            errors += [f"{path} is sensitive: {why}; pass a reference instead" for path, why in find(dict(payload))]
        text, problems = encode_value(dict(payload), limits=self._limits)
        warning = size_warning(text, self._limits) if text is not None else None
        return Review(errors + problems, [warning] if warning else [])

    @_ForBoth
    def validate_payload(
        self,
        payload: object,
        category: str | None,
        additional_required: Iterable[str] | None = None,
        *,
        task: str | None = None,
    ) -> tuple[bool, list[str]]:
        """Whether a payload may be enqueued, and every reason why not."""
        errors = self.review(payload, category, additional_required, task=task).errors
        return not errors, errors

    @staticmethod
    def create_payload(
        tenant_id: int | str, correlation_id: UUID | str, idempotency_key: str, **fields: Any
    ) -> dict[str, Any]:
        """A payload with the fields every job has to carry; check it with `validate_payload`."""
        return {
            "tenant_id": tenant_id,
            "correlation_id": str(correlation_id) if isinstance(correlation_id, UUID) else correlation_id,
            "idempotency_key": idempotency_key,
            **fields,
        }

    def _category_errors(self, category: str | None) -> list[str]:
        if category in self._categories:
            return []
        names = ", ".join(self._categories)
        if not isinstance(category, str):
            return [f"category = {shown(category)}: expected one of {names}"]
        return [f'category "{category}" is not known; there are {names}.{nearest(category, self._categories)}']

    def _declared(self, category: str | None, task: str | None, additional: Iterable[str]) -> list[str]:
        """The fields required beside those of every payload."""
        by_category, by_task = self._required.get(category or "", ()), self._required.get(task or "", ())
        return [field for field in dict.fromkeys((*by_category, *by_task, *additional)) if field not in _ENVELOPE]

    def _schema_errors(self, payload: Mapping[str, Any], category: str | None, task: str | None) -> list[str]:
        errors: list[str] = []
        for name in dict.fromkeys(name for name in (category, task) if name):
            if name in self._schemas:
                errors += _misfit(name, payload, self._schemas[name])
        return errors


_ENVELOPE = ("tenant_id", "correlation_id", "idempotency_key")


def _envelope_errors(payload: Mapping[str, Any]) -> list[str]:
    errors = [f"{field} is missing" for field in _ENVELOPE if payload.get(field) is None]
    checks: dict[str, Callable[[object], object]] = {
        "tenant_id": check_tenant,
        "correlation_id": _check_uuid,
        "idempotency_key": partial(check_key, "idempotency_key"),
    }
    for field, check in checks.items():
        if payload.get(field) is not None:
            try:
                check(payload[field])
            except InvalidOption as error:
                errors.append(f"{field} = {shown(error.value)}: expected {error.expected}")
    return errors


def _check_uuid(value: object) -> None:
    if isinstance(value, UUID):
        return
    try:
        UUID(value) if isinstance(value, str) and len(value) == 36 else UUID("")
    except ValueError:
        raise InvalidOption("correlation_id", value, "a UUID") from None


def _is_reference(field: object, value: object) -> bool:
    return str(field).endswith(("_id", "_ids")) and field not in _ENVELOPE and value not in (None, "", [], ())


def _reference_errors(payload: Mapping[str, Any]) -> list[str]:
    """A field named like an id holds an id, not the object itself."""
    return [
        f"{field} = {shown(value)}: expected an id, a whole number or text"
        for field, value in payload.items()
        if str(field).endswith("_id") and field not in _ENVELOPE
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, str, UUID)))
    ]


def _misfit(name: str, payload: Mapping[str, Any], schema: Any) -> list[str]:
    validate = getattr(schema, "model_validate", None)
    try:
        if callable(validate):
            validate(dict(payload))
        else:
            msgspec.convert(dict(payload), schema)
    except ValueError as error:  # msgspec's and pydantic's own errors are both ValueErrors
        problems = _listed_problems(error)
        return [f'does not fit the schema of "{name}": {problem}' for problem in problems]
    return []


def _listed_problems(error: ValueError) -> list[str]:
    listing = getattr(error, "errors", None)
    if not callable(listing):
        return [str(error)]
    return [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in listing()]
