-- process_counts: how many processes of each kind are open, succeeded and stopped, and what they failed with last.
--
-- A kind of process is known by its tables: foo_task, foo_attempt, foo_attempt_succeeded, foo_attempt_failed, whoever
-- made them. Which ones stopped is known where there is foo_stopped: without it `stopped` is null, and they count as
-- open. One that was started again is open. Counted with the rights of the caller.
create or replace function process_counts() returns table (
  process text, open bigint, succeeded bigint, stopped bigint, failed_attempts bigint, last_error text,
  last_failed_at timestamptz, last_stopped_at timestamptz
)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _found    record;
  _table    regclass;
  _stopped  text;
begin
  for _found in
    select n.nspname as domain, left(c.relname, -length('_task')) as foo
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind = 'r' and c.relname ~ '._task$' and not exists (
      select from unnest(array['attempt', 'attempt_succeeded', 'attempt_failed']) part
      where to_regclass(format('%I.%I', n.nspname, left(c.relname, -length('task')) || part)) is null)
      -- A view of such a name runs functions of whoever made it as the caller, who may be a superuser.
      and not exists (
        select from unnest(array['attempt', 'attempt_succeeded', 'attempt_failed', 'stopped', 'restarted']) part
        join pg_class v on v.relname = left(c.relname, -length('task')) || part
        where v.relnamespace = c.relnamespace and v.relkind not in ('r', 'p'))
    order by 1, 2
  loop
    process := _found.domain || '.' || _found.foo;
    _table := to_regclass(format('%I.%I', _found.domain, _found.foo || '_stopped'));
    _stopped := case
      when _table is null then 'select null::bigint as %I, null::timestamptz as created_at where false'
      when not exists (select from pg_attribute where attrelid = _table and attname = 'restarts')
        then 'select * from %2$I.%3$I'
      else 'select * from %2$I.%3$I s where restarts = (select count(*) from %2$I.%4$I r where r.%1$I = s.%1$I)' end;
    execute format($sql$
      with stop as (%5$s), success as (
        select distinct a.%1$I as id from %2$I.%4$I s join %2$I.%6$I a using (%7$I)
      )
      select (select count(*) from %2$I.%8$I t where not exists (select from success s where s.id = t.%1$I)
                and not exists (select from stop s where s.%1$I = t.%1$I)),
             (select count(*) from success), case when %10$L then (select count(*) from stop) end,
             f.n, f.error_message, f.created_at, (select max(created_at) from stop)
      from (select count(*) as n, max(created_at) as created_at,
              (select error_message from %2$I.%9$I order by created_at desc limit 1) from %2$I.%9$I) f$sql$,
      _found.foo || '_task_id', _found.domain, _found.foo || '_stopped', _found.foo || '_attempt_succeeded',
      format(_stopped, _found.foo || '_task_id', _found.domain, _found.foo || '_stopped', _found.foo || '_restarted'),
      _found.foo || '_attempt', _found.foo || '_attempt_id', _found.foo || '_task', _found.foo || '_attempt_failed',
      _table is not null)
    into open, succeeded, stopped, failed_attempts, last_error, last_failed_at, last_stopped_at;
    return next;
  end loop;
end
$$;
