-- Make blocked rows of a key ready, as many as it has free slots (`most` if it has no limit), in the order of claims.
-- The best rows of every queue, so that a paused queue cannot keep the slot from the others. Returns how many rows of
-- each queue became ready. A transaction that has locked a blocked row is about to move it, and will call this itself:
-- such rows are skipped.
CREATE OR REPLACE FUNCTION mainstay.free_slots(of_key text, most bigint) RETURNS TABLE (queue text, n bigint)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan TO off SET plan_cache_mode TO force_generic_plan SET jit TO off
AS $$
#variable_conflict use_column
DECLARE
    at_queue text := '';
    free bigint;
    lowest bigint;
BEGIN
    PERFORM mainstay.lock_keys(ARRAY[of_key]);
    LOOP
        -- from queue to queue by the index, independent of how many rows wait in each
        SELECT j.queue INTO at_queue FROM mainstay.jobs j
        WHERE j.lane = 3 AND j.concurrency_key = of_key AND j.queue > at_queue ORDER BY j.queue LIMIT 1;
        EXIT WHEN NOT FOUND;
        IF free IS NULL THEN
            SELECT greatest(0, least(most, l.most - (
                SELECT count(*) FROM mainstay.jobs j WHERE j.concurrency_key = of_key AND j.session IS NOT NULL
            ))) INTO free FROM mainstay.limits l WHERE l.key = of_key;
            free := coalesce(free, most);
            EXIT WHEN free = 0;
        END IF;
        WITH back AS (
            UPDATE mainstay.jobs j SET lane = 1 WHERE j.id = ANY (ARRAY(
                SELECT b.id FROM mainstay.jobs b
                WHERE b.lane = 3 AND b.concurrency_key = of_key AND b.queue = at_queue
                ORDER BY b.rank, b.due_ms, b.n LIMIT free FOR UPDATE SKIP LOCKED
            ))
            RETURNING j.rank
        )
        SELECT at_queue, count(*), min(b.rank) INTO queue, n, lowest FROM back b;
        IF n > 0 THEN
            PERFORM mainstay.lower_heads(ARRAY[at_queue], ARRAY[lowest]);
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;
