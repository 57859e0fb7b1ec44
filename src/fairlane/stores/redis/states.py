"""What is kept of a job, as scripts write it and handlers read it: its body, its state, its attempts.

`job:<seq>`    one array, `KeptBody`, written once. Scripts read its first ten elements and seldom the others.
`state:<seq>`  one array, `JobState`; none while the job is where its enqueue has put it.
`facts:<seq>`  a hash with what most jobs have not; its documents are `KeptAttempt`, `KeptError`, `KeptLetter`,
               `KeptStep`, `KeptWait`.

Instants are microseconds since 1970, exact until the year 2255: scripts count in floating point.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from fairlane.core.ids import JobId, WorkerId
from fairlane.core.job import AttemptOutcome, ErrorClass, JobSpec, Status, StepKind
from fairlane.core.job_keys import JobKey
from fairlane.core.limits import Rate
from fairlane.errors import StoreRefused
from fairlane.stores.instants import LATEST_US, span_us, to_us
from fairlane.stores.redis.errors import STORE

Place = Literal["ready", "scheduled", "failed", "held", "at_key", "waiting", "leased", "completed", "dead", "cancelled"]
"""`failed`: scheduled, for its retry; `at_key`: held there; `waiting`: held, a node whose parents have not ended."""

_PENDING = frozenset({"ready", "scheduled", "held", "at_key", "waiting"})
FINISHED = frozenset({"completed", "dead", "cancelled"})


class KeptKey(Struct, frozen=True, array_like=True):
    """The key of a job, as `is_key` in scripts/prelude.lua takes it."""

    value: str
    running: int
    ordered: bool
    order: int = 0
    """The number of the job that died, of which this one was made; 0: none."""
    rate: tuple[int, int, float] | None = None
    """How many, in how many microseconds, and in seconds as they were given."""

    def as_given(self) -> JobKey:
        rate = None if self.rate is None else Rate(self.rate[0], self.rate[2])
        return JobKey(value=self.value, running=self.running, rate=rate, ordered=self.ordered)


class KeyedPlace(Struct, frozen=True, array_like=True):
    place: Place
    key: KeptKey


class KeptBody(Struct, frozen=True, array_like=True):
    """What was enqueued. `HEAD` and `BODY_HEADER` in scripts/prelude.lua depend on its order and length."""

    enqueued: int
    due: int
    placed: Place | KeyedPlace
    """Where its enqueue has put it, with its key if it has one."""
    lease_us: int | None
    """How long a started lease lasts: twice the timeout."""
    dedup: str | None
    """The field of its dedup key; of a node `node:<workflow>:<n>`."""
    tenant: str
    queue: str
    type: str
    band: int
    rank: int
    priority: int
    max_attempts: int
    payload_version: int
    timeout_s: float | None
    category: str | None
    idempotency_key: str | None
    dedup_key: str | None
    correlation_id: str | None
    parent_id: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")] | None
    created_by: str | None
    refs: dict[str, int | str] | None
    headers: dict[str, str] | None
    retry: str | None
    payload: str
    id: UUID
    seq: int

    @property
    def key(self) -> KeptKey | None:
        return self.placed.key if isinstance(self.placed, KeyedPlace) else None


class JobState(Struct, frozen=True, kw_only=True, array_like=True):
    """Where a job is and all it carries; `None` where that does not apply there.

    `packed_state` in the prelude writes it; behind these a leased one has what scripts alone read.
    """

    place: Place
    due: int
    attempt: int = 0
    attempts: int = 0
    crashes: int = 0
    suspect: bool | None = None
    aged: int | None = None
    put_off: bool | None = None
    waits: str | None = None
    """Scheduled, and waits for a signal of these names."""
    worker: str | None = None
    leased: int | None = None
    """Of one that is scheduled: what its due time is counted from; None where that was given as an instant. Of one that
    is ready: the period of the rate under which its key has let it in, if there was one."""
    deadline: int | None = None
    cancel: bool | None = None
    finished: int | None = None
    outcome: AttemptOutcome | None = None
    started: int | None = None
    claim: int | None = None
    lane: str | None = None
    alone: bool | None = None
    rated: list[str] | None = None

    @property
    def status(self) -> Status:
        if self.place == "leased":
            return "pending" if self.started is None else "processing"
        return "pending" if self.place in _PENDING else self.place  # type: ignore[return-value]


class KeptAttempt(Struct, frozen=True, kw_only=True):
    attempt: int
    outcome: AttemptOutcome
    worker: str | None = None
    leased: int
    expires: int | None = None
    started: int | None = None
    ended: int
    error_class: ErrorClass | None = None
    error_type: str | None = None
    error_message: str | None = None
    traceback: str | None = None


class KeptError(Struct, frozen=True, kw_only=True):
    """The newest error of a job."""

    error_class: ErrorClass
    error_type: str
    error_message: str
    at: int


class KeptLetter(Struct, frozen=True, kw_only=True):
    status: str
    reason: str
    error_class: ErrorClass
    error_type: str
    fingerprint: str | None = None
    """None: a failure of our own, made by a script; alike for all jobs of one type."""
    died: int
    acknowledged_by: str | None = None
    acknowledged: int | None = None
    closed_by: str | None = None
    closed: int | None = None
    notes: str | None = None
    reprocess_count: int = 0
    reprocessed_as: str | None = None


class KeptStep(Struct, frozen=True, kw_only=True):
    n: int
    kind: StepKind
    name: str
    key: str
    attempt: int
    at: int
    ran_s: float | None = None
    result: str | None = None
    until: int | None = None
    signal: str | None = None


class KeptWait(Struct, frozen=True, kw_only=True):
    """What a job waits for."""

    n: int
    name: str
    key: str
    attempt: int
    until: int


_read_body = msgspec.msgpack.Decoder(KeptBody).decode
read_state = msgspec.msgpack.Decoder(JobState).decode
read_attempt = msgspec.msgpack.Decoder(KeptAttempt).decode
read_error = msgspec.msgpack.Decoder(KeptError).decode
read_letter = msgspec.msgpack.Decoder(KeptLetter).decode
read_step = msgspec.msgpack.Decoder(KeptStep).decode
read_wait = msgspec.msgpack.Decoder(KeptWait).decode

_read_elements = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.msgpack.encode


def read_body(kept: bytes) -> KeptBody:
    """What is no valid UTF-8 in it is read as U+FFFD."""
    try:
        return _read_body(kept)
    except UnicodeDecodeError:
        return _read_body(b"\xdc\x00\x1a" + b"".join(map(_with_valid_text, _read_elements(kept))))


_TEXT_HEADERS = {0xD9: 2, 0xDA: 3, 0xDB: 5}
"""How many bytes stand before a text, by the first of them; before a short one it is one."""


def _with_valid_text(element: msgspec.Raw) -> bytes:
    kept = bytes(element)
    try:
        msgspec.msgpack.decode(kept)
    except UnicodeDecodeError:
        if kept[0] >> 5 != 0b101 and kept[0] not in _TEXT_HEADERS:
            return b"\xc0"  # refs or headers
        return _encode(kept[_TEXT_HEADERS.get(kept[0], 1) :].decode("utf-8", "replace"))
    return kept


def write_body(body: KeptBody) -> bytes:
    return _encode([value.hex if isinstance(value, UUID) else value for value in msgspec.structs.astuple(body)])


def state_of(body: KeptBody, kept: bytes | None) -> JobState:
    if kept is not None:
        return read_state(kept)
    return JobState(place=body.placed.place if isinstance(body.placed, KeyedPlace) else body.placed, due=body.due)


def joined(first: str, second: str) -> str:
    """Two names as one that no other two can make; `joined` in the prelude."""
    return f"{len(first.encode())}:{first}{second}"


def worker_id(text: str) -> WorkerId:
    return WorkerId(UUID(hex=text))


def node_field(workflow: UUID, n: int) -> str:
    """What stands in the place of a node's dedup key; `nodes.lua` reads it."""
    return f"node:{workflow.hex}:{n}"


def new_job(
    spec: JobSpec, *, payload: str | None = None, node: str | None = None, order: int = 0
) -> tuple[dict[str, Any], bytes]:
    """What `create` in the prelude takes: what it has to look at, and the body behind its first three elements.

    `order`: the number of the job by which it stands in the order of its key; 0: its own.
    """
    own_id = spec.id.hex
    dedup = node
    if spec.dedup_key is not None:
        dedup = joined(spec.tenant, joined(spec.type, spec.dedup_key))
    given: dict[str, Any] = {
        "id": own_id,
        "tenant": spec.tenant,
        "queue": spec.queue,
        "type": spec.type,
        "band": spec.band,
        "rank": spec.rank,
    }
    if spec.run_at is not None:
        given["due"] = to_us(spec.run_at)
    elif spec.delay_s:
        given["delay"] = span_us(spec.delay_s)
    if spec.idempotency_key is not None:
        given["idempotency"] = joined(spec.tenant, spec.idempotency_key)
    if dedup is not None:
        given["dedup"] = dedup
    if spec.correlation_id is not None:
        given["correlation"] = spec.correlation_id
    if spec.parent_id is not None:
        given["parent"] = spec.parent_id.hex
    if (key := spec.key) is not None:
        rate = None if key.rate is None else (key.rate.count, span_us(key.rate.period_s), key.rate.period_s)
        given["key"] = KeptKey(key.value, key.running, key.ordered, order, rate)
    if payload is None:
        payload = text_of(spec.payload, "the payload of job", spec.id)
    return given, shared_body(spec, dedup) + own_body(payload, own_id)


def shared_body(spec: JobSpec, dedup: str | None = None) -> bytes:
    """The part of a body that jobs of different ids and payloads may share, behind its first three elements."""
    lease_us = None
    if spec.timeout_s is not None:
        span_us(spec.timeout_s)  # refuses what is no number
        lease_us = int(min(round(spec.timeout_s * 2_000_000.0), LATEST_US))
    shared = (
        lease_us,
        dedup,
        spec.tenant,
        spec.queue,
        spec.type,
        spec.band,
        spec.rank,
        spec.priority,
        spec.max_attempts,
        spec.payload_version,
        spec.timeout_s,
        spec.category,
        spec.idempotency_key,
        spec.dedup_key,
        spec.correlation_id,
        None if spec.parent_id is None else spec.parent_id.hex,
        spec.created_by,
        spec.refs or None,
        spec.headers or None,
        None if spec.retry is None else text_of(spec.retry, "the retry policy of job", spec.id),
    )
    return _encode(shared)[3:]  # without the header of an array of 20


def own_body(payload: str, own_id: str) -> bytes:
    """The part behind it; its number follows."""
    return _encode((payload, own_id))[1:]


def text_of(raw: msgspec.Raw, what: str, whose: JobId | object) -> str:
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError as error:
        raise StoreRefused(STORE, f"{what} {whose} is not UTF-8: {error}; nothing was changed") from error
