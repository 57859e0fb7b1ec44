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
