-- Submit a job in SQL: from triggers, and from languages without a Mainstay client. Runs in the caller's transaction.
--
--   SELECT mainstay.submit('mail.send', kwargs => '{"to": "a@b.c"}');
--   SELECT mainstay.submit('mail.send', args => '["a@b.c"]', queue => 'mail', delay => interval '5 minutes');
--
-- Defaults are those of Python: `submit_defaults()` is made from the same settings. Options that a task declares in
-- Python are not known here.
CREATE OR REPLACE FUNCTION mainstay.submit(
    name text,
    args jsonb DEFAULT '[]',
    kwargs jsonb DEFAULT '{}',
    queue text DEFAULT 'default',
    key text DEFAULT NULL,
    priority integer DEFAULT 0,
    delay interval DEFAULT NULL,
    retries integer DEFAULT NULL,
    timeout interval DEFAULT NULL,
    unique_key text DEFAULT NULL,
    concurrency_key text DEFAULT NULL,
    tags text[] DEFAULT '{}'
) RETURNS uuid
LANGUAGE plpgsql VOLATILE
SET lock_timeout TO '4s'
AS $$
#variable_conflict use_variable
DECLARE
    defaults CONSTANT jsonb := mainstay.submit_defaults();
    now_ms CONSTANT bigint := mainstay.clock(NULL);
    due_ms bigint := now_ms;
    new_id uuid := mainstay.new_id(now_ms);
    payload bytea;
    chosen jsonb := defaults -> 'options';
    stands uuid;
    new_status text := 'pending';
    reason text;
    details text;
    digest bytea;
    blank CONSTANT bytea := decode(repeat('00', 32), 'hex');
    -- for the audit trail: the role, and that it was submitted in SQL
    actor CONSTANT text := 'sql:' || session_user;
BEGIN
    PERFORM mainstay.check_submit('name', name, '^[[:alnum:]_][[:alnum:]_.:/-]*$', 200),
        mainstay.check_submit('queue', queue, '^[[:alnum:]_][[:alnum:]_.:/-]*$', 100),
        mainstay.check_submit('key', key, '^[^[:cntrl:]]*[^[:space:][:cntrl:]][^[:cntrl:]]*$', 255),
        mainstay.check_submit('unique_key', unique_key, '^[^[:cntrl:]]*[^[:space:][:cntrl:]][^[:cntrl:]]*$', 255),
        mainstay.check_submit(
            'concurrency_key', concurrency_key, '^[^[:cntrl:]]*[^[:space:][:cntrl:]][^[:cntrl:]]*$', 255),
        mainstay.check_submit('tags', tag, '^[^[:cntrl:]]*[^[:space:][:cntrl:]][^[:cntrl:]]*$', 100)
    FROM unnest(tags || '{x}') AS tag;
    IF name IS NULL OR queue IS NULL OR priority IS NULL OR priority NOT BETWEEN -100 AND 100
        OR coalesce(delay, '0') < '0' OR coalesce(retries, 0) NOT BETWEEN 0 AND 1000000
        OR coalesce(timeout, '1s') <= '0' OR cardinality(tags) > 50
    THEN
        RAISE EXCEPTION 'submit: a job needs a name and a queue, a priority from -100 to 100, no negative delay, retries '
            'or timeout, and at most 50 tags' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF jsonb_typeof(args) IS DISTINCT FROM 'array' OR jsonb_typeof(kwargs) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'submit: args must be a JSON array and kwargs a JSON object'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'like args => ''["a@b.c"]'', kwargs => ''{"copies": 2}''';
    END IF;
    -- a store that was never opened has no audit key; from here on it must have none
    INSERT INTO mainstay.facts (name, value) VALUES ('audit', '') ON CONFLICT DO NOTHING;
    IF (SELECT f.value <> '' FROM mainstay.facts f WHERE f.name = 'audit') THEN
        RAISE EXCEPTION 'submit: the audit trail of this store is sealed with a key (MAINSTAY_AUDIT_KEY), which the '
            'server must not know' USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'submit from Python: task.within(connection).submit(...)';
    END IF;

    -- positional arguments have no names here; the worker knows the function and binds them
    payload := CASE WHEN args = '[]' THEN mainstay.msgpack(kwargs) ELSE mainstay.msgpack(jsonb_build_array(args, kwargs)) END;
    IF length(payload) > (defaults ->> 'payload_limit')::bigint THEN
        RAISE EXCEPTION 'submit: the arguments take % bytes, more than the limit of %', length(payload),
            defaults ->> 'payload_limit' USING ERRCODE = 'program_limit_exceeded',
            HINT = 'store the data elsewhere and pass a reference';
    END IF;
    IF retries IS NOT NULL THEN
        chosen := jsonb_set(chosen, '{0,0}', to_jsonb(retries));
    END IF;
    IF timeout IS NOT NULL THEN
        chosen := jsonb_set(chosen, '{1}', to_jsonb(extract(epoch FROM timeout)));
    END IF;
    IF cardinality(tags) > 0 THEN
        chosen := jsonb_set(chosen, '{7}', to_jsonb(tags));
    END IF;
    IF delay > '0' THEN
        due_ms := least(now_ms + round(extract(epoch FROM delay) * 1000)::bigint, (defaults ->> 'awaits_ms')::bigint - 1);
        new_status := 'scheduled';
        reason := 'waits until ' || mainstay.time_text(due_ms);
    END IF;

    IF key IS NOT NULL THEN
        stands := mainstay.take_key(
            name, key, sha256(convert_to(name, 'UTF8') || '\x00'::bytea || payload), new_id,
            now_ms, now_ms + (defaults ->> 'key_ttl_ms')::bigint);
        IF stands <> new_id THEN
            RETURN stands;
        END IF;
    END IF;
    details := '{"payload_sha256":"' || left(encode(sha256(payload), 'hex'), 32) || '"}';
    digest := sha256(blank || convert_to(
        '["' || new_id || '",1,' || now_ms || ',null,"' || new_status || '",' || to_json(actor) || ','
        || coalesce(to_json(reason)::text, 'null') || ',0,"",' || to_json(details) || ']', 'UTF8'));
    IF unique_key IS NOT NULL THEN
        unique_key := name || '/' || unique_key;
    END IF;
    LOOP
        INSERT INTO mainstay.jobs (
            id, created_ms, changed_ms, due_ms, extra_ms, rank, priority, version, token, starts, failures, crashes,
            releases, losses, trimmed_seq, lane, kind, name, queue, key, unique_key, concurrency_key, status, reason,
            head, trimmed_digest, options, payload
        ) VALUES (
            new_id, now_ms, now_ms, due_ms, 0, due_ms - priority * (defaults ->> 'boost_ms')::bigint, priority, 1, 0, 0,
            0, 0, 0, 0, 0, CASE new_status WHEN 'pending' THEN 1 ELSE 2 END, 'task', name, queue, key, unique_key,
            concurrency_key, new_status, reason, digest, blank, chosen::text, payload
        ) ON CONFLICT DO NOTHING;
        EXIT WHEN FOUND;
        -- as in Python, an unsettled job with the same unique key is returned
        SELECT j.id INTO stands FROM mainstay.jobs j
        WHERE j.unique_key = submit.unique_key AND j.settled_ms IS NULL;
        IF FOUND THEN
            DELETE FROM mainstay.keys k WHERE k.scope = name AND k.name = key AND k.job_id = new_id;
            RETURN stands;
        END IF;
    END LOOP;
    INSERT INTO mainstay.events (job_id, seq, at_ms, source, "to", actor, reason, token, flag, details, digest)
    VALUES (new_id, 1, now_ms, NULL, new_status, actor, reason, 0, '', details, digest);
    IF new_status = 'pending' THEN
        PERFORM mainstay.lower_heads(ARRAY[queue], ARRAY[due_ms - priority * (defaults ->> 'boost_ms')::bigint]);
    END IF;
    INSERT INTO mainstay.tags (job_id, tag) SELECT DISTINCT new_id, tag FROM unnest(tags) AS tag;
    PERFORM mainstay.count_apart(), mainstay.count_up(
        ARRAY[queue], ARRAY[new_status], '{1}', ARRAY[new_status], '{1}', now_ms);
    PERFORM mainstay.tell_at_commit(ARRAY[queue]);
    RETURN new_id;
END
$$;

-- The job of an idempotency key: `mine` if the key was free, otherwise the job that was submitted with it before.
-- Waits for an open transaction that submits with the same key.
CREATE OR REPLACE FUNCTION mainstay.take_key(
    in_scope text, key_name text, key_content bytea, mine uuid, now_ms bigint, key_until_ms bigint
) RETURNS uuid
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    known mainstay.keys;
BEGIN
    LOOP
        INSERT INTO mainstay.keys AS k (job_id, scope, name, content, until_ms)
        VALUES (mine, in_scope, key_name, key_content, key_until_ms)
        ON CONFLICT (scope, name) DO UPDATE SET
            job_id = excluded.job_id, content = excluded.content, until_ms = excluded.until_ms
            WHERE k.until_ms <= now_ms;
        IF FOUND THEN
            RETURN mine;
        END IF;
        SELECT k.* INTO known FROM mainstay.keys k WHERE k.scope = in_scope AND k.name = key_name;
        IF known.content = key_content THEN
            RETURN known.job_id;
        ELSIF known.content IS NOT NULL THEN
            RAISE EXCEPTION 'submit: idempotency key % of % was used before with other arguments, by job %',
                quote_literal(key_name), in_scope, known.job_id
                USING ERRCODE = 'unique_violation', HINT = 'use another key, or submit the same arguments';
        END IF;
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION mainstay.check_submit(field text, value text, form text, most integer) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF value !~ form OR length(value) > most THEN
        RAISE EXCEPTION 'submit: % is not a valid %, or longer than % characters', quote_literal(left(value, 100)), field, most
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$$;

-- A time-ordered id (UUIDv7).
CREATE OR REPLACE FUNCTION mainstay.new_id(now_ms bigint) RETURNS uuid
LANGUAGE sql VOLATILE AS $$
    SELECT encode(set_byte(b, 6, (get_byte(b, 6) & 15) | 112), 'hex')::uuid
    FROM overlay(uuid_send(gen_random_uuid()) PLACING substring(int8send(now_ms) FROM 3) FROM 1 FOR 6) AS b
$$;

CREATE OR REPLACE FUNCTION mainstay.time_text(at_ms bigint) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT to_char((to_timestamp(at_ms / 1000) + at_ms % 1000 * interval '1 millisecond') AT TIME ZONE 'UTC',
        'YYYY-MM-DD HH24:MI:SS.MS"Z"')
$$;
