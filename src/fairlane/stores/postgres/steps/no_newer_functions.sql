-- no_newer_functions: stops a script of this release where a newer one has applied its functions already.
do $newer$ begin
if exists (select from {table} where phase = 'functions' and version > {release}) then
  raise exception 'the functions of this schema are of a newer release than {release}'
    using errcode = 'object_not_in_prerequisite_state',
          hint = 'Run the script of the newest release; this one has nothing to add.';
end if;
end $newer$;
