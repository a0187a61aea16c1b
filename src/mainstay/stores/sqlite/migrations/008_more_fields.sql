-- Fields of sessions and of queue settings without a column of their own, as JSON (`stores/records.py`).
ALTER TABLE sessions ADD COLUMN more TEXT;
ALTER TABLE queues ADD COLUMN more TEXT;
