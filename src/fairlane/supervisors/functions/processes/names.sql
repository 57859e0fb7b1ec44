-- process_names: what the words in braces of a process's templates stand for; raises for what is no process.
--
-- `_subject` is schema.table.column: what one process is about, once. Without it the root row has a `subject_id`.
-- `_noun` names the handlers where they are to differ from the process: get_<noun>_payload, record_<noun>_success.
create or replace function process_names(
  _process text, _subject text, _channel text, _noun text, _max_attempts integer, _base_s integer, _cap_s integer
) returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _parts   text[] := string_to_array(_process, '.');
  _names   jsonb;
  _column  record;
begin
  if _process is null or _process !~ '^[a-z][a-z0-9_]{0,39}\.[a-z][a-z0-9_]{0,39}$' then
    raise exception 'process %: expected domain.process, each of up to 40 small letters, digits and _',
      coalesce(quote_literal(_process), 'null') using errcode = 'invalid_parameter_value';
  end if;
  -- The server's schemas and Fairlane's, whatever that of the jobs is called.
  if _parts[1] ~ '^pg_' or _parts[1] in ('information_schema', 'queues', 'internal', 'fairlane')
     or to_regclass(quote_ident(_parts[1]) || '.dead_letter_record') is not null then
    raise exception 'process %: the schema % is reserved; expected one of your own', quote_literal(_process), _parts[1]
      using errcode = 'invalid_parameter_value';
  end if;
  if _channel is null or _channel !~ '^[A-Za-z_][A-Za-z0-9_.-]{0,127}$' then
    raise exception 'channel %: expected a task type such as email, or db_function for work in SQL alone',
      coalesce(quote_literal(_channel), 'null') using errcode = 'invalid_parameter_value';
  end if;
  if coalesce(_noun, 'x') !~ '^[a-z][a-z0-9_]{0,39}$' then
    raise exception 'noun %: expected up to 40 small letters, digits and _', quote_literal(_noun)
      using errcode = 'invalid_parameter_value';
  end if;
  if not coalesce(_max_attempts between 1 and 1000 and _base_s between 1 and _cap_s and _cap_s <= 31536000, false) then
    raise exception 'max_attempts %, base_s %, cap_s %: expected 1 to 1000, and 1 <= base_s <= cap_s <= 31536000',
      _max_attempts, _base_s, _cap_s using errcode = 'invalid_parameter_value';
  end if;
  _names := jsonb_build_object(
    'domain', quote_ident(_parts[1]), 'foo', _parts[2], 'noun', coalesce(_noun, _parts[2]), 'channel', _channel,
    'max_attempts', _max_attempts, 'base_s', _base_s, 'cap_s', _cap_s,
    'subject', 'subject_id', 'name', 'subject_id', 'argument', '_subject_id', 'type', 'bigint', 'references', '',
    'table', '');
  if _subject is null then
    return _names;
  end if;
  select n.nspname, c.relname, a.attname, format_type(a.atttypid, a.atttypmod) as type into _column
  from pg_namespace n join pg_class c on c.relnamespace = n.oid join pg_attribute a on a.attrelid = c.oid
  where array[n.nspname, c.relname, a.attname]::text[] = string_to_array(_subject, '.') and a.attnum > 0;
  if not found then
    raise exception 'subject %: there is no such schema.table.column', quote_literal(_subject)
      using errcode = 'undefined_column', hint = 'Names are given as they are, without quotes.';
  end if;
  if _subject ~ '[''"$%{}\\]' then  -- the templates have them in literals and bodies
    raise exception 'subject %: expected names without quotes, $, %%, \, { and }', quote_literal(_subject)
      using errcode = 'invalid_parameter_value';
  end if;
  if _column.attname in ('created_at', 'scheduled_at', 'validation_failure_message', 'task_type', 'before_handler',
                         'success_handler', 'error_handler', 'restarts', 'notes', 'by', _parts[2] || '_task_id',
                         _parts[2] || '_attempt_id') then
    raise exception 'subject %: a process has a % of its own; expected a column of another name',
      quote_literal(_subject), _column.attname using errcode = 'invalid_parameter_value';
  end if;
  return _names || jsonb_build_object(
    'subject', quote_ident(_column.attname), 'name', _column.attname,
    'argument', quote_ident('_' || _column.attname), 'type', _column.type,
    'references', format(' references %I.%I (%I)', _column.nspname, _column.relname, _column.attname),
    'table', format('%I.%I', _column.nspname, _column.relname));
end
$$;

-- fill: a template with the words in braces replaced.
create or replace function fill(_template text, _names jsonb) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  _name  record;
begin
  for _name in select * from jsonb_each_text(_names) loop
    _template := replace(_template, '{' || _name.key || '}', _name.value);
  end loop;
  return _template;
end
$$;

-- process_sql: the SQL that makes a supervisor-driven process: tables, facts, kickoff, supervisor, handlers, grants.
--
-- It may be run again, also with other figures: tables stay, and so do the functions that are yours to write.
--
-- select queues.process_sql('comms.send_email', 'comms.email_message.email_message_id', 'email', 'email');
create or replace function process_sql(
  _process text, _subject text default null, _channel text default 'db_function', _noun text default null,
  _max_attempts integer default 5, _base_s integer default 10, _cap_s integer default 3600
) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _names  jsonb := queues.process_names(_process, _subject, _channel, _noun, _max_attempts, _base_s, _cap_s);
begin
  return queues.process_tables(_names) || queues.process_facts(_names) || queues.process_kickoff(_names) || case
    when _channel = 'db_function' then queues.process_of_sql(_names) else queues.process_of_channel(_names) end
    || queues.process_grants(_names);
end
$$;

-- create_process: runs what process_sql makes, as the caller.
create or replace function create_process(
  _process text, _subject text default null, _channel text default 'db_function', _noun text default null,
  _max_attempts integer default 5, _base_s integer default 10, _cap_s integer default 3600
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  execute queues.process_sql(_process, _subject, _channel, _noun, _max_attempts, _base_s, _cap_s);
end
$$;
