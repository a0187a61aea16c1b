"""Run a load test on the nodes of a cluster from a script: submitted, followed to its end, and its summary returned."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from ..errors import InvalidInput, MainstayError
from ..kinds import part
from .fleet import FleetDemand
from .fleet.follower import RunFollower
from .local_run import app_of
from .outputs import Output
from .plan import LoadOptions
from .planned_run import PlannedRun
from .run_clusters import HTTP, run_cluster
from .sources import LoadTest, load_file
from .stats.model import Summary

if TYPE_CHECKING:
    from ..task import SubmitOptions

log = logging.getLogger("mainstay.load")

#: where other commands find the URL of a cluster
CLUSTER_VARIABLE = "MAINSTAY_CLUSTER_URL"
#: who cancels a run that is given up
_BY = "client"
#: how long a run that is left waits for the cluster
_CANCEL_S = 5.0


async def run_on_cluster(
    test: LoadTest | str | Path,
    load: LoadOptions | None = None,
    *,
    nodes: int | FleetDemand,
    cluster: str = "",
    displays: Sequence[Output] = (),
    **options: Unpack[SubmitOptions],
) -> Summary:
    """Run a load test on nodes, and return its summary, whatever its verdict is.

    `test` may be the path of a file. `cluster` is the URL of the cluster for an operator, the address of a server of it
    (with the token in MAINSTAY_TOKEN), or the folder of `mainstay cluster up`; by default MAINSTAY_CLUSTER_URL, or the
    cluster that was started in this folder. `displays` get the windows while they arrive; see `Moment.restart`. No
    number of the summary depends on them. If this call is cancelled, so is the run. Raises `MainstayError` if no load
    was sent."""
    found = test if isinstance(test, LoadTest) else load_file(test)
    demand = nodes if isinstance(nodes, FleetDemand) else FleetDemand(nodes)
    planned = PlannedRun(found, load or LoadOptions())
    async with run_cluster(place_of_cluster(cluster), found, app_of) as at:
        run = await at.prepare(planned, demand, options, by=_BY, on_note=log.warning)
        # it may be stored although the answer has not arrived: then it has to be cancelled, too
        inserting = asyncio.ensure_future(at.insert(run))
        never = asyncio.Event()
        try:
            source = at.source((await asyncio.shield(inserting)).id)
            followed = await RunFollower(source, displays=displays, by=_BY).follow(stop=never, give_up=never)
        except asyncio.CancelledError:
            with contextlib.suppress(MainstayError, TimeoutError):
                async with asyncio.timeout(_CANCEL_S):
                    await at.source((await inserting).id).cancel(by=_BY, reason="given up")
            raise
    if followed.summary is None:
        raise followed.failure(found.name)
    return followed.summary


def place_of_cluster(named: str) -> str:
    """Where a cluster is reached: the address of a server of it, or the URL of its store for an operator. Of the named
    one, of that of the environment, or of the one that `mainstay cluster up` started in this folder."""
    # by name: the cluster is a layer above
    store_of: Callable[[str], str] = part("mainstay.cluster.operator:operator_store")
    if text := named or os.environ.get(CLUSTER_VARIABLE, ""):
        return text if text.startswith(HTTP) else store_of(text)
    folder = local_cluster_folder()
    try:
        return store_of(folder)
    except InvalidInput:
        rule = f"no cluster runs in {folder}; start one (mainstay cluster up), or name one: --cluster URL"
        raise InvalidInput("cluster", rule) from None


def local_cluster_folder() -> str:
    """Where `mainstay cluster up` keeps its files."""
    return str(part("mainstay.cluster.local_cluster_file:FOLDER"))


__all__ = ["CLUSTER_VARIABLE", "local_cluster_folder", "place_of_cluster", "run_on_cluster"]
