"""Keys of jobs: how many jobs of one tenant with the same key run at once, how often they start, and in which order.

`customer:42` is a key, and `customer`, what stands before its first colon, its name: limits that people set at run time
(`Limit(kind="key", name="customer")`) are over every key of that name. A tenant's keys are its own.

JobKey      the key of one job, and what its code says of it
KeyRule     how the jobs of a task get theirs: from their arguments
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from fairlane.core.limits import HIGHEST_NUMBER, NO_LIMIT, Figure, Rate, read_rate
from fairlane.core.names import NamedFields, check_key
from fairlane.errors import InvalidOption, nearest

OnConflict = Literal["wait", "discard", "replace", "cancel_running"]
"""What an enqueue does where its key has no place for the job:

wait            the job waits for its turn
discard         the job is a duplicate of the oldest unfinished one with the key
replace         unfinished jobs with the key that do not run are cancelled
cancel_running  those that run are asked to cancel, too
"""


class JobKey(Struct, frozen=True, kw_only=True, omit_defaults=True, metaclass=NamedFields):
    """A key, and what the job's own code says of it. A job waits until its key has a place for it."""

    value: str
    running: Figure = 1
    """Jobs at once."""
    rate: Rate | None = None
    ordered: bool = False
    """One after the other in the order of enqueueing. A job that has begun keeps its place through retries, and as a
    dead letter until a person closes it."""
    on_conflict: OnConflict = "wait"

    @property
    def name(self) -> str:
        return key_name(self.value)


def key_name(value: str) -> str:
    """The name of a key: what limits set at run time are called by."""
    return value.partition(":")[0]


def check_job_key(key: JobKey) -> JobKey:
    """The key itself, or an error that says what is wrong with it."""
    check_key("key", key.value)
    if not key.name:
        raise InvalidOption("key", key.value, 'a name, and a value behind a colon if there is one: "customer:42"')
    running: object = key.running
    if isinstance(running, bool) or not isinstance(running, int) or not NO_LIMIT <= running <= HIGHEST_NUMBER:
        raise InvalidOption("running", running, f"a whole number from 0 to {HIGHEST_NUMBER}, or {NO_LIMIT}: no limit")
    if key.rate is not None:
        read_rate("rate", key.rate)
    if not isinstance(key.ordered, bool):
        raise InvalidOption("ordered", key.ordered, "True or False")
    if key.ordered and key.running != 1:
        raise InvalidOption("running", key.running, "1, or nothing: an ordered key runs one job at a time")
    if key.on_conflict not in get_args(OnConflict):
        raise InvalidOption("on_conflict", key.on_conflict, f"one of {', '.join(get_args(OnConflict))}")
    return key


NO_KEY = ""
"""Said of one call: no key, whatever its task says."""
KeyParts = str | tuple[str, ...] | Callable[..., str | None]
"""What a key is made of: a parameter by its name, several, or a function of all arguments by name."""


class KeyRule:
    """How the jobs of a task get their keys.

    Of parameters: `customer_id=42` is `customer:42`, two of them are `shop-item:berlin:7`; without a key if one is
    None. A function returns the key, or None.
    """

    def __init__(
        self,
        task: str,
        parts: KeyParts,
        parameters: Sequence[str],
        defaults: Mapping[str, Any],
        terms: Mapping[str, Any],
    ) -> None:
        self._task, self._defaults = task, defaults
        self._function = parts if callable(parts) else None
        self._names = (parts,) if isinstance(parts, str) else () if callable(parts) else tuple(parts)
        for name in self._names:
            if name not in parameters:
                known = f"a parameter, out of {', '.join(parameters) or 'none'}, several of them, or a function"
                raise InvalidOption(f'key of task "{task}"', name, f"{known}.{nearest(str(name), parameters)}")
        if not self._names and self._function is None:
            raise InvalidOption(f'key of task "{task}"', parts, "at least one parameter")
        self._name = "-".join(name.removesuffix("_id") or name for name in self._names)
        self.terms = check_job_key(JobKey(value=self._name or "key", **terms))
        """The key of a job, but for its value."""

    def key_of(self, args: Mapping[str, Any], terms: JobKey | None = None) -> JobKey | None:
        """The key of the job that has these arguments, on these terms instead of the task's; None: it has none."""
        value = self._value_of(args)
        return None if value is None else check_job_key(replace(terms or self.terms, value=value))

    def _value_of(self, args: Mapping[str, Any]) -> str | None:
        args = {**self._defaults, **args}
        if self._function is None:
            texts = [self._text(name, args[name]) for name in self._names if args[name] is not None]
            if len(texts) < len(self._names):
                return None
            if len(texts) > 1:  # ("a:b", "c") and ("a", "b:c") are two keys.
                texts = [text.replace("\\", "\\\\").replace(":", "\\:") for text in texts]
            return ":".join((self._name, *texts))
        try:
            found = self._function(**args)
        except Exception as error:
            error.add_note(f'raised by the key of task "{self._task}"; nothing was enqueued')
            raise
        if found is not None and not isinstance(found, str):
            raise InvalidOption(f'key of task "{self._task}"', found, 'text such as "shop:berlin", or None')
        return found

    def _text(self, name: str, value: object) -> str:
        if isinstance(value, str):
            return str.__str__(value)  # of an enumeration: what is stored
        if isinstance(value, UUID) or (isinstance(value, int) and not isinstance(value, bool)):
            return str(value if isinstance(value, UUID) else int(value))
        expected = "a whole number, text, a UUID or None, known where the job is enqueued"
        raise InvalidOption(f'"{name}" in the key of task "{self._task}"', value, expected)


def key_terms(
    rule: KeyRule | None, given: str | JobKey | None, ordered: bool | None = None, on_conflict: OnConflict | None = None
) -> JobKey | None:
    """A key as its task and its call say, checked; without a value of the call's own it has that of `rule.terms`."""
    terms = None if rule is None or given == NO_KEY else rule.terms
    if isinstance(given, JobKey):
        terms = given
    elif given:
        terms = replace(terms or JobKey(value=given), value=given)
    for option, said in (("ordered", ordered), ("on_conflict", on_conflict)):
        if said is not None and (terms is not None or said not in (False, "wait")):
            if terms is None:
                raise InvalidOption(option, said, "a key, too: key=… of the task, or of this call")
            terms = replace(terms, **{option: said})
    return terms and check_job_key(terms)
