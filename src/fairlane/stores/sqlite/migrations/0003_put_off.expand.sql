-- Jobs that a worker has put off for another one: a worker that cannot run such jobs of a type leaves them alone.
alter table fairlane_scheduled add column put_off integer not null default 0;
alter table fairlane_ready add column put_off integer not null default 0;
