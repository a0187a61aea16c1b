-- JSON as msgpack, the stored form of arguments. Each value has its shortest form, and keys of objects are sorted, so
-- that equal arguments are equal bytes.
CREATE OR REPLACE FUNCTION mainstay.msgpack(value jsonb) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    body bytea;
    n bigint;
BEGIN
    CASE jsonb_typeof(value)
    WHEN 'null' THEN
        RETURN '\xc0';
    WHEN 'boolean' THEN
        RETURN CASE WHEN value::boolean THEN '\xc3'::bytea ELSE '\xc2' END;
    WHEN 'number' THEN
        RETURN mainstay.msgpack_number(value::text);
    WHEN 'string' THEN
        body := convert_to(value #>> '{}', 'UTF8');
        n := length(body);
        RETURN CASE
            WHEN n < 32 THEN mainstay.low_byte(160 + n)
            WHEN n < 256 THEN '\xd9' || mainstay.low_byte(n)
            ELSE mainstay.msgpack_length(n, '\xda', '\xdb')
        END || body;
    WHEN 'array' THEN
        SELECT count(*), coalesce(string_agg(mainstay.msgpack(each), '' ORDER BY at), '')
        INTO n, body FROM jsonb_array_elements(value) WITH ORDINALITY AS e (each, at);
        RETURN CASE WHEN n < 16 THEN mainstay.low_byte(144 + n) ELSE mainstay.msgpack_length(n, '\xdc', '\xdd') END || body;
    ELSE
        SELECT count(*), coalesce(
            string_agg(mainstay.msgpack(to_jsonb(e.key)) || mainstay.msgpack(e.value), '' ORDER BY e.key COLLATE "C"), '')
        INTO n, body FROM jsonb_each(value) AS e;
        RETURN CASE WHEN n < 16 THEN mainstay.low_byte(128 + n) ELSE mainstay.msgpack_length(n, '\xde', '\xdf') END || body;
    END CASE;
END
$$;

-- A number without a point or an exponent is an integer, as in Python.
CREATE OR REPLACE FUNCTION mainstay.msgpack_number(written text) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    whole numeric;
BEGIN
    IF written ~ '[.eE]' THEN
        RETURN '\xcb' || float8send(written::float8);
    END IF;
    whole := written::numeric;
    IF whole NOT BETWEEN -9223372036854775808 AND 18446744073709551615 THEN
        RAISE EXCEPTION 'submit: the number % is too large to be stored', left(written, 50)
            USING ERRCODE = 'numeric_value_out_of_range', HINT = 'pass it as text';
    END IF;
    RETURN CASE
        WHEN whole BETWEEN 0 AND 127 THEN mainstay.low_byte(whole::bigint)
        WHEN whole BETWEEN -32 AND -1 THEN mainstay.low_byte(256 + whole::bigint)
        WHEN whole BETWEEN 128 AND 255 THEN '\xcc' || mainstay.low_byte(whole::bigint)
        WHEN whole BETWEEN 256 AND 65535 THEN '\xcd' || substring(int4send(whole::integer) FROM 3)
        WHEN whole BETWEEN 65536 AND 4294967295 THEN '\xce' || substring(int8send(whole::bigint) FROM 5)
        WHEN whole > 9223372036854775807 THEN '\xcf' || int8send((whole - 18446744073709551616)::bigint)
        WHEN whole > 4294967295 THEN '\xcf' || int8send(whole::bigint)
        WHEN whole BETWEEN -128 AND -33 THEN '\xd0' || mainstay.low_byte(256 + whole::bigint)
        WHEN whole BETWEEN -32768 AND -129 THEN '\xd1' || int2send(whole::smallint)
        WHEN whole BETWEEN -2147483648 AND -32769 THEN '\xd2' || int4send(whole::integer)
        ELSE '\xd3' || int8send(whole::bigint)
    END;
END
$$;

CREATE OR REPLACE FUNCTION mainstay.msgpack_length(n bigint, short bytea, long bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN n < 65536 THEN short || substring(int8send(n) FROM 7) ELSE long || substring(int8send(n) FROM 5) END
$$;

CREATE OR REPLACE FUNCTION mainstay.low_byte(n bigint) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT substring(int8send(n) FROM 8)
$$;
