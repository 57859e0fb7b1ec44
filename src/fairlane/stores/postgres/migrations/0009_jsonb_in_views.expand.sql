-- The views of other systems' shapes show JSON as jsonb. A view's column keeps its type, so they are made anew; who was
-- granted them by hand is granted them again.
drop view if exists dead_letter_jobs, jobs;
