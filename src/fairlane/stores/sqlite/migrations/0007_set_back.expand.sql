-- What a due time is counted from: the enqueue of a job with a delay, or the end of the attempt before. Null where it
-- was given as an instant. A clock that is set back leaves it in the future: see `BringBack`.
alter table fairlane_scheduled add column since integer;
