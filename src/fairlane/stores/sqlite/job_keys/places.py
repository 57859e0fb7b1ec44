"""Keys of jobs: who may be let in at each, who has a place, and what an enqueue does at a full one.

    enqueue, promote, release, … ──▶ held ──▶ let_in ──▶ gone with its job, or dead
                                      ▲ let_in()  │ scheduled (unless ordered), freed ──▶ away

`facts` moves jobs at their keys as it moves them from place to place. Triggers knock: they note the keys at which
something has moved, for the next Turn to look at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from fairlane.core.job import JobSpec
from fairlane.core.job_keys import JobKey, key_name
from fairlane.core.limits import LONGEST_PERIOD_S, NO_LIMIT, Rate, StoredLimit
from fairlane.stores.instants import before, to_us
from fairlane.stores.sqlite.facts import are_keys_used, hold_at_keys
from fairlane.stores.sqlite.jobs.acts import cancel_waiting, find_unfinished
from fairlane.stores.sqlite.limits import rates
from fairlane.stores.sqlite.limits.in_force import read_kept
from fairlane.stores.sqlite.transaction import Transaction, as_list

KEYS_AT_ONCE = 500
"""Keys that one Turn looks at; the others come to the next one."""
LET_IN_AT_ONCE = 1000
NO_KEY = (None, None)

_KEEP = """
insert into fairlane_job_key
  (seq, tenant, key, ordinal, state, queue, band, rank, due_at, attempt, attempts, crashes, suspect, put_off)
select seq, tenant, key, iif(key_terms ->> 'ordered', coalesce(key_order, seq), null), iif(?, 'held', 'away'),
  queue, band, rank, due_at, 0, 0, 0, 0, 0
from fairlane_job where seq = ? and key is not null
"""
AT_KEY = "fairlane_job_key where key = {key} and tenant = {tenant}"
_ORDERED = f"select seq from {AT_KEY} and state = 'held' and ordinal is not null order by ordinal, seq"  # noqa: S608
_OTHERS = f"""
select seq from {AT_KEY} and state = 'held' and ordinal is null order by band, rank, due_at, seq
"""  # noqa: S608
FIRST = f"coalesce(({_ORDERED} limit 1), ({_OTHERS} limit 1))"
_WITH_PLACE = f"select 1 from {AT_KEY} and state in ('let_in', 'dead')"  # noqa: S608
HERE = {"key": "?1", "tenant": "?2"}
_KNOCKED = {"key": "n.key", "tenant": "n.tenant"}
_STATE = """
select (select min(at) from fairlane_knock),
  exists (select 1 from fairlane_job_key where rated is not null limit 1)
"""
_LOOK = """
select k.id, k.tenant, k.key, k.places, k.first, j.key_terms from (
  select n.id, n.tenant, n.key, (select count(*) from ({with_place} limit 2)) as places, {first} as first
  from fairlane_knock n {where}) k
left join fairlane_job j on j.seq = k.first
"""
_KNOCKS = {"with_place": _WITH_PLACE.format_map(_KNOCKED), "first": FIRST.format_map(_KNOCKED)}
_DUE = _LOOK.format(**_KNOCKS, where="where n.at <= ? order by n.at, n.id limit ?")
_THESE = _LOOK.format(**_KNOCKS, where="where n.id in (select value from json_each(?))")
_PLACES = f"select count(*) from ({_WITH_PLACE.format_map(HERE)} limit ?3)"  # noqa: S608
_READY_HERE = """
select count(*), count(*) - count(k.rated) from fairlane_job_key k cross join fairlane_ready r on r.seq = k.seq
where k.key = ? and k.tenant = ? and k.state = 'let_in'
"""
_WATCH = """
update fairlane_job_key set rated = 0 where key = ? and tenant = ? and state = 'let_in' and rated is null
  and seq in (select seq from fairlane_ready where fairlane_ready.seq = fairlane_job_key.seq)
"""
# Seq, and the period of the rate it is let in under.
_LET_IN = "update fairlane_job_key set state = 'let_in', rated = ? where seq = ?"
_READY = """
insert into fairlane_ready
  (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, put_off)
select k.seq, k.queue, k.band, k.tenant, k.rank, k.due_at, j.type, k.attempt, k.attempts, k.crashes, k.suspect,
  k.put_off
from json_each(?) c cross join fairlane_job_key k on k.seq = c.value cross join fairlane_job j on j.seq = k.seq
"""
_LEFT_BEHIND = """
delete from fairlane_job_key where key = ? and tenant = ? and state = 'let_in' and exists (
  select 1 from fairlane_done d
  where d.seq = fairlane_job_key.seq and (d.status <> 'dead' or fairlane_job_key.ordinal is null)) returning 1
"""
_SOME = """
select seq, tenant, key, state from fairlane_job_key
where seq > (select coalesce(max(value), 0) from fairlane_meta where name = 'keys_examined_to') order by seq limit ?
"""
_LATER = "update fairlane_knock set at = ? where id = ?"
_ANSWERED = "delete from fairlane_knock where id in (select value from json_each(?))"
_FORGET_USES = """
delete from fairlane_rate_use where (kind, name, queue, at) in (
  select kind, name, queue, at from fairlane_rate_use where kind = 'key' and at < ? limit ?)
"""
_WATCHED = """
select k.seq, k.tenant, k.key, k.rated from json_each(?) c cross join fairlane_job_key k on k.seq = c.value
where k.rated is not null
"""
_UNWATCH = "update fairlane_job_key set rated = null where seq = ?"
_RATE_LEASE = "update fairlane_lease set rated = json_insert(coalesce(rated, '[]'), '$[#]', json(?)) where seq = ?"
# `customer` itself, or `customer:` and whatever follows: the semicolon comes behind the colon. No name has a colon.
OF_NAME = "(key = ?1 or (key >= ?1 || ':' and key < ?1 || ';')) and instr(?1, ':') = 0"
_READYOF_NAME = f"""
select k.seq from fairlane_job_key k cross join fairlane_ready r on r.seq = k.seq where {OF_NAME}
"""  # noqa: S608
_KEYSOF_NAME = f"select distinct tenant, key from fairlane_job_key where state = 'held' and {OF_NAME}"  # noqa: S608
# Held for room, or behind a gate, they do not stand in the way yet.
_UNFINISHED = """
select k.seq, j.id from fairlane_job_key k cross join fairlane_job j on j.seq = k.seq
where k.key = ? and k.tenant = ? and k.state <> 'dead'
  and not (k.state = 'away' and exists (select 1 from fairlane_held h where h.seq = k.seq))
order by k.seq
"""
_decode = msgspec.json.Decoder(JobKey).decode


class KeyTerms(NamedTuple):
    """What is in force at a key, by the job that it goes by."""

    running: int | None
    """None: no limit."""
    rate: Rate | None
    paused_until: int
    ordered: bool


def columns_of(key: JobKey) -> tuple[str, str | None]:
    """Of the job's row: its key, and what its code says of that, if anything."""
    return key.value, None if key == JobKey(value=key.value) else msgspec.json.encode(key).decode()


def keep_key(tx: Transaction, seq: int, *, is_due: bool) -> None:
    """Write down that a new job has a key; one that is due is held there."""
    if not are_keys_used(tx):
        tx.db.execute("insert or replace into fairlane_meta values ('limits_keys_used', 1)")
        tx.keys_used = True
    tx.db.execute(_KEEP, (is_due, seq))


def keep_copied_key(tx: Transaction, seq: int) -> None:
    """The same of a job that was made from another one, if that has a key; before it is written where it waits."""
    if are_keys_used(tx):
        tx.db.execute(_KEEP, (False, seq))


def own_key(key: str, terms: str | None) -> JobKey:
    return JobKey(value=key) if terms is None else _decode(terms)


def terms_of(own: JobKey, kept: StoredLimit | None) -> KeyTerms:
    """Field by field what people have set, before what the job brings along."""
    running, rate, paused_until = own.running, own.rate, None
    if kept is not None:
        running = running if kept.limit.running is None else kept.limit.running
        rate = rate if kept.limit.rate is None else kept.limit.rate
        paused_until = kept.paused_until
    most = None if running == NO_LIMIT else running
    if own.ordered:
        most = 1 if most is None else min(most, 1)
    rate = None if rate is not None and rate.count == NO_LIMIT else rate
    return KeyTerms(most, rate, 0 if paused_until is None else to_us(paused_until), own.ordered)


def kept_for(tx: Transaction, key: str) -> StoredLimit | None:
    return next(iter(read_kept(tx, "kind = 'key' and name = ?", (key_name(key),))), None)


# Letting in.


class LetIn(NamedTuple):
    seqs: frozenset[int] = frozenset()
    until: int | None = None
    """When somebody else may be let in, if nothing moves before."""


NOBODY = LetIn()


def let_in(tx: Transaction) -> LetIn:
    """Make held jobs ready at the keys where something has moved, as many as there are places."""
    [(earliest, watches)] = tx.db.execute(_STATE)
    tx.watches_claims = watches == 1
    if earliest is None or earliest > tx.now:
        return LetIn(until=earliest)
    entry = _Entry(tx)
    for row in tx.db.execute(_DUE, (tx.now, KEYS_AT_ONCE)):
        entry.look_at(_Knock._make(row))
        if len(entry.seqs) >= LET_IN_AT_ONCE:
            break
    entry.write()
    [(earliest, _)] = tx.db.execute(_STATE)
    return LetIn(frozenset(entry.seqs), earliest if earliest is None else max(earliest, tx.now))


def look_again(tx: Transaction) -> None:
    """Knock at some keys with held jobs, others each time: older code ends jobs and does not knock."""
    if are_keys_used(tx):
        rows = tx.db.execute(_SOME, (KEYS_AT_ONCE,))
        rates.knock(tx, sorted({(tenant, key) for _, tenant, key, state in rows if state == "held"}))
        last = rows[-1][0] if len(rows) == KEYS_AT_ONCE else 0
        tx.db.execute("insert or replace into fairlane_meta values ('keys_examined_to', ?)", (last,))


class _Knock(NamedTuple):
    id: int
    tenant: str
    key: str
    places: int
    """In use, up to two: more are counted only where there are more."""
    first: int | None
    """The next one to be let in."""
    terms: str | None
    """What it says of its key."""


class _Entry:
    """Who is let in by one Turn, gathered so that each table is written once."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._kept = {record.limit.name: record for record in read_kept(tx, "kind = 'key'")}
        self.seqs: list[int] = []
        self._periods: list[float | None] = []
        self._answered: list[int] = []
        self._later: dict[int, int] = {}
        self._entered: dict[int, str | None] = {}

    def look_at(self, knock: _Knock) -> None:
        if knock.first is None:
            self._answered.append(knock.id)
            return
        terms = terms_of(own_key(knock.key, knock.terms), self._kept.get(key_name(knock.key)))
        if terms.paused_until > self._tx.now:
            self._later[knock.id] = terms.paused_until
            return
        left = LET_IN_AT_ONCE - len(self.seqs)
        room = left if terms.running is None else min(left, self._free_places(knock, terms.running))
        if room <= 0 and self._tx.db.execute(_LEFT_BEHIND, (knock.key, knock.tenant)):
            return  # that knocked once more
        if terms.rate is None:
            count, again_at = self._let_in(knock, room, None), None
        else:
            count, again_at = self._let_in_at(knock, terms.rate, room)
        if again_at is not None:
            self._later[knock.id] = again_at
        elif count < left:
            self._answered.append(knock.id)

    def _free_places(self, knock: _Knock, running: int) -> int:
        places = knock.places
        if running > 1:
            [(places,)] = self._tx.db.execute(_PLACES, (knock.key, knock.tenant, running))
        return running - places

    def _let_in_at(self, knock: _Knock, rate: Rate, room: int) -> tuple[int, int | None]:
        """How many are let in at this rate, and when it lets the next one in."""
        tx, key = self._tx, ("key", knock.tenant, knock.key)
        [(ready, unwatched)] = tx.db.execute(_READY_HERE, (knock.key, knock.tenant))
        if unwatched:
            tx.db.execute(_WATCH, (knock.key, knock.tenant))
        room = min(room, rate.count - rates.used(tx, key, rate, rate.count) - ready)
        count = self._let_in(knock, room, rate.period_s)
        ready += count
        tx.watches_claims = tx.watches_claims or ready > 0
        return count, rates.free_at(tx, key, rate, ready + 1)

    def _let_in(self, knock: _Knock, room: int, period_s: float | None) -> int:
        if room <= 0 or knock.first is None:
            return 0
        seqs = [knock.first] if room == 1 else _line(self._tx, knock.tenant, knock.key, room)
        self.seqs += seqs
        self._periods += [period_s] * len(seqs)
        self._entered[knock.id] = knock.terms
        return len(seqs)

    def write(self) -> None:
        db = self._tx.db
        if self.seqs:
            db.executemany(_LET_IN, list(zip(self._periods, self.seqs, strict=True)))
            db.execute(_READY, (as_list(self.seqs),))
            again = set(self._with_other_terms())
            self._answered = [knock for knock in self._answered if knock not in again]
            self._later = {knock: at for knock, at in self._later.items() if knock not in again}
        db.execute(_ANSWERED, (as_list(self._answered),))
        if self._later:
            db.executemany(_LATER, [(at, knock) for knock, at in self._later.items()])
            db.execute(_FORGET_USES, (before(self._tx.now, LONGEST_PERIOD_S), KEYS_AT_ONCE))

    def _with_other_terms(self) -> Iterator[int]:
        """Where somebody was let in, and the next one says something else of the key: it may find a place, too."""
        for row in self._tx.db.execute(_THESE, (as_list(list(self._entered)),)):
            knock = _Knock._make(row)
            if knock.first is not None and knock.terms != self._entered[knock.id]:
                yield knock.id


def _line(tx: Transaction, tenant: str, key: str, limit: int) -> list[int]:
    """The first who are held there."""
    seqs: list[int] = []
    for sql in (_ORDERED, _OTHERS):
        if len(seqs) < limit:
            rows = tx.db.execute(f"{sql.format_map(HERE)} limit ?3", (key, tenant, limit - len(seqs)))
            seqs += [seq for (seq,) in rows]
    return seqs


_KEPT_FOR = 10
_KEPT_LEAST_S = 60.0


def count_claims(tx: Transaction, seqs: str) -> None:
    """Count jobs that were claimed just now against the rates of their keys.

    Uses are kept for longer than the rate needs that they count against: jobs with other rates may have the same key.
    """
    watched = tx.db.execute(_WATCHED, (seqs,))
    rated = [(seq, ("key", tenant, key), period_s) for seq, tenant, key, period_s in watched if period_s]
    uses = Counter((key, period_s) for _, key, period_s in rated)
    kept = {period_s: Rate(1, max(_KEPT_FOR * period_s, _KEPT_LEAST_S)) for _, period_s in uses}
    rates.use(tx, [(key, kept[period_s], number) for (key, period_s), number in uses.items()])
    tx.db.executemany(_RATE_LEASE, [(as_list(key), seq) for seq, key, _ in rated])
    tx.db.executemany(_UNWATCH, [(seq,) for seq, *_ in watched])
    rates.knock(tx, sorted({(tenant, key) for _, tenant, key, _ in watched}))


def hold_again(tx: Transaction, name: str) -> None:
    """Hold ready jobs again whose keys have this name, and have all those keys looked at: their terms have changed."""
    hold_at_keys(tx, [seq for (seq,) in tx.db.execute(_READYOF_NAME, (name,))])
    rates.knock(tx, [(tenant, key) for tenant, key in tx.db.execute(_KEYSOF_NAME, (name,))])


# Conflicts at an enqueue.


def makes_way(key: JobKey) -> bool:
    """It may cancel others for a new job."""
    return key.on_conflict in ("replace", "cancel_running")


def find_conflict(tx: Transaction, spec: JobSpec) -> tuple[int, bytes] | None:
    """The oldest unfinished job with its key, by its numbers, if they are as many as run at once."""
    found = _conflicting(tx, spec)
    return found[0] if found else None


def make_way(tx: Transaction, spec: JobSpec) -> None:
    """Cancel what waits with the job's key, and ask what runs to cancel if the key says so, if it has no place left."""
    assert spec.key is not None
    for seq, _ in _conflicting(tx, spec):
        job = find_unfinished(tx, seq)
        if job is not None and job.place != "lease":
            cancel_waiting(tx, seq, job)
        elif spec.key.on_conflict == "cancel_running":
            tx.db.execute("update fairlane_lease set cancel_requested = 1 where seq = ?", (seq,))


def _conflicting(tx: Transaction, spec: JobSpec) -> list[tuple[int, bytes]]:
    if spec.key is None:
        return []
    running = terms_of(spec.key, kept_for(tx, spec.key.value)).running
    if running is None:
        return []
    found = [(seq, raw) for seq, raw in tx.db.execute(_UNFINISHED, (spec.key.value, spec.tenant))]
    return found if len(found) >= running else []
