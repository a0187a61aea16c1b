-- outside a transaction
-- Routed jobs: a worker of their queue does not have their task.
DROP INDEX CONCURRENTLY IF EXISTS mainstay.jobs_routed;
CREATE INDEX CONCURRENTLY jobs_routed ON mainstay.jobs (queue, kind, name, rank) WHERE lane = 5;
