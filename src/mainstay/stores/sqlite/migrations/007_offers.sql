-- The offer of each session: its queues and tasks, as JSON. Not in `sessions`, whose rows every beat rewrites.
CREATE TABLE offers (session TEXT PRIMARY KEY, offer TEXT NOT NULL) STRICT, WITHOUT ROWID;
-- Routed jobs: a worker of their queue does not have their task. `routes` lists the tasks that may have some, so that a
-- claim looks at one table that is nearly always empty.
CREATE INDEX jobs_routed ON jobs (queue, kind, name, rank) WHERE lane = 5;
CREATE TABLE routes (
    queue TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (queue, kind, name)
) STRICT, WITHOUT ROWID;
