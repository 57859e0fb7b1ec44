-- Keys of jobs: who waits at one, and who has a place there.

-- key_terms: what its code says of the key, as JSON; null: one place, and nothing else. key_order: the seq that stands
-- for it in an ordered line; null: its own.
alter table fairlane_job add column key text;
alter table fairlane_job add column key_terms text;
alter table fairlane_job add column key_order integer;

-- Each unfinished job with a key, and each dead letter that keeps its place. Not rows and columns of fairlane_held:
-- older code inserts there by position, and releases what it finds there. Jobs that older code has
-- ended leave their rows behind: whoever is not let in for them removes them.
-- state: held     it waits at its key; queue to put_off are as they would be in fairlane_ready
--        let_in   it has a place: ready, leased, or scheduled if it is ordered
--        dead     it is dead, and has a place
--        away     none of these: scheduled, held for room, behind a gate, or its place was freed
-- ordinal: the seq that stands for it in the line of ordered jobs; null: it is not ordered.
-- rated: ready, and let in under a rate over this many seconds; 0: under none, and the rate of the next one counts it.
create table fairlane_job_key (
  seq       integer primary key,
  tenant    text not null,
  key       text not null,
  state     text not null default 'away',
  ordinal   integer,
  rated     real,
  queue     text,
  band      integer,
  rank      integer,
  due_at    integer,
  attempt   integer,
  attempts  integer,
  crashes   integer,
  suspect   integer,
  put_off   integer
);
create index fairlane_job_key_line on fairlane_job_key (key, tenant, state, ordinal, band, rank, due_at);
create index fairlane_job_key_held on fairlane_job_key (queue, tenant) where state = 'held';
create index fairlane_job_key_rated on fairlane_job_key (seq) where rated is not null;

-- Keys that a Turn is to look at, not before `at`; 0: the next one. By id: each comes to its turn.
create table fairlane_knock (
  id      integer primary key,
  tenant  text not null,
  key     text not null,
  at      integer not null
);
create unique index fairlane_knock_key on fairlane_knock (key, tenant);
create index fairlane_knock_at on fairlane_knock (at);
create index fairlane_rate_use_of_key on fairlane_rate_use (at) where kind = 'key';

-- Whatever moves at a key where jobs are held may let one in. These cost jobs with keys alone: a trigger on what every
-- job passes through, fairlane_ready or fairlane_done, cost each of them 0.7 of 10 microseconds.
create trigger fairlane_job_key_came after insert on fairlane_job_key when new.state = 'held' begin
  insert into fairlane_knock (tenant, key, at) values (new.tenant, new.key, 0)
  on conflict (key, tenant) do update set at = 0;
end;
create trigger fairlane_job_key_moved after update of state on fairlane_job_key
when (new.state <> 'let_in' or old.state = 'let_in')
  and exists (select 1 from fairlane_job_key where key = new.key and tenant = new.tenant and state = 'held') begin
  insert into fairlane_knock (tenant, key, at) values (new.tenant, new.key, 0)
  on conflict (key, tenant) do update set at = 0;
end;
create trigger fairlane_job_key_left after delete on fairlane_job_key
when exists (select 1 from fairlane_job_key where key = old.key and tenant = old.tenant and state = 'held') begin
  insert into fairlane_knock (tenant, key, at) values (old.tenant, old.key, 0)
  on conflict (key, tenant) do update set at = 0;
end;
-- Whoever closes a dead letter, older code too, lets its line go on.
create trigger fairlane_job_key_closed after update of status on fairlane_dead_letter
when new.status <> 'pending_review' and exists (select 1 from fairlane_job_key where seq = new.seq) begin
  delete from fairlane_job_key where seq = new.seq;
end;
