-- Dead letters as people see them, and the answer to an act on one.

create or replace view dead_letter_record as
select d.seq as id, row_to_json(r) as job, d.status, d.reason, d.error_class, d.error_type, d.fingerprint, d.died_at,
       d.acknowledged_by, d.acknowledged_at, d.closed_by, d.closed_at, d.notes as resolution_notes, d.reprocess_count,
       d.reprocessed_as
from dead_letter d join job_record r on r.seq = d.seq;

create or replace function dead_letter_act(_refused text, _seq bigint, _new_seq bigint, _repeated boolean) returns json
language sql stable
set search_path from current
begin atomic
  select json_build_object(
    'refused', _refused, 'repeated', _repeated,
    'dead_letter', (select row_to_json(d) from dead_letter_record d where d.id = _seq),
    'new_job', (select row_to_json(r) from job_record r where r.seq = _new_seq));
end;
