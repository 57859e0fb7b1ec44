-- How many leases that limits on running count a worker had at most after this claim; null: not known.
alter table claim_made add column held integer;
