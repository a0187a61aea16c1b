-- Write changes of different rows in one round trip: all of them, or none. Each is written if its row is still as its
-- caller saw it. Returns
--   ''         written, and counted
--   leader     the epoch that the caller leads under is over
--   session    a row is given to a session that is not open
--   misfit     a row is not as its caller saw it, or another job has taken a unique key
--   waiters    a job waited for one of them and must move on: the caller decides how
--
-- The version is the compare-and-swap, and no counter ever shrinks. A server that crashed, or a standby that took over,
-- may have lost a claim and given its version to another one. So it must be the same claim (session and time), or the
-- same last event.
--
-- An open row gets the event of its claim here, from the row as it was: the parts of one statement see one snapshot.
--
-- A column that is the same in all rows may come as a single value, except `row_id`. `settled` are the ids of the rows
-- that settle; `all_well`: all of them succeed. A job that waits for other jobs, too, keeps waiting after a success, so
-- its edge is only closed.
CREATE OR REPLACE FUNCTION mainstay.apply_plain(
    row_id text[], seen_version integer[], seen_progress_ms bigint[], seen_head bytea[], seen_session text[],
    seen_claimed_ms bigint[], new_priority integer[], new_status text[], new_reason text[], new_version integer[],
    new_token integer[], new_session text[],
    new_starts integer[], new_failures integer[], new_crashes integer[], new_releases integer[],
    new_losses integer[], new_changed_ms bigint[], new_due_ms bigint[], new_claimed_ms bigint[],
    new_started_ms bigint[], new_settled_ms bigint[], new_expires_ms bigint[], new_extra_ms bigint[],
    new_error text[], new_result bytea[], new_head bytea[], new_lane smallint[], new_rank bigint[],
    event_job_id text[], event_seq integer[], event_at_ms bigint[], event_source text[], event_to text[],
    event_actor text[], event_reason text[], event_token integer[], event_flag text[], event_details text[],
    event_digest bytea[],
    settled text[], all_well boolean, lead_name text, lead_holder text, lead_epoch bigint,
    count_queue text[], count_status text[], count_n bigint[], entered text[], entered_n bigint[],
    given_ms bigint, given_lease_ms bigint
) RETURNS text
LANGUAGE plpgsql VOLATILE
SET enable_seqscan TO off SET plan_cache_mode TO force_generic_plan SET jit TO off
AS $$
DECLARE
    now_ms bigint := mainstay.clock(given_ms);
    ended uuid[] := settled;
    waiters uuid[];
    size integer := cardinality(row_id);
    -- no two events have both in common
    events integer := greatest(cardinality(event_job_id), cardinality(event_seq));
    written bigint;
BEGIN
    IF lead_name IS NOT NULL AND NOT mainstay.leads(lead_name, lead_holder, lead_epoch, given_lease_ms) THEN
        RETURN 'leader';
    END IF;
    IF array_remove(new_session, NULL) <> '{}' AND mainstay.not_open(ARRAY(
        SELECT DISTINCT g.given
        FROM unnest(mainstay.spread(new_session, size), mainstay.spread(seen_session, size)) AS g (given, seen)
        WHERE g.given IS NOT NULL AND g.given IS DISTINCT FROM g.seen
    )) <> '{}' THEN
        RETURN 'session';
    END IF;
    -- this look saves an undo; it may be out of date by the time of the write, which looks again
    waiters := ARRAY(SELECT DISTINCT w.job_id FROM mainstay.waits w WHERE w.on_id = ANY (ended) AND NOT w.done);
    IF cardinality(waiters) > 0 AND (NOT all_well OR EXISTS (
        SELECT FROM unnest(waiters) AS g (id) WHERE NOT EXISTS (
            SELECT FROM mainstay.waits w WHERE w.job_id = g.id AND NOT w.done AND w.on_id <> ALL (ended)
        )
    )) THEN
        RETURN 'waiters';
    END IF;
    BEGIN
        WITH open_claims AS (
            INSERT INTO mainstay.events (job_id, seq, at_ms, source, "to", actor, reason, token, flag, details, digest)
            SELECT j.id, j.version, coalesce(j.claimed_ms, 0), 'pending', 'running', coalesce(j.session, ''), NULL,
                j.token, '', NULL, g.head
            FROM unnest(row_id::uuid[], mainstay.spread(seen_version, size), mainstay.spread(seen_head, size))
                AS g (id, version, head)
            JOIN mainstay.jobs j ON j.id = g.id AND j.version = g.version AND j.open
        ), changed AS (
            UPDATE mainstay.jobs j SET
                open = false,
                priority = g.priority, status = g.status, reason = g.reason, version = g.version, token = g.token,
                session = g.session, starts = g.starts, failures = g.failures, crashes = g.crashes,
                releases = g.releases, losses = g.losses, changed_ms = g.changed_ms, due_ms = g.due_ms,
                claimed_ms = g.claimed_ms, started_ms = g.started_ms, settled_ms = g.settled_ms,
                expires_ms = g.expires_ms, extra_ms = g.extra_ms, error = g.error, result = g.result, head = g.head,
                lane = g.lane, rank = g.rank
            FROM unnest(
                row_id::uuid[], mainstay.spread(seen_version, size), mainstay.spread(seen_progress_ms, size),
                mainstay.spread(seen_head, size), mainstay.spread(seen_session, size),
                mainstay.spread(seen_claimed_ms, size),
                mainstay.spread(new_priority, size), mainstay.spread(new_status, size), mainstay.spread(new_reason, size),
                mainstay.spread(new_version, size), mainstay.spread(new_token, size), mainstay.spread(new_session, size),
                mainstay.spread(new_starts, size), mainstay.spread(new_failures, size), mainstay.spread(new_crashes, size),
                mainstay.spread(new_releases, size), mainstay.spread(new_losses, size),
                mainstay.spread(new_changed_ms, size), mainstay.spread(new_due_ms, size),
                mainstay.spread(new_claimed_ms, size), mainstay.spread(new_started_ms, size),
                mainstay.spread(new_settled_ms, size), mainstay.spread(new_expires_ms, size),
                mainstay.spread(new_extra_ms, size), mainstay.spread(new_error, size), mainstay.spread(new_result, size),
                mainstay.spread(new_head, size), mainstay.spread(new_lane, size), mainstay.spread(new_rank, size)
            ) AS g (
                row_id, seen_version, seen_progress_ms, seen_head, seen_session, seen_claimed_ms,
                priority, status, reason, version, token, session, starts, failures, crashes, releases, losses, changed_ms,
                due_ms, claimed_ms, started_ms, settled_ms, expires_ms, extra_ms, error, result, head,
                lane, rank
            )
            WHERE j.id = g.row_id AND j.version = g.seen_version
                AND CASE WHEN j.open
                    THEN (j.session, j.claimed_ms) IS NOT DISTINCT FROM (g.seen_session, g.seen_claimed_ms)
                    ELSE j.head = g.seen_head
                END
                AND j.token <= g.token AND j.starts <= g.starts AND j.failures <= g.failures
                AND j.crashes <= g.crashes AND j.releases <= g.releases AND j.losses <= g.losses
                AND (g.seen_progress_ms IS NULL OR coalesce(j.progress_ms, -1) = g.seen_progress_ms)
            RETURNING 1
        )
        SELECT count(*) INTO written FROM changed;
        IF written < size THEN
            RAISE EXCEPTION USING ERRCODE = 'MS001', MESSAGE = 'a row is not as its caller saw it';
        END IF;
        INSERT INTO mainstay.events (job_id, seq, at_ms, source, "to", actor, reason, token, flag, details, digest)
        SELECT * FROM unnest(
            mainstay.spread(event_job_id, events)::uuid[], mainstay.spread(event_seq, events),
            mainstay.spread(event_at_ms, events), mainstay.spread(event_source, events), mainstay.spread(event_to, events),
            mainstay.spread(event_actor, events), mainstay.spread(event_reason, events),
            mainstay.spread(event_token, events), mainstay.spread(event_flag, events),
            mainstay.spread(event_details, events), mainstay.spread(event_digest, events)
        );
        IF 1 = ANY (new_lane) THEN
            PERFORM mainstay.lower_heads(array_agg(j.queue), array_agg(j.rank))
            FROM mainstay.jobs j WHERE j.id = ANY (row_id::uuid[]) AND j.lane + 0 = 1;
        END IF;
        IF cardinality(ended) > 0 THEN
            PERFORM FROM mainstay.cross_off(settled) c WHERE NOT (c.more AND all_well);
            IF FOUND THEN
                RAISE EXCEPTION USING ERRCODE = 'MS002', MESSAGE = 'a job that waited for it must move on';
            END IF;
        END IF;
    EXCEPTION
        WHEN SQLSTATE 'MS001' OR unique_violation THEN
            RETURN 'misfit';
        WHEN SQLSTATE 'MS002' THEN
            RETURN 'waiters';
    END;
    PERFORM mainstay.count_up(count_queue, count_status, count_n, entered, entered_n, now_ms);
    RETURN '';
END
$$;
