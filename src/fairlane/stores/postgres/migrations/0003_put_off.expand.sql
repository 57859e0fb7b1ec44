-- Jobs that a worker has put off for another one: a worker that cannot run such jobs of a type leaves them alone.
alter table scheduled add column put_off boolean not null default false;
alter table ready add column put_off boolean not null default false;
