-- Close the open edges to jobs that settled or were deleted. Returns the jobs that waited, for which of them, and
-- whether they wait for more. The rows of the waiting jobs are locked first, in order, until the transaction ends. If
-- two transactions settle the last two jobs of a waiter, the second to lock it sees in its next statement what the
-- first has closed.
CREATE OR REPLACE FUNCTION mainstay.cross_off(ended text[]) RETURNS TABLE (job_id text, ons text[], more boolean)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan TO off SET plan_cache_mode TO force_generic_plan SET jit TO off
AS $$
#variable_conflict use_column
DECLARE
    over uuid[] := ended;
    waiters uuid[] := ARRAY(SELECT w.job_id FROM mainstay.waits w WHERE w.on_id = ANY (over) AND NOT w.done);
BEGIN
    IF cardinality(waiters) = 0 THEN
        RETURN;
    END IF;
    PERFORM FROM mainstay.jobs j WHERE j.id = ANY (waiters) ORDER BY j.id FOR UPDATE;
    RETURN QUERY
    WITH crossed AS (
        UPDATE mainstay.waits w SET done = true WHERE w.on_id = ANY (over) AND NOT w.done RETURNING w.job_id, w.on_id
    )
    SELECT c.job_id::text, array_agg(c.on_id::text), EXISTS (
        SELECT FROM mainstay.waits w WHERE w.job_id = c.job_id AND NOT w.done AND w.on_id <> ALL (over)
    )
    FROM crossed c GROUP BY c.job_id ORDER BY c.job_id;
END
$$;
