"""The dashboard: pages that are rendered here and kept up to date by the live streams.

Layer: web, above the API, whose functions do what its buttons ask for. Start at `routes`; each page is a module and a
template of its name. `static/dashboard.js` is all the script there is beside what is vendored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .job import (
        AllowedActions as AllowedActions,
        OwnAction as OwnAction,
        Panel as Panel,
        allowed_actions as allowed_actions,
        forced_states as forced_states,
    )
    from .jobs import cursor_of as cursor_of, filter_of as filter_of
    from .kinds import jobs_of_kind as jobs_of_kind
    from .page import PageView as PageView

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".job": "AllowedActions OwnAction Panel allowed_actions forced_states",
        ".jobs": "cursor_of filter_of",
        ".kinds": "jobs_of_kind",
        ".page": "PageView",
    },
)
