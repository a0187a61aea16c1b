"""Shared by job stores and output stores: URLs and their options, keys that any storage can hold, folders, buckets.

Layer: just above errors. Nothing here knows what is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .buckets import BucketAddress as BucketAddress
    from .folders import DataFolder as DataFolder, force_names as force_names
    from .keys import check_key as check_key, check_prefix as check_prefix
    from .options import (
        check_options as check_options,
        duration_of as duration_of,
        is_on as is_on,
        number_of as number_of,
    )
    from .private_files import (
        make_private_file as make_private_file,
        make_private_folder as make_private_folder,
        open_private as open_private,
        report_exposed as report_exposed,
    )
    from .service_errors import SERVICE_ERRORS as SERVICE_ERRORS, NoBucket as NoBucket
    from .threads import Threads as Threads
    from .urls import (
        Adapters as Adapters,
        bare_url as bare_url,
        driver_needed as driver_needed,
        find_adapter as find_adapter,
        folder_in as folder_in,
        known_schemes as known_schemes,
        options_in as options_in,
        shown_url as shown_url,
        split_url as split_url,
    )

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".buckets": "BucketAddress",
        ".folders": "DataFolder force_names",
        ".keys": "check_key check_prefix",
        ".options": "check_options duration_of is_on number_of",
        ".private_files": "make_private_file make_private_folder open_private report_exposed",
        ".service_errors": "NoBucket SERVICE_ERRORS",
        ".threads": "Threads",
        ".urls": "Adapters bare_url driver_needed find_adapter folder_in known_schemes options_in shown_url split_url",
    },
)
