-- Insert jobs with their events, keys, tags and waits, or nothing. No rows are returned if all were written. Otherwise
-- nothing was, and each row is one obstacle:
--   key      a live idempotency key `at` (place in key_name) is held by job `id`, for `content`
--   unique   the unique key `at` (place in unique_name) is held by the unsettled job `id`
--   parent   the parent `id` does not exist
--   after    job `id`, one of `awaited`, does not exist
--   over     job `id`, which one of them waits for, is settled, or deleted with only its key left. The new job must be
--            judged in the same transaction, so the caller calls again with `judged`
-- An insert that meets an uncommitted key of another transaction waits for its end (up to lock_timeout). If the key
-- stays, it gets a unique violation; then the caller reads again.
--
-- A column of jobs or events that is the same in all rows may come as a single value, except `new_id`.
--
-- Awaited jobs and parents are locked FOR SHARE before they are read. So an insert waits for a settle in flight and
-- then sees it, and a later settle waits for these edges and units and sees them.
CREATE OR REPLACE FUNCTION mainstay.insert_jobs(
    new_id text[], new_kind text[], new_name text[], new_queue text[], new_parent text[], new_unit text[],
    new_group text[], new_options text[], new_key text[], new_unique_key text[], new_concurrency_key text[],
    new_priority integer[], new_status text[], new_reason text[], new_version integer[], new_token integer[],
    new_session text[], new_starts integer[], new_failures integer[], new_crashes integer[],
    new_releases integer[], new_losses integer[], new_created_ms bigint[], new_changed_ms bigint[],
    new_due_ms bigint[], new_claimed_ms bigint[], new_started_ms bigint[], new_settled_ms bigint[],
    new_expires_ms bigint[], new_extra_ms bigint[], new_error text[], new_result bytea[], new_head bytea[],
    new_trimmed_seq integer[], new_trimmed_digest bytea[], new_lane smallint[], new_rank bigint[],
    new_progress text[], new_progress_ms bigint[], new_checkpoint bytea[], new_payload bytea[],
    event_job_id text[], event_seq integer[], event_at_ms bigint[], event_source text[], event_to text[],
    event_actor text[], event_reason text[], event_token integer[], event_flag text[], event_details text[],
    event_digest bytea[],
    key_job_id text[], key_scope text[], key_name text[], key_content bytea[], key_until_ms bigint[],
    unique_name text[], parents text[], tag_job_id text[], tag_name text[],
    wait_job_id text[], wait_place integer[], wait_on text[], awaited text[], judged boolean,
    count_queue text[], count_status text[], count_n bigint[], entered text[], entered_n bigint[],
    given_ms bigint
) RETURNS TABLE (what text, at bigint, id text, content bytea)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan TO off SET plan_cache_mode TO force_generic_plan SET jit TO off
AS $$
#variable_conflict use_column
DECLARE
    now_ms bigint := mainstay.clock(given_ms);
    clear boolean := true;
    size integer := cardinality(new_id);
    -- no two events have both in common
    events integer := greatest(cardinality(event_job_id), cardinality(event_seq));
BEGIN
    IF cardinality(key_name) > 0 THEN
        RETURN QUERY
        SELECT 'key', g.at, k.job_id::text, k.content
        FROM unnest(key_scope, key_name) WITH ORDINALITY AS g (scope, name, at)
        JOIN mainstay.keys k ON k.scope = g.scope AND k.name = g.name AND k.until_ms > now_ms;
        clear := clear AND NOT FOUND;
    END IF;
    IF cardinality(unique_name) > 0 THEN
        RETURN QUERY
        SELECT 'unique', g.at, j.id::text, NULL::bytea
        FROM unnest(unique_name) WITH ORDINALITY AS g (name, at)
        JOIN mainstay.jobs j ON j.unique_key = g.name AND j.settled_ms IS NULL;
        clear := clear AND NOT FOUND;
    END IF;
    IF cardinality(parents) > 0 THEN
        PERFORM FROM mainstay.jobs j WHERE j.id = ANY (parents::uuid[]) ORDER BY j.id FOR SHARE;
        RETURN QUERY
        SELECT 'parent', g.at, g.id::text, NULL::bytea
        FROM unnest(parents::uuid[]) WITH ORDINALITY AS g (id, at)
        WHERE NOT EXISTS (SELECT FROM mainstay.jobs j WHERE j.id = g.id);
        clear := clear AND NOT FOUND;
    END IF;
    IF cardinality(wait_on) > 0 THEN
        PERFORM FROM mainstay.jobs j WHERE j.id = ANY (wait_on::uuid[]) ORDER BY j.id FOR SHARE;
        RETURN QUERY
        SELECT CASE WHEN j.id IS NULL AND g.id = ANY (awaited::uuid[]) THEN 'after' ELSE 'over' END,
            0::bigint, g.id::text, NULL::bytea
        FROM (SELECT unnest(wait_on::uuid[]) EXCEPT SELECT unnest(new_id::uuid[])) AS g (id)
        LEFT JOIN mainstay.jobs j ON j.id = g.id
        WHERE (j.id IS NULL AND g.id = ANY (awaited::uuid[]))
            OR ((j.id IS NULL OR j.settled_ms IS NOT NULL) AND NOT judged);
        clear := clear AND NOT FOUND;
    END IF;
    IF NOT clear THEN
        RETURN;
    END IF;

    IF cardinality(key_name) > 0 THEN
        DELETE FROM mainstay.keys k USING unnest(key_scope, key_name) AS g (scope, name)
        WHERE k.scope = g.scope AND k.name = g.name AND k.until_ms <= now_ms;
        -- in order, to prevent a deadlock of two batches with the same keys
        INSERT INTO mainstay.keys (job_id, scope, name, content, until_ms)
        SELECT g.* FROM unnest(key_job_id::uuid[], key_scope, key_name, key_content, key_until_ms)
            AS g (job_id, scope, name, content, until_ms)
        ORDER BY g.scope, g.name;
    END IF;
    IF cardinality(unique_name) > 0 THEN
        -- in order, for the same reason; for all jobs, the sort would make an insert of a hundred 12 % slower
        INSERT INTO mainstay.jobs (
            id, kind, name, queue, parent, unit, "group", options, key, unique_key, concurrency_key, priority,
            status, reason, version, token, session, starts, failures, crashes, releases, losses, created_ms,
            changed_ms, due_ms, claimed_ms, started_ms, settled_ms, expires_ms, extra_ms, error, result, head,
            trimmed_seq, trimmed_digest, lane, rank, progress, progress_ms, checkpoint, payload, n
        )
        SELECT * FROM (
            SELECT g.*, nextval('mainstay.jobs_n_seq') FROM unnest(
                new_id::uuid[], mainstay.spread(new_kind, size), mainstay.spread(new_name, size),
                mainstay.spread(new_queue, size), mainstay.spread(new_parent, size)::uuid[],
                mainstay.spread(new_unit, size), mainstay.spread(new_group, size), mainstay.spread(new_options, size),
                mainstay.spread(new_key, size), mainstay.spread(new_unique_key, size),
                mainstay.spread(new_concurrency_key, size), mainstay.spread(new_priority, size),
                mainstay.spread(new_status, size), mainstay.spread(new_reason, size),
                mainstay.spread(new_version, size), mainstay.spread(new_token, size),
                mainstay.spread(new_session, size), mainstay.spread(new_starts, size),
                mainstay.spread(new_failures, size), mainstay.spread(new_crashes, size),
                mainstay.spread(new_releases, size), mainstay.spread(new_losses, size),
                mainstay.spread(new_created_ms, size), mainstay.spread(new_changed_ms, size),
                mainstay.spread(new_due_ms, size), mainstay.spread(new_claimed_ms, size),
                mainstay.spread(new_started_ms, size), mainstay.spread(new_settled_ms, size),
                mainstay.spread(new_expires_ms, size), mainstay.spread(new_extra_ms, size),
                mainstay.spread(new_error, size), mainstay.spread(new_result, size), mainstay.spread(new_head, size),
                mainstay.spread(new_trimmed_seq, size), mainstay.spread(new_trimmed_digest, size),
                mainstay.spread(new_lane, size), mainstay.spread(new_rank, size), mainstay.spread(new_progress, size),
                mainstay.spread(new_progress_ms, size), mainstay.spread(new_checkpoint, size),
                mainstay.spread(new_payload, size)
            ) AS g OFFSET 0
        ) AS g (id, kind, name, queue, parent, unit, "group", options, key, unique_key, concurrency_key, priority,
            status, reason, version, token, session, starts, failures, crashes, releases, losses, created_ms,
            changed_ms, due_ms, claimed_ms, started_ms, settled_ms, expires_ms, extra_ms, error, result, head,
            trimmed_seq, trimmed_digest, lane, rank, progress, progress_ms, checkpoint, payload, n)
        ORDER BY g.unique_key, g.n;
    ELSE
        INSERT INTO mainstay.jobs (
            id, kind, name, queue, parent, unit, "group", options, key, unique_key, concurrency_key, priority,
            status, reason, version, token, session, starts, failures, crashes, releases, losses, created_ms,
            changed_ms, due_ms, claimed_ms, started_ms, settled_ms, expires_ms, extra_ms, error, result, head,
            trimmed_seq, trimmed_digest, lane, rank, progress, progress_ms, checkpoint, payload
        )
        SELECT * FROM unnest(
            new_id::uuid[], mainstay.spread(new_kind, size), mainstay.spread(new_name, size),
            mainstay.spread(new_queue, size), mainstay.spread(new_parent, size)::uuid[],
            mainstay.spread(new_unit, size), mainstay.spread(new_group, size), mainstay.spread(new_options, size),
            mainstay.spread(new_key, size), mainstay.spread(new_unique_key, size),
            mainstay.spread(new_concurrency_key, size), mainstay.spread(new_priority, size),
            mainstay.spread(new_status, size), mainstay.spread(new_reason, size), mainstay.spread(new_version, size),
            mainstay.spread(new_token, size), mainstay.spread(new_session, size), mainstay.spread(new_starts, size),
            mainstay.spread(new_failures, size), mainstay.spread(new_crashes, size),
            mainstay.spread(new_releases, size), mainstay.spread(new_losses, size),
            mainstay.spread(new_created_ms, size), mainstay.spread(new_changed_ms, size),
            mainstay.spread(new_due_ms, size), mainstay.spread(new_claimed_ms, size),
            mainstay.spread(new_started_ms, size), mainstay.spread(new_settled_ms, size),
            mainstay.spread(new_expires_ms, size), mainstay.spread(new_extra_ms, size),
            mainstay.spread(new_error, size), mainstay.spread(new_result, size), mainstay.spread(new_head, size),
            mainstay.spread(new_trimmed_seq, size), mainstay.spread(new_trimmed_digest, size),
            mainstay.spread(new_lane, size), mainstay.spread(new_rank, size), mainstay.spread(new_progress, size),
            mainstay.spread(new_progress_ms, size), mainstay.spread(new_checkpoint, size),
            mainstay.spread(new_payload, size)
        );
    END IF;
    INSERT INTO mainstay.events (job_id, seq, at_ms, source, "to", actor, reason, token, flag, details, digest)
    SELECT * FROM unnest(
        mainstay.spread(event_job_id, events)::uuid[], mainstay.spread(event_seq, events),
        mainstay.spread(event_at_ms, events), mainstay.spread(event_source, events), mainstay.spread(event_to, events),
        mainstay.spread(event_actor, events), mainstay.spread(event_reason, events),
        mainstay.spread(event_token, events), mainstay.spread(event_flag, events),
        mainstay.spread(event_details, events), mainstay.spread(event_digest, events)
    );
    IF cardinality(tag_name) > 0 THEN
        INSERT INTO mainstay.tags (job_id, tag)
        SELECT DISTINCT * FROM unnest(tag_job_id::uuid[], tag_name);
    END IF;
    IF cardinality(wait_on) > 0 THEN
        INSERT INTO mainstay.waits (job_id, place, on_id, done)
        SELECT g.*, false FROM unnest(wait_job_id::uuid[], wait_place, wait_on::uuid[]) AS g;
    END IF;
    IF 1 = ANY (new_lane) THEN
        PERFORM mainstay.lower_heads(array_agg(g.queue), array_agg(g.rank))
        FROM unnest(mainstay.spread(new_queue, size), mainstay.spread(new_rank, size), mainstay.spread(new_lane, size))
            AS g (queue, rank, lane)
        WHERE g.lane = 1;
    END IF;
    PERFORM mainstay.count_up(count_queue, count_status, count_n, entered, entered_n, now_ms);
END
$$;
