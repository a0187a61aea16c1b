-- Which worker an engine belongs to, and who asked it to drain, since when; who paused or resumed a queue last, when.
ALTER TABLE mainstay.sessions ADD COLUMN supervisor integer NOT NULL DEFAULT 0;
ALTER TABLE mainstay.sessions ADD COLUMN draining_ms bigint;
ALTER TABLE mainstay.sessions ADD COLUMN draining_by text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE mainstay.queues ADD COLUMN set_by text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE mainstay.queues ADD COLUMN set_ms bigint;
