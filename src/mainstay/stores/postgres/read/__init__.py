"""Everything that only reads: rows by id, lists, statistics."""
