-- books: makes the table of what was applied.
create table if not exists schema_version (
  version     integer not null,
  phase       text not null default 'expand',
  name        text not null,
  applied_at  timestamptz not null default now(),
  checksum    text,  -- of functions
  members     text[] not null default '{}',  -- the functions, views and types of a release, as DROP names them
  obsolete    text[] not null default '{}',  -- those of earlier releases that it has no more
  primary key (version, phase)
);
-- Written before functions were recorded apart from tables.
do $books$ begin
if not exists (select from pg_attribute where attrelid = 'schema_version'::regclass and attname = 'phase') then
  alter table schema_version
    add phase text not null default 'expand', add checksum text, add members text[] not null default '{}',
    add obsolete text[] not null default '{}', drop constraint schema_version_pkey, add primary key (version, phase);
end if;
end $books$;
