-- A column of a batch in full length. A column that is the same in every row comes as a single value: the client's
-- driver encodes every value that it sends, which cost more than all the rest of a batch of a hundred.
CREATE OR REPLACE FUNCTION mainstay.spread(few anyarray, size integer) RETURNS anyarray
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN cardinality(few) = size THEN few ELSE array_fill(few[1], ARRAY[size]) END
$$;
