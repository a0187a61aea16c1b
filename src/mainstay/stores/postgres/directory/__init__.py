"""The small tables: sessions, leadership, queue settings, limits and schedules; and heartbeats."""
