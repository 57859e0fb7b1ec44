-- When the leases of ended attempts would have ended. Not columns of fairlane_attempt and fairlane_done: older code
-- inserts there by position. A trigger removes them, because older code removes jobs, too.
create table fairlane_lease_end (
  seq         integer not null,
  attempt     integer not null,
  expires_at  integer not null,
  primary key (seq, attempt)
) without rowid;
create trigger fairlane_lease_end_removed after delete on fairlane_job begin
  delete from fairlane_lease_end where seq = old.seq;
end;
