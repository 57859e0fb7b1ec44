-- Files: an object in storage is deleted before its row is marked.
create schema if not exists accounts;
create schema if not exists files;

create table accounts.account (
  account_id bigserial primary key,
  email text,
  name text
);

create table files.file (
  file_id bigserial primary key,
  account_id bigint not null references accounts.account,
  bucket text not null,
  object_key text not null
);
create table files.file_metadata (
  file_id bigint primary key references files.file,
  metadata jsonb not null default '{}'
);

create function files.mark_file_deleted(_file_id bigint) returns void
language sql security definer set search_path = files, pg_temp
as $$
  insert into file_metadata (file_id, metadata) values (_file_id, '{"deleted": true}')
  on conflict (file_id) do update set metadata = file_metadata.metadata || excluded.metadata
$$;
revoke all on function files.mark_file_deleted from public;

select queues.create_process(
  'files.file_deletion', 'files.file.file_id', _channel => 'file_delete', _noun => 'file_delete', _max_attempts => 3,
  _base_s => 1);

create or replace function files.build_file_delete_payload(_file_deletion_task_id bigint) returns jsonb
language sql stable security definer set search_path = files, pg_temp
as $$
  select jsonb_build_object('bucket', f.bucket, 'object_key', f.object_key)
  from file_deletion_task t join file f using (file_id) where t.file_deletion_task_id = _file_deletion_task_id
$$;

-- Called once when the process is over.
create or replace function files.after_file_deletion(_file_deletion_task_id bigint, _error_message text) returns void
language sql security definer set search_path = files, pg_temp
as $$
  select mark_file_deleted(t.file_id) from file_deletion_task t
  where t.file_deletion_task_id = _file_deletion_task_id and _error_message is null
$$;
