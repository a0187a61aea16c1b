"""Jobs, events and names as PostgreSQL values."""
