-- outside a transaction
-- Units of a job by status, to be counted and listed: a job may have a hundred thousand. An index that was left half
-- built is of no use, so it is made from the beginning.
DROP INDEX CONCURRENTLY IF EXISTS mainstay.jobs_unit_status;
CREATE INDEX CONCURRENTLY jobs_unit_status ON mainstay.jobs (parent, status, id) WHERE parent IS NOT NULL;
