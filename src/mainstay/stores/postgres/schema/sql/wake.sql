-- Whether a listener is connected: it holds a lock as long as its connection lives. A listener that vanished keeps its
-- lock until the server drops its connection, so a listener must also renew its row from time to time.
CREATE OR REPLACE FUNCTION mainstay.hears(of_listener text, until_ms bigint) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    SELECT until_ms > mainstay.clock(NULL)
        AND NOT pg_try_advisory_xact_lock_shared(hashtextextended(of_listener, 'mainstay.listeners'::regclass::oid::bigint))
$$;

-- Register a listener for these topics, or update whether it waits for them. Returns the topics that could not be
-- updated, because another transaction is waking the listener for them. The listener would hear nothing while it waits
-- for that lock, so it does not wait.
CREATE OR REPLACE FUNCTION mainstay.start_listening(me text, topics text[], waits boolean[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    done text[];
BEGIN
    WITH added AS (
        INSERT INTO mainstay.listeners AS l (topic, listener, waiting, until_ms)
        SELECT g.topic, me, g.waits, mainstay.clock(NULL) + 60000
        FROM unnest(topics, waits) AS g (topic, waits) ORDER BY g.topic
        ON CONFLICT (topic, listener) DO NOTHING RETURNING l.topic
    )
    SELECT coalesce(array_agg(a.topic), '{}') INTO done FROM added a;
    IF cardinality(done) < cardinality(topics) THEN
        WITH updated AS (
            UPDATE mainstay.listeners l SET waiting = g.waits, until_ms = mainstay.clock(NULL) + 60000
            FROM unnest(topics, waits) AS g (topic, waits), (
                SELECT d.topic FROM mainstay.listeners d
                WHERE d.listener = me AND d.topic = ANY (topics) AND d.topic <> ALL (done) FOR UPDATE SKIP LOCKED
            ) f
            WHERE l.listener = me AND l.topic = g.topic AND f.topic = g.topic RETURNING l.topic
        )
        SELECT done || coalesce(array_agg(u.topic), '{}') INTO done FROM updated u;
    END IF;
    RETURN ARRAY(SELECT t FROM unnest(topics) t WHERE t <> ALL (done));
END
$$;

-- Remove a listener from these topics. Returns those that could not be removed for the same reason.
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
    -- a row that is locked, because its listener is being woken, is renewed the next time
    UPDATE mainstay.listeners l SET until_ms = mainstay.clock(NULL) + 60000
    FROM (SELECT d.topic FROM mainstay.listeners d WHERE d.listener = me FOR UPDATE SKIP LOCKED) f
    WHERE l.listener = me AND l.topic = f.topic;
END
$$;

-- Wake listeners: for a queue at most as many as there are rows, waiting ones before busy ones; for any other topic
-- all of them. A notification has the number of subscribers that the listener should wake. Returns for each queue how
-- many rows found no listener. Locked listeners, which another transaction is waking, are not waited for and come
-- last.
--
-- Called after the commit of the rows, not in it (but see `ring_at_commit`): a commit with a notification holds a lock
-- of the whole server while it is forced to the disk.
CREATE OR REPLACE FUNCTION mainstay.ring(topics text[], ns integer[], but_not text)
RETURNS TABLE (topic text, n integer)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan TO off SET plan_cache_mode TO force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    target record;
    found record;
    chosen text[];
    mine text[];
    most integer;
BEGIN
    RETURN QUERY
    SELECT g.topic, g.n FROM unnest(topics, ns) AS g (topic, n)
    WHERE g.topic LIKE 'queue:%'
        AND NOT EXISTS (SELECT FROM mainstay.listeners l WHERE l.topic = g.topic AND l.listener <> but_not);
    FOR target IN
        SELECT g.topic, g.n FROM unnest(topics, ns) AS g (topic, n)
        WHERE EXISTS (SELECT FROM mainstay.listeners l WHERE l.topic = g.topic AND l.listener <> but_not)
        ORDER BY g.topic
    LOOP
        chosen := '{}';
        mine := '{}';
        most := CASE WHEN target.topic LIKE 'queue:%' THEN target.n END;
        FOR found IN
            WITH free AS MATERIALIZED (
                SELECT l.listener FROM mainstay.listeners l
                WHERE l.topic = target.topic AND l.listener <> but_not FOR UPDATE SKIP LOCKED
            )
            SELECT l.listener, l.waiting, l.until_ms, f.listener IS NOT NULL AS locked
            FROM mainstay.listeners l LEFT JOIN free f ON f.listener = l.listener
            WHERE l.topic = target.topic AND l.listener <> but_not
            ORDER BY locked DESC, l.waiting DESC, random()
        LOOP
            EXIT WHEN cardinality(chosen) >= most;
            IF mainstay.hears(found.listener, found.until_ms) THEN
                chosen := chosen || found.listener;
                mine := CASE WHEN found.locked THEN mine || found.listener ELSE mine END;
            ELSIF found.locked THEN
                DELETE FROM mainstay.listeners l WHERE l.topic = target.topic AND l.listener = found.listener;
            END IF;
        END LOOP;
        IF cardinality(chosen) > 0 THEN
            UPDATE mainstay.listeners l SET waiting = false
            WHERE l.topic = target.topic AND l.listener = ANY (mine) AND l.waiting;
            PERFORM pg_notify(
                'mainstay_' || w.listener, ceil(coalesce(most, 0)::numeric / cardinality(chosen))::text || ' ' || target.topic
            ) FROM unnest(chosen) AS w (listener);
        ELSIF most IS NOT NULL THEN
            topic := target.topic;
            n := most;
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;

-- Wake one waiting listener with the commit of the rows that it waits for, one round trip sooner than by `ring`. False
-- if no listener waits, or another transaction does the same at this moment. A commit with a notification holds a lock
-- of the whole server while it is forced to the disk, and no other transaction should wait for that; still less for a
-- standby that has to confirm it, and may be down.
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
