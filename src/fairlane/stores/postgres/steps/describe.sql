-- describe: writes the state into the comment of the schema.
-- The comment lets a check read the state in the same query that finds the schema missing, with no right on any table.
do $describe$ begin
execute format(
  'comment on schema %I is %L', current_schema(),
  (select format('Fairlane jobs: schema expanded to %s, contracted to %s, functions %s',
                 coalesce(max(version) filter (where phase = 'expand'), 0),
                 coalesce(max(version) filter (where phase = 'contract'), 0),
                 coalesce(max(version) filter (where phase = 'functions'), 0))
   from schema_version));
end $describe$;
