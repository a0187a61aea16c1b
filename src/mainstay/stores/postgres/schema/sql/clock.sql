-- The time every statement judges by: the caller's, if it has one of its own (tests do), else this server's.
CREATE OR REPLACE FUNCTION mainstay.clock(given bigint) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(given, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
$$;
