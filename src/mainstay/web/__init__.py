"""The HTTP server: a REST API, live updates and a dashboard.

Layer: beside `cli` and `report`. Start from `site.make_site`, which puts the parts together; `mainstay serve` runs it.
Needs the extra `mainstay[web]`; the client needs `mainstay[client]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .cluster_source import ClusterRow as ClusterRow, ClusterSource as ClusterSource
    from .extra import extra_needed as extra_needed
    from .options import WebOptions as WebOptions
    from .problems import Problem as Problem, problem_of as problem_of, problem_response as problem_response
    from .server import OpenCluster as OpenCluster, run_server as run_server, serving as serving
    from .stores import ServedStore as ServedStore, ServedStores as ServedStores
    from .threads import SMALL_BYTES as SMALL_BYTES, in_thread as in_thread

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".cluster_source": "ClusterRow ClusterSource",
        ".extra": "extra_needed",
        ".options": "WebOptions",
        ".problems": "Problem problem_of problem_response",
        ".server": "OpenCluster run_server serving",
        ".stores": "ServedStore ServedStores",
        ".threads": "SMALL_BYTES in_thread",
    },
)
