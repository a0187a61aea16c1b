-- outside a transaction
-- Units of a job by status, to count and list them: a job may have a hundred thousand. A half-built index is useless, so
-- it is dropped first.
DROP INDEX CONCURRENTLY IF EXISTS mainstay.jobs_unit_status;
CREATE INDEX CONCURRENTLY jobs_unit_status ON mainstay.jobs (parent, status, id) WHERE parent IS NOT NULL;
