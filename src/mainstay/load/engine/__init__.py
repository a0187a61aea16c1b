"""The code of a generator process: virtual users and their pace."""
