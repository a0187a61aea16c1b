"""What the stores of jobs and of outputs share: URLs and their options, names that any storage can hold, buckets.

Layer: just above errors. Nothing here knows what is stored.
"""
