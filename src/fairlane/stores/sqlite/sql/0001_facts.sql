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
-- queue, tenant, type: null until a limit that counts leases has been in force (see `counted.py`): nobody pays for what nobody asks.
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
