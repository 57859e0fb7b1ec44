-- The facts of a job's life. `job` is written once and never updated; what happens to it stands beside it, in narrow
-- tables keyed by `seq`. Names carry the prefix fairlane_ because the file may be the application's own: that is what
-- makes an enqueue part of its transaction. Instants are whole microseconds since 1970, UTC.

create table fairlane_meta (
  name   text primary key,
  value  integer not null
) without rowid;

-- autoincrement: a seq is never given twice, also after retention took the newest job.
-- payload stands last, so that a long one costs nothing to statements that do not read it.
create table fairlane_job (
  seq              integer primary key autoincrement,
  id               blob not null,
  type             text not null,
  tenant           text not null,
  queue            text not null,
  band             integer not null,
  rank             integer not null,
  max_attempts     integer not null,
  payload_version  integer not null,
  timeout_s        real,
  enqueued_at      integer not null,
  due_at           integer not null,
  category         text,
  idempotency_key  text,
  dedup_key        text,
  correlation_id   text,
  parent_id        blob,
  created_by       text,
  refs             text,
  headers          text,
  retry            text,
  payload          text not null
);
create unique index fairlane_job_id on fairlane_job (id);
create index fairlane_job_tenant on fairlane_job (tenant);
create index fairlane_job_correlation on fairlane_job (correlation_id) where correlation_id is not null;
create index fairlane_job_parent on fairlane_job (parent_id) where parent_id is not null;

create table fairlane_ready (
  seq       integer primary key,
  queue     text not null,
  band      integer not null,
  tenant    text not null,
  rank      integer not null,
  due_at    integer not null,
  type      text not null,
  attempt   integer not null,
  attempts  integer not null,
  crashes   integer not null,
  suspect   integer not null
);
create index fairlane_ready_line on fairlane_ready (queue, band, tenant, rank, due_at);

-- failed: it waits for its retry. aged: the priority it has reached by waiting; null: its own.
create table fairlane_scheduled (
  seq       integer primary key,
  queue     text not null,
  tenant    text not null,
  failed    integer not null,
  due_at    integer not null,
  attempt   integer not null,
  attempts  integer not null,
  crashes   integer not null,
  suspect   integer not null,
  aged      integer
);
create index fairlane_scheduled_due on fairlane_scheduled (due_at);
create index fairlane_scheduled_queue on fairlane_scheduled (queue, failed, tenant);

-- As many rows as workers hold, so a scan finds a worker's leases, and no claim or settle keeps an index for it.
-- nth: its place in the claim, so that a repeated Turn answers in the same order.
-- queue, tenant, type: null until a limit that counts leases has been in force (see limits/): nobody pays for what
-- nobody asks.
-- rated: the keys whose rate counts this claim, as JSON.
create table fairlane_lease (
  seq               integer primary key,
  worker            blob not null,
  claim_no          integer not null,
  nth               integer not null,
  lane              text not null,
  due_at            integer not null,
  leased_at         integer not null,
  started_at        integer,
  deadline_at       integer not null,
  alone             integer not null default 0,
  cancel_requested  integer not null default 0,
  attempt           integer not null,
  attempts          integer not null,
  crashes           integer not null,
  suspect           integer not null,
  aged              integer,
  queue             text,
  tenant            text,
  type              text,
  rated             text
);
create index fairlane_lease_cancel on fairlane_lease (worker) where cancel_requested;
create index fairlane_lease_queue on fairlane_lease (queue, tenant) where queue is not null;
create index fairlane_lease_tenant on fairlane_lease (tenant) where tenant is not null;
create index fairlane_lease_type on fairlane_lease (type) where type is not null;

-- Attempts after which the job lived on; the one that ended it stands in `done`.
create table fairlane_attempt (
  seq            integer not null,
  attempt        integer not null,
  outcome        text not null,
  worker         blob,
  leased_at      integer not null,
  started_at     integer,
  ended_at       integer not null,
  error_class    text,
  error_type     text,
  error_message  text,
  traceback      text,
  primary key (seq, attempt)
) without rowid;

-- outcome: of the attempt that ended it; null when it ended waiting.
create table fairlane_done (
  seq               integer primary key,
  status            text not null,
  finished_at       integer not null,
  due_at            integer not null,
  attempt           integer not null,
  attempts          integer not null,
  crashes           integer not null,
  outcome           text,
  worker            blob,
  leased_at         integer,
  started_at        integer,
  cancel_requested  integer not null,
  error_class       text,
  error_type        text,
  error_message     text,
  traceback         text,
  result            text
);
create index fairlane_done_finished on fairlane_done (finished_at);
create index fairlane_done_odd on fairlane_done (status) where status <> 'completed';

create table fairlane_dead_letter (
  seq              integer primary key,
  status           text not null default 'pending_review',
  reason           text not null,
  error_class      text not null,
  error_type       text not null,
  fingerprint      text not null,
  died_at          integer not null,
  acknowledged_by  text,
  acknowledged_at  integer,
  closed_by        text,
  closed_at        integer,
  notes            text,
  reprocess_count  integer not null default 0,
  reprocessed_as   blob
);
create index fairlane_dead_letter_status on fairlane_dead_letter (status);
create index fairlane_dead_letter_closed on fairlane_dead_letter (closed_at) where closed_at is not null;

-- Held as long as the job is retained.
create table fairlane_idempotency_key (
  tenant  text not null,
  key     text not null,
  seq     integer not null,
  primary key (tenant, key)
) without rowid;

-- Held while the job is unfinished.
create table fairlane_dedup_key (
  seq     integer primary key,
  tenant  text not null,
  type    text not null,
  key     text not null
);
create unique index fairlane_dedup_key_key on fairlane_dedup_key (tenant, type, key);

create table fairlane_worker (
  id            blob primary key,
  name          text not null,
  queues        text not null,
  types         text not null,
  wake_address  text,
  registered_at integer not null,
  renewed_at    integer not null,
  expires_at    integer not null,
  waiting       integer not null default 0,
  figures       text not null default '{}',
  stats_batch   integer not null default 0
) without rowid;

create table fairlane_audit (
  id      integer primary key autoincrement,
  at      integer not null,
  by      text not null,
  action  text not null,
  tenant  text,
  target  text not null,
  notes   text,
  before  text,
  after   text
);
create index fairlane_audit_target on fairlane_audit (target);

-- Breakers and schedules are read and written whole: one JSON document each, beside what they are found by.
create table fairlane_breaker (
  name     text primary key,
  breaker  text not null
) without rowid;

-- fires_at: the next nominal time of one that may fire; null while it is paused, or for good.
create table fairlane_schedule (
  name      text primary key,
  source    text not null,
  fires_at  integer,
  schedule  text not null
) without rowid;
create index fairlane_schedule_fires on fairlane_schedule (fires_at, name) where fires_at is not null;

create table fairlane_pause (
  kind   text not null,
  name   text not null,
  by     text not null,
  at     integer not null,
  notes  text,
  primary key (kind, name)
) without rowid;

create table fairlane_note (
  seq       integer primary key,
  progress  real,
  log       text not null
);

create table fairlane_stat (
  minute  integer not null,
  type    text not null,
  queue   text not null,
  tenant  text not null,
  figures text not null,
  primary key (minute, type, queue, tenant)
) without rowid;

-- Limits and tenants: what people set, what is counted, and the jobs that are kept back.

-- Jobs kept back until their tenant has room. They have not been tried yet, so they carry nothing.
create table fairlane_held (
  seq     integer primary key,
  queue   text not null,
  tenant  text not null
);
create index fairlane_held_tenant on fairlane_held (queue, tenant);

-- `limits_version` in fairlane_meta grows with every change here: who has read them need not read them again.
create table fairlane_limit (
  kind          text not null,
  name          text not null,
  queue         text not null,
  said          text not null,
  by            text not null,
  at            integer not null,
  paused_until  integer,
  primary key (kind, name, queue)
) without rowid;

-- How many claims were counted against a rate, by the instant of their claim; kind `enqueue`: tokens for enqueueing.
create table fairlane_rate_use (
  kind    text not null,
  name    text not null,
  queue   text not null,
  at      integer not null,
  number  integer not null,
  primary key (kind, name, queue, at)
) without rowid;

create table fairlane_tenant (
  name     text primary key,
  weight   real not null,
  tier     text,
  seen_at  integer not null
) without rowid;
create index fairlane_tenant_tier on fairlane_tenant (tier) where tier is not null;
create index fairlane_tenant_weight on fairlane_tenant (weight) where weight <> 1;

-- What watches over the rest: credentials, events, duties, alerts, and the chain that seals the audit.

create table fairlane_credential (
  id            blob primary key,
  kind          text not null,
  name          text not null,
  prefix        text not null,
  hash          text not null,
  roles         text not null,
  tenant        text,
  created_by    text not null,
  created_at    integer not null,
  expires_at    integer,
  revoked_at    integer,
  last_used_at  integer
) without rowid;
create unique index fairlane_credential_hash on fairlane_credential (hash);
create index fairlane_credential_newest on fairlane_credential (kind, created_at, id);
create index fairlane_credential_ended
  on fairlane_credential (coalesce(min(expires_at, revoked_at), expires_at, revoked_at))
  where expires_at is not null or revoked_at is not null;

-- autoincrement: an id is never given twice, also after the newest was forgotten.
create table fairlane_event (
  id      integer primary key autoincrement,
  at      integer not null,
  kind    text not null,
  tenant  text,
  data    text not null
);
create index fairlane_event_at on fairlane_event (at);
create index fairlane_event_tenant on fairlane_event (tenant) where tenant is not null;

create table fairlane_duty (
  name      text primary key,
  taken_at  integer not null
) without rowid;

create table fairlane_alert (
  rule         text not null,
  about        text not null,
  state        text not null,
  since        integer not null,
  fired_at     integer,
  resolved_at  integer,
  told_at      integer,
  value        real not null,
  severity     text not null,
  version      integer not null,
  primary key (rule, about)
) without rowid;

create table fairlane_silence (
  rule   text primary key,
  until  integer not null,
  by     text not null,
  notes  text
) without rowid;

create table fairlane_audit_seal (
  n         integer primary key,
  audit_id  integer not null unique,
  hash      text not null
);

-- Records without a link yet. Looked for among all the sealed ones, each would cost more than the one before.
create table fairlane_audit_unsealed (
  id  integer primary key
);
create trigger fairlane_audit_written after insert on fairlane_audit begin
  insert into fairlane_audit_unsealed values (new.id);
end;
create trigger fairlane_audit_sealed after insert on fairlane_audit_seal begin
  delete from fairlane_audit_unsealed where id = new.audit_id;
end;

-- The audit and its seals are written once. `purging` stands in fairlane_meta only within the transaction of a Purge.
-- Known ids are refused too, because `insert or replace` removes the old row without asking any trigger; -1 stands for
-- an id not given yet. Who drops these triggers is found by verifying the chain. (tests/faults/test_audit_tampering.py)
create trigger fairlane_audit_keeps_known before insert on fairlane_audit
when new.id > 0 and exists (select 1 from fairlane_audit where id = new.id) begin
  select raise(abort, 'fairlane_audit is append-only: its records are never changed');
end;
create trigger fairlane_audit_keeps_changed before update on fairlane_audit begin
  select raise(abort, 'fairlane_audit is append-only: its records are never changed');
end;
create trigger fairlane_audit_keeps_removed before delete on fairlane_audit
when not exists (select 1 from fairlane_meta where name = 'purging') begin
  select raise(abort, 'fairlane_audit is append-only: its records are never removed');
end;
create trigger fairlane_audit_seal_keeps_known before insert on fairlane_audit_seal
when exists (select 1 from fairlane_audit_seal where n = new.n or audit_id = new.audit_id) begin
  select raise(abort, 'fairlane_audit_seal is append-only: its links are never changed');
end;
create trigger fairlane_audit_seal_keeps_changed before update on fairlane_audit_seal begin
  select raise(abort, 'fairlane_audit_seal is append-only: its links are never changed');
end;
create trigger fairlane_audit_seal_keeps_removed before delete on fairlane_audit_seal
when not exists (select 1 from fairlane_meta where name = 'purging') begin
  select raise(abort, 'fairlane_audit_seal is append-only: its links are never removed');
end;
create trigger fairlane_audit_unsealed_keeps_changed before update on fairlane_audit_unsealed begin
  select raise(abort, 'fairlane_audit_unsealed: a record leaves it by being sealed');
end;
create trigger fairlane_audit_unsealed_keeps_removed before delete on fairlane_audit_unsealed
when not exists (select 1 from fairlane_audit_seal where audit_id = old.id)
  and not exists (select 1 from fairlane_meta where name = 'purging') begin
  select raise(abort, 'fairlane_audit_unsealed: a record leaves it by being sealed');
end;
