-- What a due time is counted from: the enqueue of a job with a delay, or the end of the attempt before. Null where it
-- was given as an instant. A clock that is set back leaves it in the future: see bring_back_v1.
alter table scheduled add column since timestamptz;

-- One row: when the clock was set back last, by how much, and down to which number waiting jobs have been examined
-- since; null: all of them.
create table set_back (
  only_one     boolean primary key default true check (only_one),
  at           timestamptz,
  behind_s     double precision not null default 0,
  examined_to  bigint
);
insert into set_back default values;
