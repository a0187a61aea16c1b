-- outside a transaction
-- Lists of one kind: batches and load tests are few among very many tasks. Tasks have no entry here, and no cost. A
-- version of its own: a script outside of a transaction cannot step back from a table's lock.
DROP INDEX CONCURRENTLY IF EXISTS mainstay.jobs_kind;
CREATE INDEX CONCURRENTLY jobs_kind ON mainstay.jobs (kind, id) WHERE kind <> 'task' AND parent IS NULL;
