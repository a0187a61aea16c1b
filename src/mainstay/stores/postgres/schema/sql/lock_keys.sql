-- Lock concurrency keys until the transaction ends. A transaction that counts or frees slots of a key holds its lock.
-- In order, to prevent deadlocks. The oid of the table keeps schemas apart.
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

-- Lock one key if it is free. It does not wait, so the order does not matter.
CREATE OR REPLACE FUNCTION mainstay.try_lock_key(key text) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    SELECT pg_try_advisory_xact_lock(hashtextextended(key, 'mainstay.limits'::regclass::oid::bigint))
$$;
