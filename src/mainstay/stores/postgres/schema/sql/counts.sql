-- Add to the tallies and to the rates of this minute, in this connection's shard. The last statement of a transaction:
-- until it ends, other transactions of the same shard wait. Rows are locked in order, to prevent deadlocks. A user's
-- transaction may stay open for long, so it counts in a shard that no connection of ours uses (`count_apart`).
CREATE OR REPLACE FUNCTION mainstay.count_up(
    in_queue text[], in_status text[], more bigint[], entered text[], entries bigint[], now_ms bigint
) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    my_shard smallint := coalesce(
        nullif(current_setting('mainstay_enqueue.shard', true), '')::smallint, pg_backend_pid() % 64
    );
BEGIN
    IF cardinality(in_queue) > 0 THEN
        INSERT INTO mainstay.tallies AS t (queue, status, shard, n)
        SELECT c.queue, c.status, my_shard, sum(c.n)
        FROM unnest(in_queue, in_status, more) AS c (queue, status, n)
        GROUP BY c.queue, c.status ORDER BY c.queue, c.status
        ON CONFLICT (queue, status, shard) DO UPDATE SET n = t.n + excluded.n;
    END IF;
    IF cardinality(entered) > 0 THEN
        INSERT INTO mainstay.flow AS f (minute, status, shard, n)
        SELECT now_ms / 60000, c.status, my_shard, sum(c.n)
        FROM unnest(entered, entries) AS c (status, n)
        GROUP BY c.status ORDER BY c.status
        ON CONFLICT (minute, status, shard) DO UPDATE SET n = f.n + excluded.n;
    END IF;
END
$$;
