-- What limits need: those that people have set, what is counted under them, jobs held back, and tenants.

-- Jobs that nobody may claim before their tenant has room. Held at enqueue, never after: nothing has been counted yet.
create table held (
  seq        bigint primary key,
  queue      text collate "C" not null,
  band       smallint not null,
  tenant     text collate "C" not null,
  rank       smallint not null,
  due_at     timestamptz not null,
  type       text collate "C" not null,
  deduped    boolean not null,
  timeout_s  double precision
);
create unique index held_line on held (queue, tenant, seq);

-- -1 in a number: no limit, said out loud. Null: nothing is said.
create table limit_rule (
  kind           text collate "C" not null,
  name           text collate "C" not null,
  queue          text collate "C" not null default '',
  said           json not null,  -- as it was set
  running        integer,
  rate_count     integer,
  period_s       double precision,
  waiting        integer,
  when_full      text collate "C",
  enqueue_count  integer,
  enqueue_s      double precision,
  payload_bytes  integer,
  types          text[] collate "C",
  by             text not null,
  at             timestamptz not null,
  paused_until   timestamptz,
  primary key (kind, name, queue),
  constraint limit_rule_kind_check check (kind in ('queue', 'tenant', 'type', 'named')),
  constraint limit_rule_when_full_check check (when_full in ('warn', 'reject', 'hold'))
);
create index limit_rule_claims on limit_rule (kind, name, queue)
  where running is not null or rate_count is not null or paused_until is not null;

-- What some limit is or was over, and by what `lease.counted` such leases are marked:
--   3  its queue or type, by a limit on running         1  all of them: limits on what tenants may have waiting (name `waiting`)
--   2  all of them: limits on what tenants may have running (name `running`)
-- A name is added with the rows of all workers locked, and live leases marked: from then on an index finds them all. Nobody else pays for
-- these indexes: one over all leases by tenant cost every claimed job 2.6 us of the server's time, an eighth.
create table counted (
  kind  text collate "C" not null,
  name  text collate "C" not null,
  primary key (kind, name),
  constraint counted_kind_check check (kind in ('queue', 'type', 'tenant'))
);

-- How many claims counted under a rate at an instant; kind `enqueue`: tokens of a tenant.
create table rate_use (
  kind   text collate "C" not null,
  name   text collate "C" not null,
  queue  text collate "C" not null,
  at     timestamptz not null,
  n      integer not null,
  primary key (kind, name, queue, at)
) with (fillfactor = 80);
create index rate_use_at on rate_use using brin (at);

create table tenant (
  name     text collate "C" primary key,
  weight   double precision not null default 1,
  tier     text collate "C",
  seen_at  timestamptz not null
);
create index tenant_weight on tenant (name) where weight <> 1;

-- How many of one tenant's jobs wait or run in one queue is counted at every enqueue under a limit on that.
create index scheduled_tenant on scheduled (tenant, queue, failed);
create index lease_tenant on lease (tenant, queue) where counted > 0;
create index lease_counted on lease (queue, type) where counted = 3;
