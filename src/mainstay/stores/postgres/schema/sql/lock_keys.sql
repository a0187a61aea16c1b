-- Have concurrency keys to oneself until the transaction ends: whoever counts the slots of a key, or frees one, holds its
-- lock. In order, so that nobody waits in a circle. The number of the table tells schemas apart.
CREATE OR REPLACE FUNCTION mainstay.lock_keys(keys text[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    each_key text;
BEGIN
    FOR each_key IN SELECT DISTINCT k COLLATE "C" FROM unnest(keys) k ORDER BY 1 LOOP
        PERFORM pg_advisory_xact_lock(hashtextextended(each_key, 'mainstay.limits'::regclass::oid::bigint));
    END LOOP;
END
$$;

-- The same for one key, if nobody has it; without waiting, so in any order.
CREATE OR REPLACE FUNCTION mainstay.try_lock_key(key text) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    SELECT pg_try_advisory_xact_lock(hashtextextended(key, 'mainstay.limits'::regclass::oid::bigint))
$$;
