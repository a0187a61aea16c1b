-- Heads: the rank from which claims of a queue begin to look.
--
-- A claimed row leaves a dead entry at the start of the index of ready rows until a vacuum removes it. That may take a
-- minute, or as long as an old snapshot is open. A claim from the lowest rank would walk past all dead entries: behind
-- 100,000 jobs it takes 1.5 times as long, and 3 times as long with an old snapshot open.
-- So each queue has a head: a rank below which no row is ready. It must never be wrong, because rows below it would be
-- missed. Claims raise it in three steps, each in a transaction of its own:
--   1. a rank is proposed (`next_rank`);
--   2. the proposal is committed: only transactions that run now may not have seen it. A fresh transaction id is drawn
--      (`next_xid`); all of theirs are below it;
--   3. these transactions have ended, so the rows that they made ready are visible. The head is raised to the proposal,
--      or to the lowest ready row if that is lower.
-- A transaction that makes a row ready checks in a later statement whether the rank is below the head or the proposal,
-- and if so adds a row to `lowered`. That is a table of its own so that no transaction waits for another.
-- Once a minute all ready rows are checked, for rows that were made ready by hand.

CREATE OR REPLACE FUNCTION mainstay.lower_heads(in_queue text[], at_rank bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET enable_seqscan TO off SET plan_cache_mode TO force_generic_plan SET jit TO off
AS $$
BEGIN
    -- such a transaction of a user does not see a proposal that was made after it began
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        INSERT INTO mainstay.lowered (queue, rank)
        SELECT g.queue, min(g.rank) FROM unnest(in_queue, at_rank) AS g (queue, rank)
        -- no claim would ever delete the row of a reserved queue
        WHERE g.queue NOT LIKE '@%' GROUP BY g.queue;
        RETURN;
    END IF;
    INSERT INTO mainstay.lowered (queue, rank)
    SELECT g.queue, g.rank
    FROM (SELECT g.queue, min(g.rank) AS rank FROM unnest(in_queue, at_rank) AS g (queue, rank) GROUP BY g.queue) g
    JOIN mainstay.heads h ON h.queue = g.queue AND g.rank < greatest(h.rank, h.next_rank);
END
$$;

-- The rank from which to look for ready rows.
-- (Not LANGUAGE sql: that would be planned again for each claim.)
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

-- The next step for the heads of these queues, which were claimed from up to a rank. Does nothing if it is too soon.
CREATE OR REPLACE FUNCTION mainstay.raise_heads(of_queues text[], up_to bigint) RETURNS void
LANGUAGE plpgsql VOLATILE
SET enable_seqscan TO off SET enable_sort TO off SET plan_cache_mode TO force_generic_plan SET jit TO off
AS $$
DECLARE
    -- the server's time, whatever clock the store has
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
            -- A block with a handler is a subtransaction, which draws an id of its own when it writes: the highest id
            -- so far. The transaction's own id was drawn before the proposal was seen. And xmax of a snapshot is one
            -- past the last transaction that *ended*: with it, younger transactions that still run would not be waited
            -- for, and rows that they make ready would be below the head until the check of the minute. The written
            -- row lowers nothing, and the next step deletes it.
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
            -- before the next query: the deleted entries were committed with their rows, so the query sees these
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

-- Once a minute: check whether a row is ready below the head after all. The next claim finds it.
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
