-- A standing session has no lock and no lease: only `close_session` ends it, and no restart of the machine. A program of
-- the version before does not know this, and its sweep would declare the session dead. The trigger ignores that write;
-- `close_session` sets `standing` to 0 first.
ALTER TABLE sessions ADD COLUMN standing INTEGER NOT NULL DEFAULT 0;
CREATE TRIGGER sessions_standing BEFORE UPDATE OF dead ON sessions WHEN NEW.dead = 1 AND NEW.standing = 1
BEGIN
    SELECT RAISE(IGNORE);
END;
-- The last marks of each session's claims, as JSON: [[mark, [[job, token], ...]], ...]. Claims without a mark have none.
CREATE TABLE claim_marks (session TEXT PRIMARY KEY, claims TEXT NOT NULL) STRICT, WITHOUT ROWID;
