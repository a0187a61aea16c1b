-- Take up to `most` ready rows of these queues for a session, lowest rank first; none if it was asked to drain. Returns
-- the claimed rows with an empty `state`; and instead of them, or after them, rows with the state
--   lost     the session is dead or unknown; nothing was taken
--   due      rows are due, or routed rows can be run by this session: the caller makes them ready, and calls again with
--            `promoted`
--   odd      a ready row whose status cannot be claimed; it was left alone
--   more     the claim ended early, because it moved many rows of full keys away, or skipped rows of a key that another
--            claim is counting; there may be more rows
-- A call with the same nonce means that the result of the first one was lost: it gets the rows that the claim still
-- holds.
--
-- The claim's event is not written here, because the server must not know the key that seals events. The row is left
-- open instead.
--
-- Rows are locked in pages, and locked rows are skipped. So no claim waits for a row, and a claim that holds the lock
-- of a concurrency key waits only for other such locks. Several queues are merged from their heads; a sort of all
-- ready rows would cost more with each of them. The planner would still choose the sort if its statistics are of a
-- time with few ready rows. So sorting is disabled, and rows are found by their ids alone (`lane + 0`).
CREATE OR REPLACE FUNCTION mainstay.claim(
    from_queues text[], who text, most integer, my_nonce text, promoted boolean, given_ms bigint
) RETURNS TABLE (
    id text, kind text, name text, queue text, parent text, unit text, "group" text, options text, key text,
    unique_key text, concurrency_key text, priority integer, status text, reason text, version integer,
    token integer, session text, starts integer, failures integer, crashes integer, releases integer,
    losses integer, created_ms bigint, changed_ms bigint, due_ms bigint, claimed_ms bigint, started_ms bigint,
    settled_ms bigint, expires_ms bigint, extra_ms bigint, error text, result bytea, head bytea,
    trimmed_seq integer, trimmed_digest bytea, lane smallint, rank bigint, progress text, progress_ms bigint,
    checkpoint bytea, payload bytea, "open" boolean, n bigint, state text
)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan TO off SET enable_sort TO off SET enable_incremental_sort TO off
SET plan_cache_mode TO force_generic_plan SET jit TO off
AS $$
#variable_conflict use_column
DECLARE
    now_ms bigint := mainstay.clock(given_ms);
    my_shard smallint := pg_backend_pid() % 64;
    is_dead boolean;
    asked_ms bigint;
    last_nonce text;
    last_ids uuid[];
    names text[];
    -- the rank from which to look in each of them
    starts bigint[];
    page integer;
    seen integer;
    heads uuid[];
    ids uuid[];
    keys text[];
    statuses text[];
    ranks bigint[];
    dues bigint[];
    ns bigint[];
    -- where the next page begins
    at_rank bigint := -9223372036854775808;
    at_due bigint := -9223372036854775808;
    at_n bigint := -9223372036854775808;
    taken uuid[] := '{}';
    taken_keys text[] := '{}';
    full_ids uuid[];
    blocked integer := 0;
    odd uuid[] := '{}';
    held_keys text[] := '{}';
    passed boolean := false;
BEGIN
    -- When a claim is sent again, its first call may still be running on a connection that was cut. Wait for its end
    -- here; a later statement sees the result.
    PERFORM pg_advisory_xact_lock(hashtextextended(who, 'mainstay.claims'::regclass::oid::bigint));
    SELECT s.dead, s.draining_ms, c.nonce, c.ids INTO is_dead, asked_ms, last_nonce, last_ids
    FROM mainstay.sessions s LEFT JOIN mainstay.claims c ON c.session = s.id WHERE s.id = who;
    IF is_dead IS DISTINCT FROM false THEN
        state := 'lost';
        RETURN NEXT;
        RETURN;
    END IF;
    IF last_nonce = my_nonce THEN
        RETURN QUERY
        SELECT j.id::text, j.kind, j.name, j.queue, j.parent::text, j.unit, j."group", j.options, j.key, j.unique_key,
            j.concurrency_key, j.priority, j.status, j.reason, j.version, j.token, j.session, j.starts, j.failures,
            j.crashes, j.releases, j.losses, j.created_ms, j.changed_ms, j.due_ms, j.claimed_ms, j.started_ms,
            j.settled_ms, j.expires_ms, j.extra_ms, j.error, j.result, j.head, j.trimmed_seq, j.trimmed_digest,
            j.lane, j.rank, j.progress, j.progress_ms, j.checkpoint, j.payload, j.open, j.n, ''
        FROM mainstay.jobs j WHERE j.id = ANY (last_ids) AND j.session = who AND j.open;
        RETURN;
    END IF;
    IF asked_ms IS NOT NULL THEN
        RETURN; -- it was asked to drain
    END IF;
    SELECT coalesce(array_agg(g.q), '{}'), coalesce(array_agg(mainstay.head_of(g.q)), '{}') INTO names, starts
    FROM (SELECT DISTINCT q FROM unnest(from_queues) q) g
    WHERE NOT EXISTS (SELECT FROM mainstay.queues s WHERE s.name = g.q AND s.paused);
    IF NOT promoted AND (
        EXISTS (
            SELECT FROM unnest(names) q
            WHERE EXISTS (SELECT FROM mainstay.jobs j WHERE j.lane = 2 AND j.queue = q AND j.due_ms <= now_ms)
        )
        OR EXISTS (SELECT FROM mainstay.routes r WHERE r.queue = ANY (names) AND mainstay.may_run(who, r.route))
    ) THEN
        state := 'due';
        RETURN NEXT;
        RETURN;
    END IF;

    IF cardinality(names) = 1 THEN
        at_rank := starts[1];
    END IF;
    WHILE cardinality(taken) < most LOOP
        -- rows of full keys are moved away many at a time; other rows are locked only to be taken
        page := greatest(most - cardinality(taken), least(2 * blocked, 200));
        IF cardinality(names) = 1 THEN
            SELECT array_agg(p.id), array_agg(p.concurrency_key), array_agg(p.status),
                array_agg(p.rank), array_agg(p.due_ms), array_agg(p.n), count(*)
            INTO ids, keys, statuses, ranks, dues, ns, seen
            FROM (
                SELECT j.id, j.concurrency_key, j.status, j.rank, j.due_ms, j.n FROM mainstay.jobs j
                WHERE j.lane = 1 AND j.queue = names[1] AND (j.rank, j.due_ms, j.n) > (at_rank, at_due, at_n)
                    AND (j.expires_ms IS NULL OR j.expires_ms > now_ms)
                ORDER BY j.rank, j.due_ms, j.n LIMIT page FOR UPDATE SKIP LOCKED
            ) p;
        ELSE
            SELECT array_agg(h.id), array_agg(h.rank), array_agg(h.due_ms), array_agg(h.n), count(*)
            INTO heads, ranks, dues, ns, seen
            FROM (
                SELECT h.* FROM unnest(names, starts) AS g (queue, start) CROSS JOIN LATERAL (
                    SELECT j.id, j.rank, j.due_ms, j.n FROM mainstay.jobs j
                    WHERE j.lane = 1 AND j.queue = g.queue AND (j.rank, j.due_ms, j.n) > (
                            greatest(g.start, at_rank),
                            CASE WHEN g.start > at_rank THEN -9223372036854775808 ELSE at_due END,
                            CASE WHEN g.start > at_rank THEN -9223372036854775808 ELSE at_n END
                        )
                        AND (j.expires_ms IS NULL OR j.expires_ms > now_ms)
                    ORDER BY j.rank, j.due_ms, j.n LIMIT page
                ) h
                ORDER BY h.rank, h.due_ms, h.n LIMIT page
            ) h;
            SELECT array_agg(p.id), array_agg(p.concurrency_key), array_agg(p.status)
            INTO ids, keys, statuses
            FROM (
                SELECT j.id, j.concurrency_key, j.status FROM mainstay.jobs j
                WHERE j.id = ANY (heads) AND j.lane + 0 = 1
                ORDER BY j.rank, j.due_ms, j.n FOR UPDATE SKIP LOCKED
            ) p;
        END IF;
        EXIT WHEN seen = 0;
        at_rank := ranks[seen];
        at_due := dues[seen];
        at_n := ns[seen];
        IF EXISTS (SELECT FROM unnest(statuses) AS g (status) WHERE g.status <> 'pending') THEN
            odd := odd || ARRAY(SELECT g.id FROM unnest(ids, statuses) AS g (id, status) WHERE g.status <> 'pending');
            SELECT array_agg(g.id ORDER BY g.at), array_agg(g.key ORDER BY g.at) INTO ids, keys
            FROM unnest(ids, keys, statuses) WITH ORDINALITY AS g (id, key, status, at) WHERE g.status = 'pending';
        END IF;
        IF ids IS NOT NULL AND array_remove(keys, NULL) <> '{}' THEN
            IF held_keys = '{}' THEN
                held_keys := ARRAY(SELECT l.key FROM mainstay.limits l WHERE l.key = ANY (keys));
                PERFORM mainstay.lock_keys(held_keys);
            ELSE
                -- keys of a later page would be locked out of order: a locked one is skipped
                held_keys := held_keys || ARRAY(
                    SELECT l.key FROM mainstay.limits l
                    WHERE l.key = ANY (keys) AND l.key <> ALL (held_keys) AND mainstay.try_lock_key(l.key)
                );
                SELECT array_agg(g.id ORDER BY g.at), array_agg(g.key ORDER BY g.at),
                    passed OR count(*) < cardinality(ids)
                INTO ids, keys, passed
                FROM unnest(ids, keys) WITH ORDINALITY AS g (id, key, at)
                WHERE g.key IS NULL OR g.key = ANY (held_keys)
                    OR NOT EXISTS (SELECT FROM mainstay.limits l WHERE l.key = g.key);
            END IF;
            -- a later statement, so that it sees what the earlier holders of the locks have taken
            SELECT array_agg(g.id ORDER BY g.at) FILTER (WHERE g.fits),
                array_agg(g.key ORDER BY g.at) FILTER (WHERE g.fits),
                array_agg(g.id) FILTER (WHERE NOT g.fits)
            INTO ids, keys, full_ids
            FROM (
                SELECT g.id, g.key, g.at,
                    f.free IS NULL OR row_number() OVER (PARTITION BY g.key ORDER BY g.at) <= f.free AS fits
                FROM unnest(ids, keys) WITH ORDINALITY AS g (id, key, at)
                LEFT JOIN (
                    SELECT l.key, l.most
                        - (
                            SELECT count(*) FROM mainstay.jobs h
                            WHERE h.concurrency_key = l.key AND h.session IS NOT NULL
                        )
                        - (SELECT count(*) FROM unnest(taken_keys) AS t (key) WHERE t.key = l.key) AS free
                    FROM mainstay.limits l WHERE l.key = ANY (keys)
                ) f ON f.key = g.key
            ) g;
            UPDATE mainstay.jobs j SET lane = 3 WHERE j.id = ANY (full_ids);
            blocked := blocked + coalesce(cardinality(full_ids), 0);
        END IF;
        IF ids IS NOT NULL THEN
            taken_keys := taken_keys || keys[:most - cardinality(taken)];
            taken := taken || ids[:most - cardinality(taken)];
        END IF;
        EXIT WHEN seen < page OR blocked >= 1000;
    END LOOP;

    IF cardinality(taken) > 0 THEN
        INSERT INTO mainstay.claims AS c (session, nonce, ids) VALUES (who, my_nonce, taken)
        ON CONFLICT (session) DO UPDATE SET nonce = excluded.nonce, ids = excluded.ids;
        RETURN QUERY
        WITH got AS (
            UPDATE mainstay.jobs j SET
                status = 'running', reason = NULL, version = j.version + 1, token = j.token + 1, session = who,
                changed_ms = now_ms, claimed_ms = now_ms, started_ms = NULL, expires_ms = NULL, lane = 0, open = true
            WHERE j.id = ANY (taken)
            RETURNING j.*
        ), counted AS (
            INSERT INTO mainstay.tallies AS t (queue, status, shard, n)
            SELECT g.queue, s.status, my_shard, s.sign * g.n
            FROM (SELECT j.queue, count(*) AS n FROM got j WHERE j.parent IS NULL GROUP BY j.queue) g
            CROSS JOIN (VALUES ('pending', -1), ('running', 1)) AS s (status, sign)
            ORDER BY g.queue, s.status
            ON CONFLICT (queue, status, shard) DO UPDATE SET n = t.n + excluded.n
        ), flowed AS (
            INSERT INTO mainstay.flow AS f (minute, status, shard, n)
            SELECT now_ms / 60000, 'running', my_shard, count(*) FROM got j WHERE j.parent IS NULL HAVING count(*) > 0
            ON CONFLICT (minute, status, shard) DO UPDATE SET n = f.n + excluded.n
        )
        SELECT j.id::text, j.kind, j.name, j.queue, j.parent::text, j.unit, j."group", j.options, j.key, j.unique_key,
            j.concurrency_key, j.priority, j.status, j.reason, j.version, j.token, j.session, j.starts, j.failures,
            j.crashes, j.releases, j.losses, j.created_ms, j.changed_ms, j.due_ms, j.claimed_ms, j.started_ms,
            j.settled_ms, j.expires_ms, j.extra_ms, j.error, j.result, j.head, j.trimmed_seq, j.trimmed_digest,
            j.lane, j.rank, j.progress, j.progress_ms, j.checkpoint, j.payload, j.open, j.n, ''
        FROM got j;
    END IF;
    IF cardinality(odd) > 0 THEN
        RETURN QUERY
        SELECT j.id::text, j.kind, j.name, j.queue, j.parent::text, j.unit, j."group", j.options, j.key, j.unique_key,
            j.concurrency_key, j.priority, j.status, j.reason, j.version, j.token, j.session, j.starts, j.failures,
            j.crashes, j.releases, j.losses, j.created_ms, j.changed_ms, j.due_ms, j.claimed_ms, j.started_ms,
            j.settled_ms, j.expires_ms, j.extra_ms, j.error, j.result, j.head, j.trimmed_seq, j.trimmed_digest,
            j.lane, j.rank, j.progress, j.progress_ms, j.checkpoint, j.payload, j.open, j.n, 'odd'
        FROM mainstay.jobs j WHERE j.id = ANY (odd);
    END IF;
    IF cardinality(taken) > 0 THEN
        PERFORM mainstay.raise_heads(names, at_rank);
    END IF;
    PERFORM mainstay.look_below(names);
    IF blocked >= 1000 OR (passed AND cardinality(taken) < most) THEN
        state := 'more';
        RETURN NEXT;
    END IF;
END
$$;
