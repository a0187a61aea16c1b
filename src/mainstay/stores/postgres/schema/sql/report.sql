-- When a running job overruns: run timeout or stall, whichever is first, plus its grace period. `model.expiry` in SQL.
-- If the options cannot be read it is `unless`: one damaged row must not block the other reports of its holder.
CREATE OR REPLACE FUNCTION mainstay.overruns_ms(
    of_options text, started_ms bigint, extra_ms bigint, progress_ms bigint, unless bigint
) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    options json;
BEGIN
    IF started_ms IS NULL THEN
        RETURN NULL;
    END IF;
    options := of_options::json;
    RETURN least(
        started_ms + extra_ms + trunc((options ->> 1)::double precision * 1000)::bigint,
        greatest(started_ms, coalesce(progress_ms, 0)) + trunc((options ->> 2)::double precision * 1000)::bigint
    ) + trunc((options ->> 4)::double precision * 1000)::bigint;
EXCEPTION
    WHEN data_exception THEN
        RETURN unless;
END
$$;

-- Record reports of holders on different rows; returns the claims that are still held. Changes no version and writes no
-- event. In a state of `stopping`, `expires_ms` is the end of the grace period, which progress does not extend.
CREATE OR REPLACE FUNCTION mainstay.report(
    row_id text[], row_session text[], row_token integer[], new_started_ms bigint[], new_progress text[],
    new_checkpoint bytea[], stopping_jobs text[], stopping_units text[], given_ms bigint
) RETURNS TABLE (id text, session text, token integer)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan TO off SET plan_cache_mode TO force_generic_plan SET jit TO off
AS $$
#variable_conflict use_column
DECLARE
    now_ms bigint := mainstay.clock(given_ms);
BEGIN
    RETURN QUERY
    UPDATE mainstay.jobs j SET
        started_ms = coalesce(j.started_ms, g.started_ms),
        starts = j.starts + (j.started_ms IS NULL AND g.started_ms IS NOT NULL)::integer,
        progress = coalesce(g.progress, j.progress),
        progress_ms = CASE WHEN g.progress IS NULL THEN j.progress_ms ELSE now_ms END,
        checkpoint = coalesce(g.checkpoint, j.checkpoint),
        expires_ms = CASE
            WHEN j.status = ANY (CASE WHEN j.parent IS NULL THEN stopping_jobs ELSE stopping_units END) THEN j.expires_ms
            WHEN g.progress IS NULL AND (g.started_ms IS NULL OR j.started_ms IS NOT NULL) THEN j.expires_ms
            ELSE mainstay.overruns_ms(
                j.options, coalesce(j.started_ms, g.started_ms), j.extra_ms,
                CASE WHEN g.progress IS NULL THEN j.progress_ms ELSE now_ms END, j.expires_ms
            )
        END
    FROM unnest(
        row_id::uuid[], row_session, row_token, new_started_ms, new_progress, new_checkpoint
    ) AS g (id, session, token, started_ms, progress, checkpoint)
    WHERE j.id = g.id AND j.session = g.session AND j.token = g.token
    RETURNING j.id::text, j.session, j.token;
END
$$;
