-- Sums of half hours: charts over a day or a week read a thirtieth of the rows.
create table stat_half_hour (
  half_hour     timestamptz not null,
  type          text collate "C" not null,
  queue         text collate "C" not null,
  tenant        text collate "C" not null,
  enqueued      bigint not null,
  completed     bigint not null,
  failed        bigint not null,
  dead          bigint not null,
  cancelled     bigint not null,
  wait_us       bigint not null,
  run_us        bigint not null,
  wait_buckets  jsonb not null,
  run_buckets   jsonb not null,
  primary key (half_hour, type, queue, tenant)
);

-- Half hours from here on are summed. Functions of the release before, which know no half hours, may still add to
-- minutes until theirs are replaced: where there are any, it begins later.
alter table rolled_up add column half_hours_from timestamptz not null default '-infinity';
update rolled_up set half_hours_from = date_bin('30 minutes', now() + interval '90 minutes', 'epoch')
where exists (select from stat_minute);
