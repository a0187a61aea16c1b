"""The dashboard: pages that are rendered here and kept up to date by the live streams. Start at `pages`."""
