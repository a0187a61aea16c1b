-- Changes of different rows that need nobody's judgement, in one round trip: all are written, or none. Answers with
--   ''         written, and counted
--   leader     the epoch that the caller leads under is over
--   misfit     one of the rows is not what its caller saw, or a unique key has a new holder
--   waiters    somebody waited for one of them and must move on: that is judged elsewhere
--
-- `settled` are the ids of the rows that settle; all of them succeed, or `all_well` is false. Who waits for others
-- besides and sees success waits on, so here the edge is only crossed off.
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
BEGIN
    IF lead_name IS NOT NULL AND NOT mainstay.leads(lead_name, lead_holder, lead_epoch, given_lease_ms) THEN
        RETURN 'leader';
    END IF;
    -- a look beforehand saves the undoing; by the time it matters it may be out of date
    waiters := ARRAY(SELECT DISTINCT w.job_id FROM mainstay.waits w WHERE w.on_id = ANY (ended) AND NOT w.done);
    IF cardinality(waiters) > 0 AND (NOT all_well OR EXISTS (
        SELECT FROM unnest(waiters) AS g (id) WHERE NOT EXISTS (
            SELECT FROM mainstay.waits w WHERE w.job_id = g.id AND NOT w.done AND w.on_id <> ALL (ended)
        )
    )) THEN
        RETURN 'waiters';
    END IF;
    BEGIN
        IF mainstay.write_changes(
            row_id, seen_version, seen_progress_ms, seen_head, seen_session, seen_claimed_ms, new_priority, new_status,
            new_reason, new_version, new_token, new_session, new_starts, new_failures, new_crashes, new_releases,
            new_losses,
            new_changed_ms, new_due_ms, new_claimed_ms, new_started_ms, new_settled_ms, new_expires_ms,
            new_extra_ms, new_error, new_result, new_head, new_lane, new_rank,
            event_job_id, event_seq, event_at_ms, event_source, event_to, event_actor, event_reason, event_token,
            event_flag, event_details, event_digest
        ) <> cardinality(row_id) THEN
            RAISE EXCEPTION USING ERRCODE = 'MS001', MESSAGE = 'a row is not what its caller saw';
        END IF;
        IF cardinality(ended) > 0 THEN
            PERFORM FROM mainstay.cross_off(settled) c WHERE NOT (c.more AND all_well);
            IF FOUND THEN
                RAISE EXCEPTION USING ERRCODE = 'MS002', MESSAGE = 'who waited for it must move on';
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
