-- The worker of an engine; who asked it to drain, and when; who paused or resumed a queue last, and when.
ALTER TABLE mainstay.sessions ADD COLUMN supervisor integer NOT NULL DEFAULT 0;
ALTER TABLE mainstay.sessions ADD COLUMN draining_ms bigint;
ALTER TABLE mainstay.sessions ADD COLUMN draining_by text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE mainstay.queues ADD COLUMN set_by text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE mainstay.queues ADD COLUMN set_ms bigint;
