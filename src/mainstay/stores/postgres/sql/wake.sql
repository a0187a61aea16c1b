-- Whether a listener hears anything: it holds a lock for as long as its connection lives. One that vanished without a
-- word keeps its lock until the server gives its connection up; for that it must say now and then that it is there.
CREATE OR REPLACE FUNCTION mainstay.hears(of_listener text, until_ms bigint) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    SELECT until_ms > mainstay.clock(NULL)
        AND NOT pg_try_advisory_xact_lock_shared(hashtextextended(of_listener, 'mainstay.listeners'::regclass::oid::bigint))
$$;

-- Have a listener hear of these topics, or say anew whether it waits for them.
CREATE OR REPLACE FUNCTION mainstay.listen(me text, topics text[], waits boolean[]) RETURNS void
LANGUAGE sql VOLATILE AS $$
    INSERT INTO mainstay.listeners AS l (topic, listener, waiting, until_ms)
    SELECT g.topic, me, g.waits, mainstay.clock(NULL) + 60000
    FROM unnest(topics, waits) AS g (topic, waits) ORDER BY g.topic
    ON CONFLICT (topic, listener) DO UPDATE SET waiting = excluded.waiting, until_ms = excluded.until_ms
$$;

CREATE OR REPLACE FUNCTION mainstay.unlisten(me text, topics text[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM FROM mainstay.listeners l WHERE l.listener = me AND l.topic = ANY (topics) ORDER BY l.topic FOR UPDATE;
    DELETE FROM mainstay.listeners l WHERE l.listener = me AND l.topic = ANY (topics);
END
$$;

CREATE OR REPLACE FUNCTION mainstay.listens_still(me text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM FROM mainstay.listeners l WHERE l.listener = me ORDER BY l.topic FOR UPDATE;
    UPDATE mainstay.listeners l SET until_ms = mainstay.clock(NULL) + 60000 WHERE l.listener = me;
END
$$;

-- Wake listeners: for a queue at most as many as there are rows, those who wait before those who are busy; for anything
-- else all of them. A listener is told how many of its own subscribers to wake. Answers for each queue how many rows
-- found nobody.
--
-- Called after the commit of what it tells of, never in it: a commit that notifies holds a lock of the whole server
-- while it is forced to the disk.
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
        most := CASE WHEN told.topic LIKE 'queue:%' THEN told.n END;
        FOR found IN
            SELECT c.* FROM (
                SELECT l.listener, l.waiting, l.until_ms FROM mainstay.listeners l
                WHERE l.topic = told.topic AND l.listener <> but_not ORDER BY l.listener FOR UPDATE
            ) c ORDER BY c.waiting DESC, random()
        LOOP
            EXIT WHEN cardinality(those) >= most;
            IF mainstay.hears(found.listener, found.until_ms) THEN
                those := those || found.listener;
            ELSE
                DELETE FROM mainstay.listeners l WHERE l.topic = told.topic AND l.listener = found.listener;
            END IF;
        END LOOP;
        IF cardinality(those) > 0 THEN
            UPDATE mainstay.listeners l SET waiting = false
            WHERE l.topic = told.topic AND l.listener = ANY (those) AND l.waiting;
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
