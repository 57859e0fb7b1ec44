-- When an attempt was due: the start of its queue time.
alter table attempt add column due_at timestamptz;

-- Pauses that also refuse new jobs. A table beside `pause`: it is empty almost always, and every enqueue looks at it.
create table refusal (
  kind  text collate "C" not null,
  name  text collate "C" not null,
  primary key (kind, name)
);

-- The newest exceptions of its jobs, as the worker last reported them.
alter table worker add column exceptions json not null default '[]';
