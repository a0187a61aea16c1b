-- The offer of each session: its queues and tasks, as JSON, and its routes once more for claims. `routes` lists the routes
-- that may have routed jobs (`routes.py`), so that a claim looks at one table that is nearly always empty.
CREATE TABLE mainstay.offers (
    session text COLLATE "C" NOT NULL,
    routes text[] COLLATE "C" NOT NULL,
    offer text COLLATE "C" NOT NULL,
    CONSTRAINT offers_session PRIMARY KEY (session)
);
CREATE TABLE mainstay.routes (
    queue text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    route text COLLATE "C" NOT NULL,
    CONSTRAINT routes_name PRIMARY KEY (queue, kind, name)
) WITH (fillfactor = 25, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
