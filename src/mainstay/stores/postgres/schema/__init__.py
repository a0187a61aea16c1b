"""The tables and functions, their versions, and how a database is migrated to them.

`definition.py` has the numbered migrations and reads the functions from `sql/`.
"""
