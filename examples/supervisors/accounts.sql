-- Account deletion: every file first, then anonymisation; each is a process of its own. Needs files.sql.
create schema if not exists api;
create schema if not exists learning;

create table accounts.account_flag (
  account_id bigint not null references accounts.account,
  flag text not null,
  created_at timestamptz not null default now(),
  primary key (account_id, flag)
);

-- Where an account's files come from.
create table learning.profile (profile_id bigserial primary key, account_id bigint not null references accounts.account);
create table learning.cue (cue_id bigserial primary key, prompt text not null);
create table files.upload_intent (
  upload_intent_id bigserial primary key,
  account_id bigint not null references accounts.account,
  bucket text not null,
  object_key text not null
);
create table learning.profile_cue_recording (
  profile_id bigint not null references learning.profile,
  cue_id bigint not null references learning.cue,
  file_id bigint not null references files.file,
  primary key (profile_id, cue_id, file_id)
);

-- An upload is complete: its intent becomes a file, and the recording of a cue.
create function learning.complete_recording_upload(_upload_intent_id bigint, _profile_id bigint, _cue_id bigint)
returns bigint
language sql security definer set search_path = learning, files, pg_temp
as $$
  with made as (
    insert into file (account_id, bucket, object_key)
    select account_id, bucket, object_key from upload_intent where upload_intent_id = _upload_intent_id
    returning file_id
  )
  insert into profile_cue_recording (profile_id, cue_id, file_id) select _profile_id, _cue_id, file_id from made
  returning file_id
$$;
revoke all on function learning.complete_recording_upload from public;

-- Anonymisation: SQL alone, so its supervisor does the work.
create function accounts.anonymize_account(_account_id bigint) returns void
language sql security definer set search_path = accounts, pg_temp
as $$ update account set email = null, name = null where account_id = _account_id $$;
revoke all on function accounts.anonymize_account from public;

select queues.create_process(
  'accounts.account_anonymization', 'accounts.account.account_id', _max_attempts => 3, _base_s => 1);

create or replace function accounts.run_account_anonymization(_account_anonymization_task_id bigint) returns jsonb
language plpgsql security definer set search_path = accounts, pg_temp
as $$
declare
  _account_id bigint := (
    select account_id from account_anonymization_task
    where account_anonymization_task_id = _account_anonymization_task_id);
begin
  perform anonymize_account(_account_id);
  insert into account_flag (account_id, flag) values (_account_id, 'anonymized') on conflict do nothing;
  return '{"status": "succeeded"}';
end
$$;

-- The deletion as a whole: it starts the others, and waits for them.
select queues.create_process('accounts.account_deletion', 'accounts.account.account_id', _base_s => 1, _cap_s => 60);

create or replace function accounts.run_account_deletion(_account_deletion_task_id bigint) returns jsonb
language plpgsql security definer set search_path = accounts, files, pg_temp
as $$
declare
  _account_id bigint := (
    select account_id from account_deletion_task where account_deletion_task_id = _account_deletion_task_id);
  _stuck bigint;
begin
  perform kickoff_file_deletion(f.file_id) from file f where f.account_id = _account_id;
  select min(f.file_id) into _stuck from file f where f.account_id = _account_id and is_file_deletion_stuck(f.file_id);
  if _stuck is not null then
    return jsonb_build_object('validation_failure_message', format('file %s could not be deleted', _stuck));
  end if;
  if exists (
    select from file f join file_deletion_task t using (file_id)
    where f.account_id = _account_id and not has_file_deletion_succeeded_attempt(t.file_deletion_task_id)
  ) then
    return '{"status": "waiting"}';
  end if;
  perform kickoff_account_anonymization(_account_id);
  if is_account_anonymization_stuck(_account_id) then
    return '{"validation_failure_message": "the account could not be anonymized"}';
  end if;
  if not exists (
    select from account_anonymization_task t where t.account_id = _account_id
      and has_account_anonymization_succeeded_attempt(t.account_anonymization_task_id)
  ) then
    return '{"status": "waiting"}';
  end if;
  return '{"status": "succeeded"}';
end
$$;

create function api.request_account_deletion(_account_id bigint, out validation_failure_message text)
language plpgsql security definer set search_path = accounts, pg_temp
as $$
begin
  validation_failure_message := kickoff_account_deletion(_account_id);
  if validation_failure_message is null then
    insert into account_flag (account_id, flag) values (_account_id, 'deleted') on conflict do nothing;
  end if;
end
$$;
revoke all on function api.request_account_deletion from public;
