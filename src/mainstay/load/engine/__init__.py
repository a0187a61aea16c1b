"""What runs inside a generator process: virtual users and their pace."""
