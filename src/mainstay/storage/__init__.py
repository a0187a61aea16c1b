"""Shared by job stores and output stores: URLs and their options, keys that any storage can hold, folders, buckets.

Layer: just above errors. Nothing here knows what is stored.
"""
