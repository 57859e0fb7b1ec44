-- Durable steps of jobs, and the signals they wait for. A plain job has a row in none of these.

-- kind: call, sleep or wait. signal: the one that ended a wait.
create table fairlane_step (
  seq      integer not null,
  n        integer not null,
  kind     text not null,
  name     text not null,
  key      text not null,
  attempt  integer not null,
  at       integer not null,
  ran_s    real,
  result   text,
  until    integer,
  signal   blob,
  primary key (seq, n)
) without rowid;

-- The step in which a job waits for a signal. It waits as long as it is in fairlane_scheduled with this attempt.
create table fairlane_wait (
  seq      integer primary key,
  attempt  integer not null,
  n        integer not null,
  tenant   text not null,
  name     text not null,
  key      text not null,
  until    integer not null
);
create index fairlane_wait_signal on fairlane_wait (tenant, name, key, seq);

-- undelivered: jobs may wait for it that it has not reached.
create table fairlane_signal (
  id           blob primary key,
  tenant       text not null,
  name         text not null,
  key          text not null,
  at           integer not null,
  undelivered  integer not null,
  data         text not null
) without rowid;
create index fairlane_signal_name on fairlane_signal (tenant, name, key, at, id);
create index fairlane_signal_at on fairlane_signal (at, id);
create index fairlane_signal_undelivered on fairlane_signal (at, id) where undelivered;

-- A trigger, because older code removes jobs, too.
create trigger fairlane_step_removed after delete on fairlane_job begin
  delete from fairlane_step where seq = old.seq;
  delete from fairlane_wait where seq = old.seq;
end;
