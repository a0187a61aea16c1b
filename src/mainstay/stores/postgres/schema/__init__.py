"""The tables and functions, their versions, and the migration of a database.

`definition.py` reads the numbered migrations from `migrations/` and the functions from `sql/`.
"""
