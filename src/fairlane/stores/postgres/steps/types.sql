-- types: makes the composite types, anew where an earlier `migrate up` gave them other columns.
-- With a type goes what is made of it: functions, which come behind, and other types. A call under way may fail for
-- that, so a type of a release that changes takes another name. (tests/upgrade/test_baseline.py)
do $types$
declare
  _types  constant text[] := array[
{types}
  ];
  _type   text[];
  _old    record;
begin
  foreach _type slice 1 in array _types loop
    select t.oid, t.typrelid, t.typarray into _old
    from pg_type t join pg_namespace n on n.oid = t.typnamespace
    where n.nspname = current_schema() and t.typname = _type[1];
    if _old.oid is null then
      execute format('create type %I as %s', _type[1], _type[2]);
      continue;
    end if;
    execute format('create type type_as_it_is_now as %s', _type[2]);
    if array(select (a.attname, a.atttypid, a.atttypmod, a.attcollation)::text from pg_attribute a
             where a.attrelid = _old.typrelid and not a.attisdropped order by a.attnum)
       = array(select (a.attname, a.atttypid, a.atttypmod, a.attcollation)::text from pg_attribute a
               where a.attrelid = 'type_as_it_is_now'::regclass order by a.attnum) then
      drop type type_as_it_is_now;
      continue;
    end if;
    if exists (select from pg_attribute a join pg_class c on c.oid = a.attrelid
               where a.atttypid in (_old.oid, _old.typarray) and c.relkind <> 'c' and not a.attisdropped) then
      raise exception 'a table has a column of the type %, which is made anew', _type[1]
        using errcode = 'dependent_objects_still_exist', hint = 'Give that column another type first.';
    end if;
    execute format('drop type %I cascade', _type[1]);
    execute format('alter type type_as_it_is_now rename to %I', _type[1]);
  end loop;
end
$types$;
