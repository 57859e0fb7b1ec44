-- What stands beside the jobs: those who work, what they say, and what people and schedules have decided.

create table worker (
  id             uuid primary key,
  name           text not null,
  registered_at  timestamptz not null,
  renewed_at     timestamptz not null,
  expires_at     timestamptz not null,
  queues         text[] not null,
  types          text[] not null,
  waiting        boolean not null default false,
  wake_address   text,
  figures        json not null default '{}',
  stats_batch    bigint not null default 0  -- the last batch of figures taken from it
) with (fillfactor = 50);
create index worker_waiting on worker (id) where waiting;

-- The last claims that gave a worker something. A row for each and not one that is updated: under an old snapshot every Turn would walk over all its
-- versions (8.5 ms at 100,000). Nothing refers to the worker, which would have to be looked up each time: forget_worker removes them.
create table claim_made (
  worker    uuid not null,
  claim_no  bigint not null,
  primary key (worker, claim_no)
);

-- What running attempts say: how far they are, and the newest lines of their log, numbered for each job.
create table note (
  seq       bigint primary key,
  progress  double precision,
  lines     bigint not null default 0  -- ever written; the newest are in log_line
);

create table log_line (
  seq      bigint not null,
  n        bigint not null,
  at       timestamptz not null,
  attempt  integer not null,
  message  text not null,
  primary key (seq, n)
);

-- Sums of one minute: adding a row to another gives the sums of both.
create table stat_minute (
  minute        timestamptz not null,
  type          text collate "C" not null,
  queue         text collate "C" not null,
  tenant        text collate "C" not null,
  enqueued      bigint not null,
  completed     bigint not null,
  failed        bigint not null,
  dead          bigint not null,
  cancelled     bigint not null,
  wait_us       bigint not null,
  run_us        bigint not null,
  wait_buckets  jsonb not null,
  run_buckets   jsonb not null,
  primary key (minute, type, queue, tenant)
);

create table breaker (
  name             text collate "C" primary key,
  state            text collate "C" not null default 'closed',
  failures         integer not null default 0,
  successes        integer not null default 0,
  probing          integer not null default 0,
  opened_at        timestamptz,
  half_opened_at   timestamptz,
  retry_at         timestamptz,  -- null while open: not before somebody resets it
  last_failure_at  timestamptz,
  updated_at       timestamptz not null,
  constraint breaker_state_check check (state in ('closed', 'open', 'half_open'))
) with (fillfactor = 50);

create table schedule (
  name         text collate "C" primary key,
  spec         json not null,
  source       text collate "C" not null,
  next_at      timestamptz,  -- null: it never fires again
  last_at      timestamptz,
  last_job_id  uuid,
  paused_at    timestamptz,
  declared_at  timestamptz not null,
  constraint schedule_source_check check (source in ('code', 'person')),
  constraint schedule_next_at_check check (next_at between '0002-01-01 00:00+00' and '9998-12-31 00:00+00')
);
create index schedule_due on schedule (next_at, name) where paused_at is null;

-- What nobody may claim now. Nearly always empty: a Turn asks once whether it is.
create table pause (
  kind   text collate "C" not null,
  name   text collate "C" not null,
  by     text not null,
  at     timestamptz not null,
  notes  text,
  primary key (kind, name),
  constraint pause_kind_check check (kind in ('queue', 'type', 'tenant'))
);

create table audit (
  id      bigint generated always as identity primary key,
  at      timestamptz not null,
  by      text not null,
  action  text collate "C" not null,
  tenant  text collate "C",
  target  text collate "C" not null,
  notes   text,
  before  json,
  after   json
);
create index audit_target on audit (target, id);
