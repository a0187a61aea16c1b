-- Fields of sessions and of queue settings without a column of their own, as JSON (`stores/records.py`).
ALTER TABLE mainstay.sessions ADD COLUMN more text COLLATE "C";
ALTER TABLE mainstay.queues ADD COLUMN more text COLLATE "C";
