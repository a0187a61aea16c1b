"""Reads: rows by id, lists, statistics."""
