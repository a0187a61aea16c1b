-- outside a transaction
-- Blocked rows in the order in which they came, as those that are ready: of many with the same rank (a bulk has one for
-- all) the place of a row on disk would decide, and that changes whenever it is written. The old index goes last, so
-- that who frees a slot has one meanwhile.
DROP INDEX CONCURRENTLY IF EXISTS mainstay.jobs_blocked_turn;
CREATE INDEX CONCURRENTLY jobs_blocked_turn ON mainstay.jobs (concurrency_key, queue, rank, due_ms, n) WHERE lane = 3;
DROP INDEX CONCURRENTLY IF EXISTS mainstay.jobs_blocked;
