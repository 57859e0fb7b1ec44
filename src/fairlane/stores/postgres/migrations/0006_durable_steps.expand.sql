-- Durable steps of jobs, and the signals they wait for. A plain job has a row in none of these.

create table step (
  seq      bigint not null,
  n        integer not null,
  kind     text collate "C" not null,
  name     text collate "C" not null,
  key      text collate "C" not null default '',
  attempt  integer not null,
  at       timestamptz not null,
  ran_s    double precision,
  result   text,
  until    timestamptz,  -- when a sleep ends
  signal   uuid,         -- the one that ended a wait
  primary key (seq, n),
  constraint step_kind_check check (kind in ('call', 'sleep', 'wait'))
);

-- The step in which a job waits for a signal. It waits as long as it is in `scheduled` with this attempt.
create table wait (
  seq      bigint primary key,
  attempt  integer not null,
  n        integer not null,
  tenant   text collate "C" not null,
  name     text collate "C" not null,
  key      text collate "C" not null,
  until    timestamptz not null
);
create index wait_signal on wait (tenant, name, key, seq);

create table signal (
  id           uuid primary key,
  tenant       tenant_name not null,
  name         text collate "C" not null,
  key          text collate "C" not null,
  at           timestamptz not null,
  undelivered  boolean not null,  -- jobs may wait for it that it has not reached
  data         text not null
);
create index signal_name on signal (tenant, name, key, at, id);
create index signal_at on signal (at, id);
create index signal_undelivered on signal (at, id) where undelivered;
