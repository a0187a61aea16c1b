"""Named values with versions, changed by compare-and-swap, on folders, buckets, tables and key-value stores."""
