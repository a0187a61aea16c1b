-- What each session offers: its queues and tasks, as JSON. Apart from the sessions, whose rows every beat writes whole.
CREATE TABLE offers (session TEXT PRIMARY KEY, offer TEXT NOT NULL) STRICT, WITHOUT ROWID;
-- Jobs whose task a worker of their queue does not have, by task; `routes` lists what there may be, so that a claim
-- looks at one table that is nearly always empty.
CREATE INDEX jobs_routed ON jobs (queue, kind, name, rank) WHERE lane = 5;
CREATE TABLE routes (
    queue TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (queue, kind, name)
) STRICT, WITHOUT ROWID;
