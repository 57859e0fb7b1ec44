-- The queue contract keeps its tasks where Fairlane keeps all jobs: in the queue "supervisors". Only what the core has
-- no place for stands here.
create table error (
  error_id       bigint generated always as identity primary key,
  task_id        bigint not null,
  error_message  text not null,
  created_at     timestamptz not null default clock_timestamp()
);
create index error_task on error (task_id);

-- In the order of the contract, over all tenants; jobs of other queues are in no such index.
create index ready_supervisors on ready (due_at, seq) where queue = 'supervisors';

-- append_only: a row is written once. An error leaves with its task, when retention has removed that.
create function append_only() returns trigger
language plpgsql
set search_path from current
as $$
begin
  if tg_op = 'DELETE' then
    if not exists (select from job where seq = old.task_id) then
      return old;
    end if;
  end if;
  raise exception 'table %.% is append-only: % is refused', tg_table_schema, tg_table_name, lower(tg_op)
    using errcode = 'restrict_violation', hint = 'Errors stay as long as their task does.';
end
$$;
create trigger append_only before update or delete on error for each row execute function append_only();
create trigger no_truncate before truncate on error for each statement execute function append_only();

create schema if not exists internal;
