-- Keys of jobs: a job with one waits in `held` until its key has a place for it (docs/decisions/0023).
alter table job add column key text collate "C", add column key_terms json,
  add column key_order bigint;  -- of an ordered key: the number of the job that this one was made from

-- Rows of jobs with a key: `placed` says that it has a place there; `key_nth` is set where the key is ordered.
alter table ready add column key text collate "C", add column key_nth bigint,
  add column placed boolean not null default false, add column rates jsonb;  -- as in `lease`
alter table scheduled add column key text collate "C", add column key_nth bigint,
  add column placed boolean not null default false;
alter table lease add column key text collate "C", add column key_nth bigint,
  add column placed boolean not null default false;
-- A dead letter with a key has kept the place there.
alter table dead_letter add column tenant text collate "C", add column key text collate "C";
-- With a key: at that; without one: for its tenant's room, or a node for its parents.
alter table held add column key text collate "C", add column key_nth bigint,
  add column attempt integer not null default 0, add column attempts integer not null default 0,
  add column crashes smallint not null default 0, add column suspect boolean not null default false,
  add column put_off boolean not null default false;

create index ready_key on ready (tenant, key) where key is not null;
create index scheduled_key on scheduled (tenant, key) where key is not null;
create index lease_key on lease (tenant, key) where key is not null;
create index dead_letter_key on dead_letter (tenant, key) where key is not null;
create index held_room on held (queue, tenant, seq) where key is null;
create index held_key on held (tenant, key, key_nth, band, rank, due_at, seq) where key is not null;

-- Keys that somebody may be let in at, from `at` on. Many may say so at once, and none waits for another: a Turn looks
-- at each such key once and removes what it has read.
create table knock (
  at      timestamptz not null,
  tenant  text collate "C" not null,
  key     text collate "C" not null
);
create index knock_key on knock (at, tenant, key);

alter table limit_rule drop constraint limit_rule_kind_check,
  add constraint limit_rule_kind_check check (kind in ('queue', 'tenant', 'type', 'named', 'key'));

-- hold_at_key: hold a job with a key at it, in place of making it ready: only let_in does that.
create function hold_at_key() returns trigger
language plpgsql
as $$
begin
  insert into held (seq, queue, band, tenant, rank, due_at, type, deduped, timeout_s, key, key_nth, attempt, attempts,
                    crashes, suspect, put_off)
  values (new.seq, new.queue, new.band, new.tenant, new.rank, new.due_at, new.type, new.deduped, new.timeout_s,
          new.key, new.key_nth, new.attempt, new.attempts, new.crashes, new.suspect, new.put_off);
  insert into knock (at, tenant, key)
  select '-infinity', new.tenant, new.key
  where not exists (  -- once for each transaction
    select from knock k where k.at = '-infinity' and k.tenant = new.tenant and k.key = new.key
      and k.xmin = pg_current_xact_id()::xid);
  return null;
end
$$;
create trigger hold_at_key before insert on ready for each row
  when (new.key is not null and not new.placed) execute function hold_at_key();

-- free_place: whatever ends a lease, its place at a key may be that of another who is held there. Later ones knock.
create function free_place() returns trigger
language plpgsql
as $$
begin
  if exists (select from held h where h.tenant = old.tenant and h.key = old.key) then
    perform knock_at(old.tenant, old.key);
  end if;
  return null;
end
$$;
create trigger free_place after delete on lease for each row when (old.placed) execute function free_place();
