-- Whether a session can run jobs of a route. A session without an offer gets all jobs.
CREATE OR REPLACE FUNCTION mainstay.may_run(who text, of_route text) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce((SELECT of_route = ANY (o.routes) FROM mainstay.offers o WHERE o.session = who), true);
END
$$;

-- Make routed rows ready that a session can run, up to `most` of each route. This locks the route until the commit, as
-- does a claim that routes a row: a route is deleted only if it has no row left.
CREATE OR REPLACE FUNCTION mainstay.bring_back(from_queues text[], who text, most integer) RETURNS void
LANGUAGE plpgsql VOLATILE
SET enable_seqscan TO off SET enable_sort TO off SET plan_cache_mode TO force_generic_plan SET jit TO off
AS $$
DECLARE
    r record;
    back_queues text[];
    back_ranks bigint[];
BEGIN
    FOR r IN
        SELECT g.* FROM mainstay.routes g
        WHERE g.queue = ANY (from_queues) AND mainstay.may_run(who, g.route)
            AND NOT EXISTS (SELECT FROM mainstay.queues s WHERE s.name = g.queue AND s.paused)
        ORDER BY g.queue, g.kind, g.name FOR UPDATE OF g
    LOOP
        WITH back AS (
            UPDATE mainstay.jobs j SET lane = 1 WHERE j.id = ANY (ARRAY(
                SELECT b.id FROM mainstay.jobs b
                WHERE b.lane = 5 AND b.queue = r.queue AND b.kind = r.kind AND b.name = r.name
                ORDER BY b.rank LIMIT most FOR UPDATE SKIP LOCKED
            ))
            RETURNING j.queue, j.rank
        )
        SELECT array_agg(b.queue), array_agg(b.rank) INTO back_queues, back_ranks FROM back b;
        IF back_queues IS NOT NULL THEN
            PERFORM mainstay.lower_heads(back_queues, back_ranks);
        END IF;
        DELETE FROM mainstay.routes g
        WHERE g.queue = r.queue AND g.kind = r.kind AND g.name = r.name AND NOT EXISTS (
            SELECT FROM mainstay.jobs b
            WHERE b.lane = 5 AND b.queue = r.queue AND b.kind = r.kind AND b.name = r.name
        );
    END LOOP;
END
$$;
