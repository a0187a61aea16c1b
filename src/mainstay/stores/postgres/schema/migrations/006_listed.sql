-- outside a transaction
-- Lists by queue, status and name, in any combination (`index_pages`). Without it, a list of a small queue searches all
-- the others: 88 jobs before 300,000 were not found in 200 ms. Held jobs are not in it, so that a claim adds no entry. An
-- entry costs the server about 3 us: a tenth of a submit in bulk, and 2 % of a claim and its end.
DROP INDEX CONCURRENTLY IF EXISTS mainstay.jobs_listed;
CREATE INDEX CONCURRENTLY jobs_listed ON mainstay.jobs (queue, status, name, id)
    WHERE parent IS NULL AND session IS NULL;
