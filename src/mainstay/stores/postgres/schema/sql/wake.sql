-- Whether a listener hears anything: it holds a lock for as long as its connection lives. One that vanished without a
-- word keeps its lock until the server gives its connection up; for that it must say now and then that it is there.
CREATE OR REPLACE FUNCTION mainstay.hears(of_listener text, until_ms bigint) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    SELECT until_ms > mainstay.clock(NULL)
        AND NOT pg_try_advisory_xact_lock_shared(hashtextextended(of_listener, 'mainstay.listeners'::regclass::oid::bigint))
$$;

-- Have a listener hear of these topics, or say anew whether it waits for them. Answers those for which that could not be
-- said: it is being woken for them this moment. It hears nothing while it waits here, so it does not.
CREATE OR REPLACE FUNCTION mainstay.start_listening(me text, topics text[], waits boolean[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    said text[];
BEGIN
    WITH made AS (
        INSERT INTO mainstay.listeners AS l (topic, listener, waiting, until_ms)
        SELECT g.topic, me, g.waits, mainstay.clock(NULL) + 60000
        FROM unnest(topics, waits) AS g (topic, waits) ORDER BY g.topic
        ON CONFLICT (topic, listener) DO NOTHING RETURNING l.topic
    )
    SELECT coalesce(array_agg(m.topic), '{}') INTO said FROM made m;
    IF cardinality(said) < cardinality(topics) THEN
        WITH told AS (
            UPDATE mainstay.listeners l SET waiting = g.waits, until_ms = mainstay.clock(NULL) + 60000
            FROM unnest(topics, waits) AS g (topic, waits), (
                SELECT d.topic FROM mainstay.listeners d
                WHERE d.listener = me AND d.topic = ANY (topics) AND d.topic <> ALL (said) FOR UPDATE SKIP LOCKED
            ) f
            WHERE l.listener = me AND l.topic = g.topic AND f.topic = g.topic RETURNING l.topic
        )
        SELECT said || coalesce(array_agg(t.topic), '{}') INTO said FROM told t;
    END IF;
    RETURN ARRAY(SELECT t FROM unnest(topics) t WHERE t <> ALL (said));
END
$$;

-- The opposite; answers the topics that are left for the same reason.
CREATE OR REPLACE FUNCTION mainstay.stop_listening(me text, topics text[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    DELETE FROM mainstay.listeners l
    USING (
        SELECT d.topic FROM mainstay.listeners d
        WHERE d.listener = me AND d.topic = ANY (topics) FOR UPDATE SKIP LOCKED
    ) f
    WHERE l.listener = me AND l.topic = f.topic;
    RETURN ARRAY(SELECT l.topic FROM mainstay.listeners l WHERE l.listener = me AND l.topic = ANY (topics));
END
$$;

CREATE OR REPLACE FUNCTION mainstay.listens_still(me text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- one that is being woken this moment is told another time
    UPDATE mainstay.listeners l SET until_ms = mainstay.clock(NULL) + 60000
    FROM (SELECT d.topic FROM mainstay.listeners d WHERE d.listener = me FOR UPDATE SKIP LOCKED) f
    WHERE l.listener = me AND l.topic = f.topic;
END
$$;

-- Wake listeners: for a queue at most as many as there are rows, those who wait before those who are busy; for anything
-- else all of them. A listener is told how many of its own subscribers to wake. Answers for each queue how many rows
-- found nobody. Listeners that somebody else is just waking are not waited for, and come last.
--
-- Called after the commit of what it tells of, not in it (but see `ring_at_commit`): a commit that notifies holds a lock
-- of the whole server while it is forced to the disk.
CREATE OR REPLACE FUNCTION mainstay.ring(topics text[], ns integer[], but_not text)
RETURNS TABLE (topic text, n integer)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan TO off SET plan_cache_mode TO force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    told record;
    found record;
    those text[];
    mine text[];
    most integer;
BEGIN
    RETURN QUERY
    SELECT g.topic, g.n FROM unnest(topics, ns) AS g (topic, n)
    WHERE g.topic LIKE 'queue:%'
        AND NOT EXISTS (SELECT FROM mainstay.listeners l WHERE l.topic = g.topic AND l.listener <> but_not);
    FOR told IN
        SELECT g.topic, g.n FROM unnest(topics, ns) AS g (topic, n)
        WHERE EXISTS (SELECT FROM mainstay.listeners l WHERE l.topic = g.topic AND l.listener <> but_not)
        ORDER BY g.topic
    LOOP
        those := '{}';
        mine := '{}';
        most := CASE WHEN told.topic LIKE 'queue:%' THEN told.n END;
        FOR found IN
            WITH free AS MATERIALIZED (
                SELECT l.listener FROM mainstay.listeners l
                WHERE l.topic = told.topic AND l.listener <> but_not FOR UPDATE SKIP LOCKED
            )
            SELECT l.listener, l.waiting, l.until_ms, f.listener IS NOT NULL AS locked
            FROM mainstay.listeners l LEFT JOIN free f ON f.listener = l.listener
            WHERE l.topic = told.topic AND l.listener <> but_not
            ORDER BY locked DESC, l.waiting DESC, random()
        LOOP
            EXIT WHEN cardinality(those) >= most;
            IF mainstay.hears(found.listener, found.until_ms) THEN
                those := those || found.listener;
                mine := CASE WHEN found.locked THEN mine || found.listener ELSE mine END;
            ELSIF found.locked THEN
                DELETE FROM mainstay.listeners l WHERE l.topic = told.topic AND l.listener = found.listener;
            END IF;
        END LOOP;
        IF cardinality(those) > 0 THEN
            UPDATE mainstay.listeners l SET waiting = false
            WHERE l.topic = told.topic AND l.listener = ANY (mine) AND l.waiting;
            PERFORM pg_notify(
                'mainstay_' || w.listener, ceil(coalesce(most, 0)::numeric / cardinality(those))::text || ' ' || told.topic
            ) FROM unnest(those) AS w (listener);
        ELSIF most IS NOT NULL THEN
            topic := told.topic;
            n := most;
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;

-- Wake one listener that waits, as part of the transaction that has what it waits for: it hears of it with the commit, a
-- round trip sooner than by `ring`. False: nobody waits, or another transaction does the same this moment. A commit that
-- notifies holds a lock of the whole server while it is forced to the disk, and nobody shall wait for that; still less
-- for a standby that is to confirm it, and may be away.
CREATE OR REPLACE FUNCTION mainstay.ring_at_commit(of_topic text, but_not text) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET enable_seqscan TO off SET plan_cache_mode TO force_generic_plan
AS $$
DECLARE
    found record;
BEGIN
    IF NOT EXISTS (SELECT FROM mainstay.listeners l WHERE l.topic = of_topic AND l.waiting AND l.listener <> but_not)
        OR current_setting('synchronous_commit') NOT IN ('off', 'local')
        AND current_setting('synchronous_standby_names') <> ''
        OR NOT pg_try_advisory_xact_lock(hashtextextended('at commit', 'mainstay.listeners'::regclass::oid::bigint))
    THEN
        RETURN false;
    END IF;
    SELECT l.listener, l.until_ms INTO found FROM mainstay.listeners l
    WHERE l.topic = of_topic AND l.waiting AND l.listener <> but_not
    ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF found.listener IS NULL OR NOT mainstay.hears(found.listener, found.until_ms) THEN
        RETURN false;
    END IF;
    UPDATE mainstay.listeners l SET waiting = false WHERE l.topic = of_topic AND l.listener = found.listener;
    PERFORM pg_notify('mainstay_' || found.listener, '1 ' || of_topic);
    RETURN true;
END
$$;
