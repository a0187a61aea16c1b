-- Identifies one run of the server. A restart, a failover and a crash of a server process end every connection and free
-- every lock, which proves nothing about the sessions that held them. The first two change the start time, the last two
-- the mark: both empty an unlogged table.
CREATE OR REPLACE FUNCTION mainstay.incarnation(OUT name text, OUT since_ms bigint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    started timestamptz := pg_postmaster_start_time();
    marked bigint;
BEGIN
    SELECT i.mark, i.since_ms INTO name, marked FROM mainstay.incarnations i;
    IF NOT FOUND THEN
        INSERT INTO mainstay.incarnations (one, mark, since_ms)
        VALUES (true, gen_random_uuid()::text, mainstay.clock(NULL)) ON CONFLICT DO NOTHING;
        SELECT i.mark, i.since_ms INTO name, marked FROM mainstay.incarnations i;
    END IF;
    since_ms := greatest(marked, floor(extract(epoch FROM started) * 1000)::bigint);
    name := name || ' ' || extract(epoch FROM started)::text;
END
$$;

-- The advisory lock that a session's process holds. The oid of the table keeps schemas apart.
CREATE OR REPLACE FUNCTION mainstay.lock_of(session text) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT hashtextextended(session, 'mainstay.sessions'::regclass::oid::bigint)
$$;

-- The advisory lock of the process that beats for a session: its supervisor. While it is held, a free lock of the
-- session is not taken as its death: the supervisor itself notices the death of its engine at once.
CREATE OR REPLACE FUNCTION mainstay.witness_of(session text) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT hashtextextended('beats for ' || session, 'mainstay.sessions'::regclass::oid::bigint)
$$;

-- The advisory lock of the end of a session. A transaction that gives a row to the session shares it, so that the session
-- does not end before the row is committed. Beats do not need it: they never wait for such a transaction, which may
-- itself wait for a standby.
CREATE OR REPLACE FUNCTION mainstay.end_of(session text) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT hashtextextended('end of ' || session, 'mainstay.sessions'::regclass::oid::bigint)
$$;

-- Those of these sessions that are not open. The others stay open until the transaction ends.
CREATE OR REPLACE FUNCTION mainstay.not_open(of_sessions text[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(mainstay.end_of(g.id))
    FROM (SELECT DISTINCT g.id FROM unnest(of_sessions) AS g (id) ORDER BY g.id) g;
    -- a later statement, so that it sees the end that it waited for
    RETURN ARRAY(
        SELECT DISTINCT g.id FROM unnest(of_sessions) AS g (id)
        WHERE NOT EXISTS (SELECT FROM mainstay.sessions s WHERE s.id = g.id AND NOT s.dead)
    );
END
$$;

-- Open a session, or renew it. `has_lock`: the caller's process already holds its lock. For programs of the version
-- before.
CREATE OR REPLACE FUNCTION mainstay.open_session(
    session text, of_worker text, on_host text, with_pid integer, at_ms bigint, lease double precision,
    has_lock boolean, given_lease_ms bigint, under_pid integer
) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO mainstay.sessions AS s (
        id, worker, host, pid, started_ms, beat_ms, lease_s, locked, incarnation, supervisor
    )
    VALUES (
        session, of_worker, on_host, with_pid, at_ms, mainstay.clock(given_lease_ms), lease, has_lock,
        (SELECT i.name FROM mainstay.incarnation() i), under_pid
    )
    ON CONFLICT (id) DO UPDATE SET
        beat_ms = excluded.beat_ms, locked = excluded.locked, incarnation = excluded.incarnation, lost_ms = NULL;
END
$$;

-- The process of these sessions holds their locks again after its connection was lost.
CREATE OR REPLACE FUNCTION mainstay.locked_again(of_sessions text[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM FROM mainstay.sessions s WHERE s.id = ANY (of_sessions) ORDER BY s.id FOR UPDATE;
    UPDATE mainstay.sessions s SET
        locked = true, lost_ms = NULL, incarnation = (SELECT i.name FROM mainstay.incarnation() i)
    WHERE s.id = ANY (of_sessions) AND NOT s.dead;
END
$$;

-- Whether a session's process is gone: its lock was taken in this run of the server, but has been free for one second,
-- as has the lock of its supervisor. If sessions of other workers have lost theirs as well, it may be the network
-- between them and the server: then it takes two seconds. The first call only notes that the lock is free. A beat
-- removes the note; then the lease decides until the lock is held again. A locked row is not waited for: its session
-- is beating.
CREATE OR REPLACE FUNCTION mainstay.is_gone(session text, lease_now_ms bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    found_lost_ms bigint;
    given_by text;
    now_by text;
    of_worker text;
    on_host text;
BEGIN
    SELECT s.lost_ms, s.incarnation, s.worker, s.host INTO found_lost_ms, given_by, of_worker, on_host
    FROM mainstay.sessions s WHERE s.id = session AND s.locked AND NOT s.dead;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    SELECT i.name INTO now_by FROM mainstay.incarnation() i;
    -- shared, and for this transaction: a process that returns waits only for a moment, and other sweeps can look, too
    IF given_by <> now_by OR NOT pg_try_advisory_xact_lock_shared(mainstay.lock_of(session))
        OR NOT pg_try_advisory_xact_lock_shared(mainstay.witness_of(session))
    THEN
        IF found_lost_ms IS NOT NULL THEN
            PERFORM FROM mainstay.sessions s WHERE s.id = session FOR UPDATE SKIP LOCKED;
            IF FOUND THEN
                UPDATE mainstay.sessions s SET lost_ms = NULL WHERE s.id = session;
            END IF;
        END IF;
        RETURN false;
    END IF;
    IF found_lost_ms IS NULL THEN
        PERFORM FROM mainstay.sessions s WHERE s.id = session AND s.locked AND s.lost_ms IS NULL FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            UPDATE mainstay.sessions s SET lost_ms = lease_now_ms WHERE s.id = session;
        END IF;
        RETURN false;
    END IF;
    RETURN lease_now_ms - found_lost_ms >= CASE WHEN EXISTS (
        SELECT FROM mainstay.sessions s
        WHERE s.lost_ms IS NOT NULL AND NOT s.dead AND (s.worker, s.host) <> (of_worker, on_host)
    ) THEN 2000 ELSE 1000 END;
END
$$;

-- As `report`, but without waiting: locked rows (an open transaction awaits the job) are skipped, and returned as
-- `passed_over`.
CREATE OR REPLACE FUNCTION mainstay.report_at_once(
    row_id text[], row_session text[], row_token integer[], new_started_ms bigint[], new_progress text[],
    new_checkpoint bytea[], stopping_jobs text[], stopping_units text[], given_ms bigint
) RETURNS TABLE (id text, session text, token integer, passed_over boolean)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan TO off SET plan_cache_mode TO force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    free CONSTANT uuid[] := ARRAY(
        SELECT j.id FROM mainstay.jobs j WHERE j.id = ANY (row_id::uuid[]) FOR NO KEY UPDATE SKIP LOCKED
    );
BEGIN
    IF cardinality(free) < cardinality(row_id) THEN
        RETURN QUERY
        SELECT g.id, g.session, g.token, true FROM unnest(row_id, row_session, row_token) AS g (id, session, token)
        JOIN mainstay.jobs j ON j.id = g.id::uuid AND j.session = g.session AND j.token = g.token
        WHERE j.id <> ALL (free);
        SELECT array_agg(g.a), array_agg(g.b), array_agg(g.c), array_agg(g.d), array_agg(g.e), array_agg(g.f)
        INTO row_id, row_session, row_token, new_started_ms, new_progress, new_checkpoint
        FROM unnest(row_id, row_session, row_token, new_started_ms, new_progress, new_checkpoint)
            AS g (a, b, c, d, e, f)
        WHERE g.a::uuid = ANY (free);
    END IF;
    IF cardinality(row_id) > 0 THEN
        RETURN QUERY
        SELECT r.id, r.session, r.token, false FROM mainstay.report(
            row_id, row_session, row_token, new_started_ms, new_progress, new_checkpoint, stopping_jobs, stopping_units,
            given_ms
        ) r;
    END IF;
END
$$;

-- Keep sessions alive and record their reports, in one statement. Returns for each session whether it is known, the
-- jobs that it has to stop, who asked it to drain, and the rows that were assigned to it and are not confirmed. A last
-- row without a session has the jobs whose rows were locked: their reports have to be sent again.
CREATE OR REPLACE FUNCTION mainstay.beat(
    of_sessions text[], stopping text[], unconfirmed text[],
    row_id text[], row_session text[], row_token integer[], new_started_ms bigint[], new_progress text[],
    new_checkpoint bytea[], stopping_jobs text[], stopping_units text[], given_ms bigint, given_lease_ms bigint
) RETURNS TABLE (session text, known boolean, cancelling text[], draining_by text, assigned text[])
LANGUAGE plpgsql VOLATILE
SET enable_seqscan TO off SET plan_cache_mode TO force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    passed_over text[] := '{}';
BEGIN
    PERFORM FROM mainstay.sessions s WHERE s.id = ANY (of_sessions) ORDER BY s.id FOR UPDATE;
    UPDATE mainstay.sessions s SET
        beat_ms = mainstay.clock(given_lease_ms), locked = s.locked AND s.lost_ms IS NULL, lost_ms = NULL
    WHERE s.id = ANY (of_sessions) AND NOT s.dead;
    IF cardinality(row_id) > 0 THEN
        passed_over := ARRAY(
            SELECT r.id FROM mainstay.report_at_once(
                row_id, row_session, row_token, new_started_ms, new_progress, new_checkpoint, stopping_jobs,
                stopping_units, given_ms
            ) r WHERE r.passed_over
        );
    END IF;
    RETURN QUERY
    SELECT g.id, s.id IS NOT NULL, coalesce(h.stopping, '{}'),
        CASE WHEN s.draining_ms IS NOT NULL THEN s.draining_by END, coalesce(h.unconfirmed, '{}')
    FROM unnest(of_sessions) WITH ORDINALITY AS g (id, place)
    LEFT JOIN mainstay.sessions s ON s.id = g.id AND NOT s.dead
    LEFT JOIN LATERAL (
        SELECT array_agg(j.id::text ORDER BY j.id) FILTER (WHERE j.status = ANY (stopping)) AS stopping,
            array_agg(j.id::text ORDER BY j.id) FILTER (WHERE j.status = ANY (unconfirmed)) AS unconfirmed
        FROM mainstay.jobs j WHERE j.session = s.id AND j.status = ANY (stopping || unconfirmed)
    ) h ON true
    ORDER BY g.place;
    IF cardinality(passed_over) > 0 THEN
        RETURN QUERY SELECT NULL::text, false, passed_over, NULL::text, '{}'::text[];
    END IF;
END
$$;

-- For programs of release 5, which do not ask for what was assigned.
CREATE OR REPLACE FUNCTION mainstay.beat(
    of_sessions text[], stopping text[],
    row_id text[], row_session text[], row_token integer[], new_started_ms bigint[], new_progress text[],
    new_checkpoint bytea[], stopping_jobs text[], stopping_units text[], given_ms bigint, given_lease_ms bigint
) RETURNS TABLE (session text, known boolean, cancelling text[], draining_by text)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN QUERY
    SELECT b.session, b.known, b.cancelling, b.draining_by FROM mainstay.beat(
        of_sessions, stopping, '{}', row_id, row_session, row_token, new_started_ms, new_progress, new_checkpoint,
        stopping_jobs, stopping_units, given_ms, given_lease_ms
    ) b;
END
$$;

-- Ask sessions to drain; returns the live ones. The first caller stays on record.
CREATE OR REPLACE FUNCTION mainstay.drain(of_sessions text[], asked_by text, given_ms bigint) RETURNS SETOF text
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM FROM mainstay.sessions s WHERE s.id = ANY (of_sessions) ORDER BY s.id FOR UPDATE;
    UPDATE mainstay.sessions s SET draining_ms = mainstay.clock(given_ms), draining_by = asked_by
    WHERE s.id = ANY (of_sessions) AND NOT s.dead AND s.draining_ms IS NULL;
    RETURN QUERY SELECT s.id FROM mainstay.sessions s WHERE s.id = ANY (of_sessions) AND NOT s.dead;
END
$$;

-- Declare sessions dead whose lease is over or whose process is gone, and delete dead sessions that hold no rows.
-- Silence counts from the start of this run of the server: while it was down, no beat could arrive. A standing session is
-- not judged: it has no lease and no lock.
--
-- It waits for no lock and locks no live session: rows that a beat or another sweep has locked are skipped. A call that
-- was sent (`sent_ms`) two or more seconds ago judges nothing: the server or the caller was stopped, and beats may be
-- queued behind the call.
CREATE OR REPLACE FUNCTION mainstay.bury(given_lease_ms bigint, sent_ms bigint) RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    lease_now_ms bigint := mainstay.clock(given_lease_ms);
    listening_ms bigint := 0;
    found record;
    silent text[] := '{}';
    gone text[] := '{}';
    buried text[];
BEGIN
    IF given_lease_ms IS NULL THEN
        IF lease_now_ms - sent_ms >= 2000 THEN
            RETURN '{}';
        END IF;
        SELECT i.since_ms INTO listening_ms FROM mainstay.incarnation() i;
    END IF;
    FOR found IN
        SELECT s.id, s.beat_ms, s.lease_s FROM mainstay.sessions s WHERE NOT s.dead AND NOT s.standing ORDER BY s.id
    LOOP
        IF lease_now_ms - greatest(found.beat_ms, listening_ms) > found.lease_s * 1000 THEN
            silent := silent || found.id;
        ELSIF mainstay.is_gone(found.id, lease_now_ms) THEN
            gone := gone || found.id;
        END IF;
    END LOOP;
    IF cardinality(silent || gone) > 0 THEN
        -- judged again with the rows locked: a beat may have come since
        buried := ARRAY(
            SELECT s.id FROM mainstay.sessions s
            WHERE s.id = ANY (silent || gone) AND NOT s.dead AND NOT s.standing AND (
                lease_now_ms - greatest(s.beat_ms, listening_ms) > s.lease_s * 1000
                OR s.id = ANY (gone) AND s.locked AND s.lost_ms IS NOT NULL
            )
            ORDER BY s.id FOR UPDATE SKIP LOCKED
        );
        -- one that is being given a row is judged by the next sweep
        buried := ARRAY(SELECT g.id FROM unnest(buried) AS g (id) WHERE pg_try_advisory_xact_lock(mainstay.end_of(g.id)));
        UPDATE mainstay.sessions s SET dead = true WHERE s.id = ANY (buried);
        -- now, because their rows may be deleted by the time another session asks for the leadership
        PERFORM mainstay.depose(buried);
    END IF;
    PERFORM mainstay.forget_dead();
    RETURN coalesce(buried, '{}');
END
$$;

-- For programs of the version before, which do not pass the time of their call.
CREATE OR REPLACE FUNCTION mainstay.bury(given_lease_ms bigint) RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN mainstay.bury(given_lease_ms, NULL);
END
$$;

-- End the leadership of these sessions. If an open transaction of theirs has locked it, it ends when its time is over.
CREATE OR REPLACE FUNCTION mainstay.depose(of_sessions text[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE mainstay.leaders l SET until_ms = 0
    FROM (SELECT d.name FROM mainstay.leaders d WHERE d.holder = ANY (of_sessions) FOR UPDATE SKIP LOCKED) f
    WHERE l.name = f.name;
END
$$;

CREATE OR REPLACE FUNCTION mainstay.forget_dead() RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    DELETE FROM mainstay.sessions s
    USING (SELECT d.id FROM mainstay.sessions d WHERE d.dead FOR UPDATE SKIP LOCKED) f
    WHERE s.id = f.id AND NOT EXISTS (SELECT FROM mainstay.jobs j WHERE j.session = s.id);
    DELETE FROM mainstay.claims c
    USING (
        SELECT d.session FROM mainstay.claims d
        WHERE NOT EXISTS (SELECT FROM mainstay.sessions s WHERE s.id = d.session) FOR UPDATE OF d SKIP LOCKED
    ) f
    WHERE c.session = f.session;
    DELETE FROM mainstay.marks m
    USING (
        SELECT d.session, d.mark FROM mainstay.marks d
        WHERE NOT EXISTS (SELECT FROM mainstay.sessions s WHERE s.id = d.session) FOR UPDATE OF d SKIP LOCKED
    ) f
    WHERE m.session = f.session AND m.mark = f.mark;
END
$$;

-- End a session. Its row stays, marked dead, until no job names it.
CREATE OR REPLACE FUNCTION mainstay.close_session(session text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(mainstay.end_of(session));
    UPDATE mainstay.sessions s SET dead = true WHERE s.id = session;
    PERFORM mainstay.depose(ARRAY[session]);
    PERFORM mainstay.forget_dead();
END
$$;

-- Take, keep or read the leadership. Another session takes over when its time is over, or at once when its holder is
-- known to be dead. An unknown holder leads until its time is over.
CREATE OR REPLACE FUNCTION mainstay.lead(
    lead_name text, session text, ttl_ms bigint, given_lease_ms bigint,
    OUT holder text, OUT epoch bigint, OUT until_ms bigint
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    lease_now_ms bigint := mainstay.clock(given_lease_ms);
    held_by text;
    held_epoch bigint;
    held_until_ms bigint;
    suspect text;
    is_gone boolean;
BEGIN
    -- before the leader's row is locked, because a sweep locks rows of sessions first
    SELECT l.holder INTO suspect FROM mainstay.leaders l
    WHERE l.name = lead_name AND l.holder <> session AND l.until_ms > lease_now_ms;
    is_gone := FOUND AND mainstay.is_gone(suspect, lease_now_ms);
    INSERT INTO mainstay.leaders AS l (name, holder, epoch, until_ms)
    VALUES (lead_name, session, 1, lease_now_ms + ttl_ms) ON CONFLICT (name) DO NOTHING
    RETURNING l.holder, l.epoch, l.until_ms INTO holder, epoch, until_ms;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT l.holder, l.epoch, l.until_ms INTO held_by, held_epoch, held_until_ms
    FROM mainstay.leaders l WHERE l.name = lead_name FOR UPDATE;
    -- it may have waited for the lock, and its time goes from when it has it
    lease_now_ms := mainstay.clock(given_lease_ms);
    -- one that ends later than its holder can have asked for is not waited for: there would be no leader until then
    IF held_by <> session AND held_until_ms > lease_now_ms AND held_until_ms <= lease_now_ms + 2 * ttl_ms
        AND NOT EXISTS (SELECT FROM mainstay.sessions s WHERE s.id = held_by AND s.dead)
        AND NOT (is_gone AND held_by = suspect)
    THEN
        holder := held_by;
        epoch := held_epoch;
        until_ms := held_until_ms;
        RETURN;
    END IF;
    UPDATE mainstay.leaders l SET
        holder = session, epoch = l.epoch + (l.holder <> session)::integer, until_ms = lease_now_ms + ttl_ms
    WHERE l.name = lead_name
    RETURNING l.holder, l.epoch, l.until_ms INTO holder, epoch, until_ms;
END
$$;

-- Whether an epoch still lasts. Its row is locked, so that it lasts until the transaction ends.
CREATE OR REPLACE FUNCTION mainstay.leads(lead_name text, lead_holder text, lead_epoch bigint, given_lease_ms bigint)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM FROM mainstay.leaders l
    WHERE l.name = lead_name AND l.holder = lead_holder AND l.epoch = lead_epoch
        AND l.until_ms > mainstay.clock(given_lease_ms)
    FOR SHARE;
    RETURN FOUND;
END
$$;
