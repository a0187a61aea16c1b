"""What `mainstay check` asks of PostgreSQL: rows as they are stored, duplicates, the objects of the schema."""
