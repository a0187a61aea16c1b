"""What node jobs add to an app: `@app.node_job`, and the node jobs by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Unpack, overload

from ..worker import AppBase

if TYPE_CHECKING:
    from .declarations import NodeJobs
    from .node_job import NodeJob
    from .options import NodeJobOptions


class NodeJobMethods(AppBase):
    """The methods of an app that concern node jobs."""

    @property
    def _node_jobs(self) -> NodeJobs:
        jobs: NodeJobs = self.part("node")
        return jobs

    @overload
    def node_job(self, owner: type[Any], /) -> NodeJob: ...
    @overload
    def node_job(self, /, **options: Unpack[NodeJobOptions]) -> Callable[[type[Any]], NodeJob]: ...
    def node_job(self, owner: Any = None, /, **options: Unpack[NodeJobOptions]) -> Any:
        """Make a node job of a class: `@app.node_job`, or `@app.node_job(quorum="majority", stragglers="60s")`.

        Its method `local(self, node: Node, ...)` runs on every node that is active when the job begins, in parallel.
        After a quorum of them has succeeded, `leader(self, results: list[NodeResult], ...)` runs once, at the leader.
        A class may have one of the two or both. Further parameters are the same for both, and are given to `submit`.

        - `quorum`: "majority" (default), "all" or a number of nodes that must succeed before `leader` runs
        - `quorum_wait`: how long the quorum may take after the leader's own part. Default: "10s"
        - `on_no_quorum`: what happens then: "proceed" (default, with a warning in the result), "wait" or "fail"
        - `require`: whether a "quorum" (default) or "all" nodes must succeed for the job to succeed
        - `stragglers`: how long the other nodes may take after the quorum, before they are cancelled. Default: "60s"
        - `late_nodes`: whether nodes that join while it runs run it, too. Default: False
        - `labels`: only nodes with these labels run it
        - `deadline`: how long the whole job may take. Default: no limit

        Its name is `module.Class` unless `name` is given. The other options are those of a task, for the unit of each
        node and for the leader phase.
        """
        if owner is None:
            return lambda owner: self._node_jobs.declare(owner, options)
        return self._node_jobs.declare(owner, options)

    @property
    def node_jobs(self) -> Mapping[str, NodeJob]:
        """The node jobs by name."""
        return MappingProxyType(self._node_jobs.jobs)


__all__ = ["NodeJobMethods"]
