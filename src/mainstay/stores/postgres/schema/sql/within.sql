-- What a user's own transaction needs besides: for jobs that are submitted within it.

-- Count in a shard apart for the rest of the transaction: how long it stays open is not ours to say, and nobody who works
-- shall wait for it.
CREATE OR REPLACE FUNCTION mainstay.count_apart() RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM set_config('mainstay_enqueue.shard', (64 + pg_backend_pid() % 1024)::text, true);
END
$$;

-- Have those who listen look at these queues once the transaction is committed; if it is not, they never hear of it. Every
-- process that listens hears it: who of them waits is not known before the commit.
CREATE OR REPLACE FUNCTION mainstay.tell_at_commit(queues text[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_notify('mainstay:' || n.nspname, q.name)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, (SELECT DISTINCT unnest(queues)) AS q (name)
    WHERE c.oid = 'mainstay.jobs'::regclass;
END
$$;
