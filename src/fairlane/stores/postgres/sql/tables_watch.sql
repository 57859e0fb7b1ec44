-- What watches over the rest: credentials, events, duties, alerts, and the chain that seals the audit.

create table credential (
  id            uuid primary key,
  kind          text collate "C" not null,
  name          text collate "C" not null,
  prefix        text not null,
  hash          text collate "C" not null,
  roles         text[] not null,
  tenant        text collate "C",
  created_by    text not null,
  created_at    timestamptz not null,
  expires_at    timestamptz,
  revoked_at    timestamptz,
  last_used_at  timestamptz,
  constraint credential_kind_check check (kind in ('token', 'link', 'session')),
  constraint credential_expires_at_check check (expires_at between '0002-01-01 00:00+00' and '9998-12-31 00:00+00')
);
create unique index credential_hash on credential (hash);
create index credential_newest on credential (kind, created_at, id);
create index credential_ended on credential (least(expires_at, revoked_at), id) where expires_at is not null or revoked_at is not null;

create table event (
  id      bigint generated always as identity primary key,
  at      timestamptz not null,
  kind    text collate "C" not null,
  tenant  text collate "C",
  data    json not null
);
create index event_at on event (at, id);
create index event_tenant on event (tenant, id) where tenant is not null;

-- One row: the highest id among the events that were forgotten, and until when somebody watches.
create table told (
  only_one       boolean primary key default true check (only_one),
  forgotten      bigint not null default 0,
  watched_until  timestamptz
) with (fillfactor = 50);
insert into told default values;

create table duty (
  name      text collate "C" primary key,
  taken_at  timestamptz not null
) with (fillfactor = 50);

create table alert (
  rule         text collate "C" not null,
  about        text collate "C" not null,
  state        text collate "C" not null,
  since        timestamptz not null,
  fired_at     timestamptz,
  resolved_at  timestamptz,
  told_at      timestamptz,
  value        double precision not null,
  severity     text not null,
  version      bigint not null,
  primary key (rule, about),
  constraint alert_state_check check (state in ('pending', 'firing', 'resolved')),
  constraint alert_value_check check (value > '-infinity' and value < 'infinity')
);

create table silence (
  rule   text collate "C" primary key,
  until  timestamptz not null,
  by     text not null,
  notes  text,
  constraint silence_until_check check (until between '0002-01-01 00:00+00' and '9998-12-31 00:00+00')
);

-- One row: the last job counted as enqueued.
create table rolled_up (
  only_one  boolean primary key default true check (only_one),
  seq       bigint not null default 0
) with (fillfactor = 50);
insert into rolled_up default values;

create index dead_letter_fingerprint on dead_letter (fingerprint, seq);

create table audit_seal (
  n         bigint primary key,
  audit_id  bigint not null,
  hash      text collate "C" not null
);
create unique index audit_seal_record on audit_seal (audit_id);

-- Records without a link yet. Looked for among all the sealed ones, each would cost more than the one before.
create table audit_unsealed (
  id  bigint primary key
);

create function audit_written() returns trigger
language plpgsql
set search_path from current
as $$
begin
  insert into audit_unsealed (id) values (new.id);
  return null;
end
$$;
create trigger audit_written after insert on audit for each row execute function audit_written();

-- append_only: the audit and its seals are written once. A purge marks its own transaction; who switches the triggers off, or copies
-- the mark, is found by verifying the chain. (tests/faults/test_audit_tampering.py)
create function append_only() returns trigger
language plpgsql
set search_path from current
as $$
begin
  if tg_op = 'DELETE' and current_setting('fairlane.purging', true) = tg_table_schema then
    return case when tg_level = 'ROW' then old end;
  end if;
  raise exception 'table %.% is append-only: % is refused', tg_table_schema, tg_table_name, lower(tg_op)
    using errcode = 'restrict_violation', hint = 'Audit records are never changed or removed.';
end
$$;
create trigger append_only before update or delete or truncate on audit for each statement execute function append_only();
create trigger append_only before update or delete or truncate on audit_seal for each statement execute function append_only();

-- leaves_sealed: a record leaves the unsealed by being sealed, in no other way.
create function leaves_sealed() returns trigger
language plpgsql
set search_path from current
as $$
begin
  if exists (select from audit_seal where audit_id = old.id) or current_setting('fairlane.purging', true) = tg_table_schema then
    return old;
  end if;
  raise exception 'audit record % is not sealed yet: it stays in %.%', old.id, tg_table_schema, tg_table_name using errcode = 'restrict_violation';
end
$$;
create trigger leaves_sealed before delete on audit_unsealed for each row execute function leaves_sealed();
create trigger append_only before update or truncate on audit_unsealed for each statement execute function append_only();
