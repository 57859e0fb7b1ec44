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
create index fairlane_credential_ended on fairlane_credential (coalesce(min(expires_at, revoked_at), expires_at, revoked_at))
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

-- The audit and its seals are written once. `purging` stands in fairlane_meta only within the transaction of a Purge. Known ids are
-- refused too, because `insert or replace` removes the old row without asking any trigger; -1 stands for an id not given yet. Who
-- drops these triggers is found by verifying the chain. (tests/faults/test_audit_tampering.py)
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
