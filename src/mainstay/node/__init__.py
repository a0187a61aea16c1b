"""Node jobs: a class whose `local` runs on every node, and whose `leader` runs once after a quorum of them.

Layer: a kind of job, above the worker. Users start from `@app.node_job`. `kind` declares the parts of the package;
`decisions` is the heart: what the placement leader does next, as pure functions; `placement_duty` reads, decides and
writes. Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .app_methods import NodeJobMethods
    from .handle import NodeHandle
    from .node_job import NodeCall, NodeJob
    from .options import NodeJobOptions, NodeSubmitOptions
    from .placement_duty import PlacementDuty
    from .queries import (
        LeaderPhaseStatus,
        MemberStatus,
        NodeJobOverview,
        NodeList,
        NodeRetryResult,
        NodeStatus,
        NodeWork,
        QuorumStatus,
    )
    from .results import LeaderRun, Node, NodeJobResult, NodeResult
    from .service import NodeJobService, NodeJobStatus
    from .spec import NodePolicy, NodeSpec

__all__ = [
    "LeaderPhaseStatus",
    "LeaderRun",
    "MemberStatus",
    "Node",
    "NodeCall",
    "NodeHandle",
    "NodeJob",
    "NodeJobMethods",
    "NodeJobOptions",
    "NodeJobOverview",
    "NodeJobResult",
    "NodeJobService",
    "NodeJobStatus",
    "NodeList",
    "NodePolicy",
    "NodeResult",
    "NodeRetryResult",
    "NodeSpec",
    "NodeStatus",
    "NodeSubmitOptions",
    "NodeWork",
    "PlacementDuty",
    "QuorumStatus",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".app_methods": "NodeJobMethods",
        ".handle": "NodeHandle",
        ".node_job": "NodeCall NodeJob",
        ".options": "NodeJobOptions NodeSubmitOptions",
        ".placement_duty": "PlacementDuty",
        ".queries": (
            "LeaderPhaseStatus MemberStatus NodeJobOverview NodeList NodeRetryResult NodeStatus NodeWork QuorumStatus"
        ),
        ".results": "LeaderRun Node NodeJobResult NodeResult",
        ".service": "NodeJobService NodeJobStatus",
        ".spec": "NodePolicy NodeSpec",
    },
)
