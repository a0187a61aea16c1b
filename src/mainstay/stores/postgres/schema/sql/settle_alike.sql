-- The most frequent batch: claims that their holder ends, all with the same status and time, without an error, and
-- with nothing written about the job since the claim. Most columns are then the same in all rows, or do not change. So
-- little is sent: ids, times and details are joined to one text each (by commas; details by line breaks, which JSON
-- does not have, and empty for none), digests to one bytea. A column that is the same in all rows may come as a single
-- value.
--
-- True if all rows were written. Otherwise none was: a row is not the claim that its caller saw, its event already
-- exists, or a job waits for it. `apply_plain` then finds out which.
--
-- Rows are found by their ids alone: `IS NOT DISTINCT FROM` keeps the planner from walking all rows that the session
-- has held since the last vacuum. The rows are open, so the claim's event consists of the values that were compared,
-- and nothing has to be read for it.
CREATE OR REPLACE FUNCTION mainstay.settle_alike(
    row_ids text, seen_version integer[], seen_session text, seen_claimed_ms text, seen_heads bytea,
    new_status text, ended_ms bigint, new_starts integer[], new_expires_ms bigint[], new_result bytea[],
    new_heads bytea, event_details text,
    count_queue text[], count_status text[], count_n bigint[], entered text[], entered_n bigint[], given_ms bigint
) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET enable_seqscan TO off SET plan_cache_mode TO force_generic_plan SET jit TO off
AS $$
DECLARE
    ids uuid[] := string_to_array(row_ids, ',')::uuid[];
    claims_ms bigint[] := string_to_array(seen_claimed_ms, ',')::bigint[];
    texts text[] := string_to_array(event_details, E'\n', '');
    versions integer := cardinality(seen_version);
    starters integer := cardinality(new_starts);
    expiries integer := cardinality(new_expires_ms);
    results integer := cardinality(new_result);
    logged bigint;
BEGIN
    WITH changed AS (
        UPDATE mainstay.jobs j SET
            open = false, status = new_status, reason = NULL, version = j.version + 1, session = NULL,
            starts = new_starts[least(g.at, starters)], changed_ms = ended_ms, claimed_ms = NULL, started_ms = NULL,
            settled_ms = ended_ms, expires_ms = new_expires_ms[least(g.at, expiries)], error = NULL,
            result = new_result[least(g.at, results)], head = substring(new_heads FROM g.at * 32 - 31 FOR 32), lane = 0
        FROM (
            SELECT u.id, u.claimed_ms, u.details, u.at::integer AS at
            FROM unnest(ids, claims_ms, texts) WITH ORDINALITY AS u (id, claimed_ms, details, at)
        ) g
        WHERE j.id = g.id AND j.version = seen_version[least(g.at, versions)] AND j.open
            AND (j.session, j.claimed_ms) IS NOT DISTINCT FROM (seen_session, g.claimed_ms)
            AND j.starts <= new_starts[least(g.at, starters)]
        RETURNING j.id, j.version, j.token, g.claimed_ms, g.details, g.at
    )
    INSERT INTO mainstay.events (job_id, seq, at_ms, source, "to", actor, reason, token, flag, details, digest)
    SELECT c.id, c.version - 1, c.claimed_ms, 'pending', 'running', seen_session, NULL, c.token, '', NULL,
        substring(seen_heads FROM c.at * 32 - 31 FOR 32)
    FROM changed c
    UNION ALL
    SELECT c.id, c.version, ended_ms, 'running', new_status, seen_session, NULL, c.token, '', c.details,
        substring(new_heads FROM c.at * 32 - 31 FOR 32)
    FROM changed c;
    GET DIAGNOSTICS logged = ROW_COUNT;
    -- A later statement, so that it sees edges that were added before the rows were locked. If no job waits for
    -- another, the first condition is enough.
    IF logged < 2 * cardinality(ids) OR EXISTS (SELECT FROM mainstay.waits w WHERE NOT w.done)
        AND EXISTS (SELECT FROM mainstay.waits w WHERE w.on_id = ANY (ids) AND NOT w.done) THEN
        RAISE EXCEPTION USING ERRCODE = 'MS001', MESSAGE = 'not a simple completion';
    END IF;
    PERFORM mainstay.count_up(
        count_queue, count_status, count_n, entered, entered_n, mainstay.clock(given_ms)
    );
    RETURN true;
EXCEPTION
    WHEN SQLSTATE 'MS001' OR unique_violation THEN
        RETURN false;
END
$$;
