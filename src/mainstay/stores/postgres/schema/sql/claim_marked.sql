-- As `claim`, for a claim that its caller may send again under the same mark, also much later and from another process.
-- The same session and mark get the rows of the first call that the session still holds under the same token, with the
-- state
--   held     it was claimed by an earlier call under this mark
-- The last `keep` marks of a session are known. A claim that found nothing has a mark, too.
--
-- `continues`: the caller has put all rows of its last call under this mark aside, because it does not have their tasks,
-- and claims more. The nonce then recognizes a call that was sent again, as in `claim`.
CREATE OR REPLACE FUNCTION mainstay.claim_marked(
    from_queues text[], who text, most integer, my_nonce text, my_mark text, continues boolean, keep integer,
    promoted boolean, given_ms bigint
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
SET enable_seqscan TO off SET plan_cache_mode TO force_generic_plan SET jit TO off
AS $$
#variable_conflict use_column
DECLARE
    is_dead boolean;
    known_ids uuid[];
    known_tokens integer[];
BEGIN
    -- the lock of `claim`: the first call may still be running on a connection that was cut
    PERFORM pg_advisory_xact_lock(hashtextextended(who, 'mainstay.claims'::regclass::oid::bigint));
    SELECT s.dead, m.ids, m.tokens INTO is_dead, known_ids, known_tokens
    FROM mainstay.sessions s LEFT JOIN mainstay.marks m ON m.session = s.id AND m.mark = my_mark WHERE s.id = who;
    IF is_dead IS DISTINCT FROM false THEN
        state := 'lost';
        RETURN NEXT;
        RETURN;
    END IF;
    IF known_ids IS NOT NULL AND NOT continues THEN
        RETURN QUERY
        SELECT j.id::text, j.kind, j.name, j.queue, j.parent::text, j.unit, j."group", j.options, j.key, j.unique_key,
            j.concurrency_key, j.priority, j.status, j.reason, j.version, j.token, j.session, j.starts, j.failures,
            j.crashes, j.releases, j.losses, j.created_ms, j.changed_ms, j.due_ms, j.claimed_ms, j.started_ms,
            j.settled_ms, j.expires_ms, j.extra_ms, j.error, j.result, j.head, j.trimmed_seq, j.trimmed_digest,
            j.lane, j.rank, j.progress, j.progress_ms, j.checkpoint, j.payload, j.open, j.n, 'held'
        FROM (SELECT DISTINCT g.id, g.token FROM unnest(known_ids, known_tokens) AS g (id, token)) g
        JOIN mainstay.jobs j ON j.id = g.id AND j.session = who AND j.token = g.token;
        RETURN;
    END IF;
    RETURN QUERY
    WITH got AS MATERIALIZED (
        SELECT * FROM mainstay.claim(from_queues, who, most, my_nonce, promoted, given_ms)
    ), kept AS (
        INSERT INTO mainstay.marks AS m (session, mark, ids, tokens)
        SELECT who, my_mark, coalesce(array_agg(g.id::uuid) FILTER (WHERE g.state = ''), '{}'),
            coalesce(array_agg(g.token) FILTER (WHERE g.state = ''), '{}')
        FROM got g
        -- the caller makes the due rows ready and calls again
        HAVING NOT coalesce(bool_or(g.state = 'due'), false)
        ON CONFLICT (session, mark) DO UPDATE SET ids = m.ids || excluded.ids, tokens = m.tokens || excluded.tokens
    )
    SELECT * FROM got;
    DELETE FROM mainstay.marks m WHERE m.session = who AND m.n < (
        SELECT d.n FROM mainstay.marks d WHERE d.session = who ORDER BY d.n DESC OFFSET keep - 1 LIMIT 1
    );
END
$$;
