"""The part of `mainstay check` for PostgreSQL: stored rows, duplicates, the objects of the schema."""
