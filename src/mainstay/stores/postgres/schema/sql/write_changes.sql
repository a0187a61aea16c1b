-- Programs of release 4 have a function of this name, and their check reports a schema without it as incomplete. It does
-- nothing: `apply_plain` writes changes itself. It can be removed by the release that raises FITS above 4.
CREATE OR REPLACE FUNCTION mainstay.write_changes() RETURNS void LANGUAGE sql IMMUTABLE AS $$ $$;
