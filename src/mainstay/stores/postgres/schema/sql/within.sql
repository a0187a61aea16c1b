-- Functions for jobs that are submitted within a user's own transaction.

-- Count in a separate shard for the rest of the transaction. It may stay open for long, and workers must not wait for
-- it.
CREATE OR REPLACE FUNCTION mainstay.count_apart() RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM set_config('mainstay_enqueue.shard', (64 + pg_backend_pid() % 1024)::text, true);
END
$$;

-- Notify all listeners of these queues when the transaction commits. Every listening process is notified, because it
-- is not known before the commit which of them will wait.
CREATE OR REPLACE FUNCTION mainstay.tell_at_commit(queues text[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_notify('mainstay:' || n.nspname, q.name)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, (SELECT DISTINCT unnest(queues)) AS q (name)
    WHERE c.oid = 'mainstay.jobs'::regclass;
END
$$;
