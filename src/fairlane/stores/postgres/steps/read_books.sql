-- read_books: what was applied: versions, release of the functions and its checksum, whether some are obsolete.
select coalesce(max(version) filter (where phase = 'expand'), 0),
       coalesce(max(version) filter (where phase = 'contract'), 0),
       coalesce(max(version) filter (where phase = 'functions'), 0),
       (array_agg(checksum order by version desc) filter (where phase = 'functions'))[1],
       coalesce(bool_or(obsolete <> '[]'), false)
from (
  -- Through JSON: before functions were recorded the table had fewer columns.
  select version, coalesce(r->>'phase', 'expand') as phase, r->>'checksum' as checksum,
         coalesce(r->>'obsolete', '[]') as obsolete
  from {table} v, to_jsonb(v) r
) v
