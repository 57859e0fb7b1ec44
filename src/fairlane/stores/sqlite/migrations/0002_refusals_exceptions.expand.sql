-- Pauses that also refuse new jobs. Not a column of fairlane_pause: older code inserts there by position, and its
-- `resume` removes the pause alone, so that a refusal counts only beside its pause.
create table fairlane_refusal (
  kind  text not null,
  name  text not null,
  primary key (kind, name)
) without rowid;

-- The newest exceptions of its jobs, as the worker last reported them.
alter table fairlane_worker add column exceptions text not null default '[]';
