CREATE TABLE jobs (
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    queue TEXT NOT NULL,
    parent TEXT,
    unit TEXT,
    "group" TEXT,
    options BLOB NOT NULL,
    key TEXT,
    unique_key TEXT,
    concurrency_key TEXT,
    priority INTEGER NOT NULL,
    status TEXT NOT NULL,
    reason TEXT,
    version INTEGER NOT NULL,
    token INTEGER NOT NULL,
    session TEXT,
    starts INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    crashes INTEGER NOT NULL,
    releases INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    changed_ms INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    claimed_ms INTEGER,
    started_ms INTEGER,
    settled_ms INTEGER,
    expires_ms INTEGER,
    extra_ms INTEGER NOT NULL,
    error TEXT,
    result BLOB,
    head BLOB NOT NULL,
    trimmed_seq INTEGER NOT NULL,
    trimmed_digest BLOB NOT NULL,
    lane INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    progress TEXT,
    progress_ms INTEGER,
    checkpoint BLOB,
    payload BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX jobs_id ON jobs (id);
CREATE INDEX jobs_ready ON jobs (queue, rank, due_ms) WHERE lane = 1;
CREATE INDEX jobs_due ON jobs (queue, due_ms) WHERE lane = 2;
CREATE INDEX jobs_blocked ON jobs (concurrency_key, queue, rank) WHERE lane = 3;
CREATE INDEX jobs_key_ready ON jobs (concurrency_key, queue) WHERE lane = 1 AND concurrency_key IS NOT NULL;
CREATE INDEX jobs_aside ON jobs (id) WHERE lane = 4;
CREATE INDEX jobs_held ON jobs (session) WHERE session IS NOT NULL;
CREATE INDEX jobs_key_held ON jobs (concurrency_key) WHERE concurrency_key IS NOT NULL AND session IS NOT NULL;
CREATE INDEX jobs_expires ON jobs (expires_ms) WHERE expires_ms IS NOT NULL AND settled_ms IS NULL;
CREATE INDEX jobs_keep ON jobs (expires_ms) WHERE expires_ms IS NOT NULL AND settled_ms IS NOT NULL;
CREATE UNIQUE INDEX jobs_unique ON jobs (unique_key) WHERE unique_key IS NOT NULL AND settled_ms IS NULL;
CREATE INDEX jobs_status ON jobs (status, id) WHERE parent IS NULL;
CREATE INDEX jobs_units ON jobs (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX jobs_open_units ON jobs (parent) WHERE parent IS NOT NULL AND settled_ms IS NULL;
CREATE INDEX jobs_key ON jobs (key) WHERE key IS NOT NULL;
CREATE INDEX jobs_long ON jobs (version - trimmed_seq) WHERE version - trimmed_seq > 3;

CREATE TABLE events (
    job_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    source TEXT,
    "to" TEXT NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT,
    token INTEGER NOT NULL,
    flag TEXT NOT NULL,
    details TEXT,
    digest BLOB NOT NULL,
    PRIMARY KEY (job_id, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE tags (
    tag TEXT NOT NULL,
    job_id TEXT NOT NULL,
    PRIMARY KEY (tag, job_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX tags_job ON tags (job_id);

CREATE TABLE keys (
    scope TEXT NOT NULL,
    name TEXT NOT NULL,
    content BLOB NOT NULL,
    job_id TEXT NOT NULL,
    until_ms INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX keys_name ON keys (scope, name);
CREATE INDEX keys_until ON keys (until_ms);

CREATE TABLE refusals (
    job_id TEXT NOT NULL,
    token INTEGER NOT NULL,
    session TEXT NOT NULL,
    wanted TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (job_id, token)
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    worker TEXT NOT NULL,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    started_ms INTEGER NOT NULL,
    beat_ms INTEGER NOT NULL,
    lease_s REAL NOT NULL,
    dead INTEGER NOT NULL,
    boot TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE leaders (
    name TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    until_ms INTEGER NOT NULL,
    boot TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE queues (name TEXT PRIMARY KEY, paused INTEGER NOT NULL, reason TEXT) STRICT, WITHOUT ROWID;
CREATE TABLE limits (key TEXT PRIMARY KEY, most INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE schedules (
    name TEXT PRIMARY KEY,
    spec BLOB NOT NULL,
    paused INTEGER NOT NULL,
    last_tick_ms INTEGER
) STRICT, WITHOUT ROWID;
CREATE TABLE ticks (schedule TEXT NOT NULL, at_ms INTEGER NOT NULL, PRIMARY KEY (schedule, at_ms))
    STRICT, WITHOUT ROWID;

-- Facts about the file as a whole: "audit" is the fingerprint of the key its trail is sealed with ('' for none).
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

-- How many jobs of a queue have a status, and how many moved into a status in a minute. Written in the same
-- transaction as the rows they count; `mainstay check` compares them with the rows.
CREATE TABLE tallies (
    queue TEXT NOT NULL,
    status TEXT NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (queue, status)
) STRICT, WITHOUT ROWID;
CREATE TABLE flow (
    minute INTEGER NOT NULL,
    status TEXT NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (minute, status)
) STRICT, WITHOUT ROWID;
