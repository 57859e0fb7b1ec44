"""What tasks, queues, tenants and keys may be called."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec import StructMeta

from fairlane.core.ids import EVERY_TENANT, SYSTEM_TENANT, SystemTenant
from fairlane.errors import InvalidOption, nearest

MAX_NAME_BYTES = 128
MAX_KEY_BYTES = 512

EMAIL_TASK = "fairlane.email"
WEBHOOK_TASK = "fairlane.webhook"
BUILT_IN_TASKS = frozenset({EMAIL_TASK, WEBHOOK_TASK})
"""Fairlane's own tasks. It signs and sends what their payloads hold, so nobody but its own code may write one."""

_NAME = re.compile(r"[a-zA-Z0-9_.:-]{1,128}")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class NamedFields(StructMeta):
    """Of structs that applications make: an unknown field is refused with the names of those there are."""

    if not TYPE_CHECKING:  # Type checkers read the fields themselves.

        def __call__(cls, *args: Any, **given: Any) -> Any:  # noqa: N805 - of a metaclass
            if len(args) > len(cls.__match_args__):
                raise InvalidOption(cls.__name__, args, f"options by name, as in {cls.__struct_fields__[0]}=…")
            for name in given:
                if name not in cls.__struct_fields__:
                    known = ", ".join(cls.__struct_fields__)
                    near = nearest(name, cls.__struct_fields__)
                    raise InvalidOption(f"option of {cls.__name__}", name, f"one of {known}.{near}")
            return super().__call__(*args, **given)


def check_task_name(name: object) -> str:
    return _check_name("task name", name)


def check_queue_name(name: object) -> str:
    return _check_name("queue", name)


def check_breaker_name(name: object) -> str:
    return _check_name("breaker", name)


def check_limit_name(name: object) -> str:
    return _check_name("limit", name)


def check_signal_name(name: object) -> str:
    return _check_name("signal", name)


def check_rule_name(name: object) -> str:
    return _check_name("alert rule", name)


def check_tenant(tenant: object) -> str:
    """The tenant as text: a whole number and its digits mean the same tenant."""
    if isinstance(tenant, int) and not isinstance(tenant, bool) and abs(tenant) < 10**MAX_NAME_BYTES:
        tenant = str(tenant)
    if tenant == EVERY_TENANT:
        raise InvalidOption("tenant", tenant, "one tenant: * means every tenant, and only limits are set for that")
    return _check_text("tenant", tenant, MAX_NAME_BYTES, "a whole number, or text")


def check_own_tenant(tenant: object) -> str:
    """The tenant that a caller is or that jobs are given to. The application itself, `system`, is never meant by name.

    A customer may be called anything: only code can say `SYSTEM`, no text from outside can.
    """
    if isinstance(tenant, SystemTenant):
        return SYSTEM_TENANT
    checked = check_tenant(tenant)
    if checked == SYSTEM_TENANT:
        raise InvalidOption("tenant", tenant, "another name: it is the application itself, which code calls SYSTEM")
    return checked


def check_key(option: str, key: object) -> str:
    """An idempotency key, a dedup key or a correlation id."""
    return _check_text(option, key, MAX_KEY_BYTES, "text")


def check_words(option: str, words: object) -> str:
    """What people write for people, of any length: text that every store can keep."""
    if not isinstance(words, str) or _UNSTORABLE.search(words):
        raise InvalidOption(option, words, "text without NUL characters and halves of surrogate pairs")
    return words


def _check_name(option: str, name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidOption(option, name, "1 to 128 of the characters a-z A-Z 0-9 _ . : -")
    return name


def _check_text(option: str, value: object, max_bytes: int, kind: str) -> str:
    expected = f"{kind} of 1 to {max_bytes} bytes without control characters"
    if not isinstance(value, str) or not value or len(value) > max_bytes or _CONTROL.search(value):
        raise InvalidOption(option, value, expected)
    if len(value.encode()) > max_bytes:
        raise InvalidOption(option, value, expected)
    return value
