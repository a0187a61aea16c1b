-- Where claims begin to look.
--
-- A row that is claimed leaves a dead entry at the head of the index of what is ready, until a vacuum takes it away; and
-- that may be a minute, or as long as somebody keeps an old snapshot open. A claim that begins at the lowest rank there
-- is would walk past all of them: behind 100,000 jobs it takes half as long again, with an old snapshot open thrice.
-- So each queue has a head, a rank below which nothing is ready, and it must never be wrong: what lies below it would be
-- overlooked. It is raised by claims, in three steps, each in a transaction of its own:
--   1. a rank is proposed (`next_rank`);
--   2. the proposal is committed: the transactions that run now are the last that may not have seen it. A fresh
--      transaction id is drawn (`next_xid`): all of theirs are below it;
--   3. they are over, so whatever they made ready can be seen. The head goes up to the proposal, or to the lowest row that
--      is ready, if that is lower.
-- Whoever makes a row ready looks, in a statement after that, whether its rank is below the head or the proposal, and if
-- so says so (`lowered`) in the same transaction. Nobody waits for anybody: that is why it is a row of its own.
-- Once a minute all that is ready is looked through, for rows that were made so by hand.

CREATE OR REPLACE FUNCTION mainstay.lower_heads(in_queue text[], at_rank bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET enable_seqscan TO off SET plan_cache_mode TO force_generic_plan SET jit TO off
AS $$
BEGIN
    -- a user's transaction of that kind sees no proposal made after it began
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        INSERT INTO mainstay.lowered (queue, rank)
        SELECT g.queue, min(g.rank) FROM unnest(in_queue, at_rank) AS g (queue, rank) GROUP BY g.queue;
        RETURN;
    END IF;
    INSERT INTO mainstay.lowered (queue, rank)
    SELECT g.queue, g.rank
    FROM (SELECT g.queue, min(g.rank) AS rank FROM unnest(in_queue, at_rank) AS g (queue, rank) GROUP BY g.queue) g
    JOIN mainstay.heads h ON h.queue = g.queue AND g.rank < greatest(h.rank, h.next_rank);
END
$$;

-- The rank from which to look for ready rows.
-- (Not LANGUAGE sql: that would be planned anew for each claim.)
CREATE OR REPLACE FUNCTION mainstay.head_of(of_queue text) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce(
        (
            SELECT least(h.rank, (SELECT l.rank FROM mainstay.lowered l WHERE l.queue = of_queue ORDER BY l.rank LIMIT 1))
            FROM mainstay.heads h WHERE h.queue = of_queue
        ),
        -9223372036854775808
    );
END
$$;

-- The next step for the heads of these queues, which were claimed from up to a rank; unless it is too soon.
CREATE OR REPLACE FUNCTION mainstay.raise_heads(of_queues text[], up_to bigint) RETURNS void
LANGUAGE plpgsql VOLATILE
SET enable_seqscan TO off SET enable_sort TO off SET plan_cache_mode TO force_generic_plan SET jit TO off
AS $$
DECLARE
    -- of the server, whatever clock the store was given
    now_ms bigint := mainstay.clock(NULL);
    each_queue text;
    h mainstay.heads;
    begins bigint;
    lowest bigint;
    my_xid bigint;
    drawn bigint;
BEGIN
    FOREACH each_queue IN ARRAY of_queues LOOP
        SELECT * INTO h FROM mainstay.heads f WHERE f.queue = each_queue;
        IF NOT FOUND THEN
            INSERT INTO mainstay.heads (queue, rank, next_rank, moved_ms, looked_ms)
            VALUES (each_queue, -9223372036854775808, up_to, now_ms, now_ms) ON CONFLICT DO NOTHING;
            CONTINUE;
        END IF;
        CONTINUE WHEN now_ms - h.moved_ms BETWEEN 0 AND 199;
        SELECT * INTO h FROM mainstay.heads f WHERE f.queue = each_queue FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        IF h.next_xid IS NULL OR h.next_xid > pg_snapshot_xmax(pg_current_snapshot())::text::bigint THEN
            -- A block with a handler is a subtransaction, which draws an id of its own when it writes: one that is above
            -- all others up to now. The transaction's own id was drawn before the proposal was seen. And xmax of a
            -- snapshot is one past the last transaction that *ended*: younger ones may run, which would not be waited
            -- for, and what they made ready would lie below the head until the next look of the minute.
            -- What is written lowers nothing, and the next step deletes it.
            BEGIN
                INSERT INTO mainstay.lowered AS l (queue, rank) VALUES (each_queue, 9223372036854775807)
                RETURNING l.xmin::text::bigint INTO drawn;
            EXCEPTION WHEN no_data_found THEN
                CONTINUE;
            END;
            my_xid := pg_current_xact_id()::text::bigint;
            UPDATE mainstay.heads f SET
                -- xmin has the lower half of the id
                next_xid = my_xid + ((drawn - my_xid) & 4294967295), moved_ms = now_ms
            WHERE f.queue = each_queue;
        ELSIF h.next_xid <= pg_snapshot_xmin(pg_current_snapshot())::text::bigint THEN
            -- before the look: what is deleted was committed with its rows, and the look sees them
            WITH over AS (DELETE FROM mainstay.lowered l WHERE l.queue = each_queue RETURNING l.rank)
            SELECT least(h.rank, min(o.rank)) INTO begins FROM over o;
            SELECT j.rank INTO lowest FROM mainstay.jobs j
            WHERE j.lane = 1 AND j.queue = each_queue AND j.rank >= begins
            ORDER BY j.rank, j.due_ms, j.n LIMIT 1;
            UPDATE mainstay.heads f SET
                rank = least(h.next_rank, lowest), next_rank = coalesce(lowest, up_to), next_xid = NULL,
                moved_ms = now_ms
            WHERE f.queue = each_queue;
        END IF;
    END LOOP;
END
$$;

-- Once a minute: whether something is ready below the head after all. The next claim finds it.
CREATE OR REPLACE FUNCTION mainstay.look_below(of_queues text[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET enable_seqscan TO off SET enable_sort TO off SET plan_cache_mode TO force_generic_plan SET jit TO off
AS $$
DECLARE
    now_ms bigint := mainstay.clock(NULL);
    h mainstay.heads;
BEGIN
    FOR h IN
        SELECT * FROM mainstay.heads f
        WHERE f.queue = ANY (of_queues) AND now_ms - f.looked_ms NOT BETWEEN 0 AND 60000 FOR UPDATE SKIP LOCKED
    LOOP
        UPDATE mainstay.heads f SET looked_ms = now_ms WHERE f.queue = h.queue;
        INSERT INTO mainstay.lowered (queue, rank)
        SELECT h.queue, l.rank FROM (
            SELECT j.rank FROM mainstay.jobs j WHERE j.lane = 1 AND j.queue = h.queue
            ORDER BY j.rank, j.due_ms, j.n LIMIT 1
        ) l
        WHERE l.rank < h.rank;
    END LOOP;
END
$$;
