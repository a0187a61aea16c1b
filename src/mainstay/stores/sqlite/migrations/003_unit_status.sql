-- Units of a job by status, to count and list them: a job may have a hundred thousand.
CREATE INDEX jobs_unit_status ON jobs (parent, status, id) WHERE parent IS NOT NULL;
