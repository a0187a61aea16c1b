"""Shared by job stores and output stores: URLs and their options, keys that any storage can hold, folders, buckets.

Layer: just above errors. Nothing here knows what is stored.
"""

from .buckets import BucketAddress
from .folders import DataFolder, force_names
from .keys import check_key, check_prefix
from .options import check_options, duration_of, is_on, number_of
from .private_files import make_private_file, make_private_folder, open_private, report_exposed
from .service_errors import SERVICE_ERRORS, NoBucket
from .threads import Threads
from .urls import (
    Adapters,
    bare_url,
    driver_needed,
    find_adapter,
    folder_in,
    known_schemes,
    options_in,
    shown_url,
    split_url,
)

__all__ = [
    "SERVICE_ERRORS",
    "Adapters",
    "BucketAddress",
    "DataFolder",
    "NoBucket",
    "Threads",
    "bare_url",
    "check_key",
    "check_options",
    "check_prefix",
    "driver_needed",
    "duration_of",
    "find_adapter",
    "folder_in",
    "force_names",
    "is_on",
    "known_schemes",
    "make_private_file",
    "make_private_folder",
    "number_of",
    "open_private",
    "options_in",
    "report_exposed",
    "shown_url",
    "split_url",
]
