-- guard: stops where the schema "queues" is somebody else's, or sits on the jobs of another schema.
do $guard$ begin
if not exists (select from pg_class where relnamespace = current_schema()::regnamespace and relname = 'schema_version')
   and exists (select from pg_class where relnamespace = current_schema()::regnamespace
               union all select from pg_proc where pronamespace = current_schema()::regnamespace) then
  raise exception 'schema "%" exists and holds tables or functions that are not Fairlane''s', current_schema()
    using errcode = 'duplicate_schema',
          hint = 'Of another worker: `fairlane supervisors take-over` takes it over. Else use another database.';
end if;
if exists (select from pg_proc where pronamespace = current_schema()::regnamespace and proname = 'enqueue'
           and not proconfig @> array['search_path=' || current_setting('search_path')]) then
  raise exception 'the supervisors of this database work on another schema than the search path %',
    current_setting('search_path')
    using errcode = 'duplicate_schema',
          hint = 'A database has one schema "queues": migrate with the schema it was installed for.';
end if;
end $guard$;
