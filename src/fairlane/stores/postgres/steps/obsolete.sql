-- obsolete: drops functions, views and types of earlier releases that this one has no more.
do $obsolete$
declare
  _left     text[] := array(select distinct m from schema_version v, unnest(v.obsolete) m order by m);
  _blocked  text[];
  _member   text;
begin
  loop
    _blocked := '{}';
    foreach _member in array _left loop
      begin
        execute format('drop %s if exists %s', split_part(_member, ' ', 1), substr(_member, strpos(_member, ' ') + 1));
      exception when dependent_objects_still_exist then
        _blocked := _blocked || _member;
      end;
    end loop;
    exit when _blocked = '{}';
    if _blocked = _left then
      raise exception 'something else depends on %', array_to_string(_left, ', ')
        using errcode = 'dependent_objects_still_exist', hint = 'Drop what depends on them first.';
    end if;
    _left := _blocked;
  end loop;
  update schema_version set obsolete = '{}',
    members = case when version = (select max(version) from schema_version where phase = 'functions') then members
                   else '{}' end
  where phase = 'functions';
end
$obsolete$;
