-- Fields of a session and of a queue's settings that have no column of their own, as JSON (`stores/records.py`).
ALTER TABLE sessions ADD COLUMN more TEXT;
ALTER TABLE queues ADD COLUMN more TEXT;
