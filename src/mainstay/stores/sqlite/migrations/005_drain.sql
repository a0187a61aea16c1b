-- The worker of an engine; who asked it to drain, and when.
ALTER TABLE sessions ADD COLUMN supervisor INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN draining_ms INTEGER;
ALTER TABLE sessions ADD COLUMN draining_by TEXT NOT NULL DEFAULT '';
-- Who paused or resumed a queue last, and when.
ALTER TABLE queues ADD COLUMN set_by TEXT NOT NULL DEFAULT '';
ALTER TABLE queues ADD COLUMN set_ms INTEGER;
-- Lists of one kind: batches and load tests are few among very many tasks. Tasks have no entry here, and no cost.
CREATE INDEX jobs_kind ON jobs (kind, id) WHERE kind <> 'task' AND parent IS NULL;
