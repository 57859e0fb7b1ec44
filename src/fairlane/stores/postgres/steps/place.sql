-- place: makes the schema.
do $place$ begin
if not exists (select from pg_namespace where nspname = {schema}) then
  execute format('create schema %I', {schema});
end if;
end $place$;
