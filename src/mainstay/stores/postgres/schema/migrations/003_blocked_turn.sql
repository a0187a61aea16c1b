-- outside a transaction
-- Blocked rows in the order of their arrival, like ready rows. Otherwise the place on disk would decide between rows of
-- the same rank (a bulk has one rank), and that changes with every write. The old index is dropped last, so that freeing
-- a slot always has one.
DROP INDEX CONCURRENTLY IF EXISTS mainstay.jobs_blocked_turn;
CREATE INDEX CONCURRENTLY jobs_blocked_turn ON mainstay.jobs (concurrency_key, queue, rank, due_ms, n) WHERE lane = 3;
DROP INDEX CONCURRENTLY IF EXISTS mainstay.jobs_blocked;
