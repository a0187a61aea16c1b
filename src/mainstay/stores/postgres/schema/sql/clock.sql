-- The time of every statement: the caller's if it has a clock of its own (in tests), otherwise the server's.
CREATE OR REPLACE FUNCTION mainstay.clock(given bigint) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(given, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
$$;
